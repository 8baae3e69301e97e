// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/hasplock/hasp/open/dial"
	"github.com/hasplock/hasp/redisdriver"
)

// ByHand returns the command line with which a person has the store, or its
// node of that number, carry out a statement of its own language. It holds no
// password.
func (u *URL) ByHand(node int, statement string) string {
	switch p := u.Parts(); p.Kind {
	case dial.SQLite:
		return shell.Join("sqlite3", "-readonly", p.Addrs[0], statement)
	case dial.Sentinel: // a master that remarks tell how to find
		return redisCLI(`redis-cli -h "$1" -p "$2"`+redisOptions(p), statement)
	case dial.Cluster: // redirections are followed
		return redisCLI("redis-cli -c "+at(p.Addrs[0])+redisOptions(p), statement)
	case dial.Postgres:
		return psql(p, statement)
	case dial.MySQL:
		return mariadb(p, statement)
	case dial.Etcd:
		return etcdctl(p, statement)
	case dial.ZK:
		words, _ := plainWords(statement)
		return shell.Join(append([]string{"zkCli.sh", "-server", strings.Join(p.Addrs, ",")}, words...)...)
	default: // Redis, Redlock
		return redisCLI(redisAt(p, p.Addrs[node]), statement)
	}
}

// Remarks are what else a person has to know for the command lines of ByHand.
func (u *URL) Remarks() (all []string) {
	p := u.Parts()
	first := map[dial.Kind]string{
		dial.Redis: "set REDISCLI_AUTH to the password first", dial.Redlock: "set REDISCLI_AUTH to the password first",
		dial.Sentinel: "then set REDISCLI_AUTH to the password of Redis", dial.Cluster: "then set REDISCLI_AUTH to the password of Redis",
		dial.Postgres: "set PGPASSWORD to the password first", dial.MySQL: "add -p, and type the password",
		dial.Etcd: "set ETCDCTL_PASSWORD to the password first", dial.ZK: "within zkCli.sh first: addauth digest USER:PASSWORD",
	}[p.Kind]
	if p.Kind == dial.Sentinel {
		all = findMaster(p)
	}
	if p.Password {
		all = append(all, first)
	}
	if p.Kind == dial.Redlock {
		all = append(all, "the same on the other nodes: "+strings.Join(p.Addrs[1:], ", "))
	}
	return all
}

// findMaster says how to ask a Sentinel for the master.
func findMaster(p dial.Parts) (all []string) {
	find := append([]string{"redis-cli"}, redisTLS(p)...)
	if p.SentinelUser != "" {
		find = append(find, "--user", p.SentinelUser)
	}
	if p.SentinelPassword {
		all = append(all, "set REDISCLI_AUTH to the Sentinels' password first")
	}
	return append(all, "find the master first: set -- $("+
		redisCLI(shell.Join(find...)+" "+at(p.Addrs[0]), shell.Join("SENTINEL", "GET-MASTER-ADDR-BY-NAME", p.Master))+")")
}

// redisCLI is redis-cli with its options, and a statement for it.
func redisCLI(cli, statement string) string {
	if words, ok := plainWords(statement); ok {
		return cli + " " + shell.Join(words...)
	}
	// What has bytes that a shell cannot carry goes through standard input,
	// where redis-cli reads its own escapes.
	return shell.Join("printf", `%s\n`, statement) + " | " + cli
}

// at are the options of redis-cli for an address.
func at(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return shell.Join("-h", addr)
	}
	return shell.Join("-h", host, "-p", port)
}

// redisAt is redis-cli for the server at an address, or a socket.
func redisAt(p dial.Parts, addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "redis-cli " + shell.Join("-s", addr) + redisOptions(p)
	}
	return "redis-cli " + at(addr) + redisOptions(p)
}

// redisOptions are the options of redis-cli that all servers have in common, each after a space.
func redisOptions(p dial.Parts) string {
	cli := redisTLS(p)
	if p.User != "" {
		cli = append(cli, "--user", p.User)
	}
	if p.Database != "0" {
		cli = append(cli, "-n", p.Database)
	}
	if len(cli) == 0 {
		return ""
	}
	return " " + shell.Join(cli...)
}

// redisTLS are the options of redis-cli for a server with TLS.
func redisTLS(p dial.Parts) []string {
	if p.TLS == nil {
		return nil
	}
	cli := []string{"--tls"}
	for _, flag := range [][2]string{{"--cacert", "tls-ca"}, {"--cert", "tls-cert"}, {"--key", "tls-key"}, {"--sni", "tls-server-name"}} {
		if value := p.TLS[flag[1]]; value != "" {
			cli = append(cli, flag[0], value)
		}
	}
	return cli
}

func psql(p dial.Parts, statement string) string {
	at := url.URL{Scheme: "postgres", Host: strings.Join(p.Addrs, ","), Path: "/" + p.Database,
		RawQuery: strings.ReplaceAll(p.Params.Encode(), "+", "%20")} // psql takes a plus for a plus
	if p.User != p.Params.Get("user") {
		at.User = url.User(p.User)
	}
	return shell.Join("psql", at.String(), "-c", statement)
}

func mariadb(p dial.Parts, statement string) string {
	cli := []string{"mariadb"}
	if socket := p.Params.Get("socket"); socket != "" {
		cli = append(cli, "-S", socket)
	} else if host, port, err := net.SplitHostPort(p.Addrs[0]); err == nil {
		cli = append(cli, "-h", host, "-P", port)
	}
	if p.User != "" {
		cli = append(cli, "-u", p.User)
	}
	return shell.Join(append(cli, p.Database, "-e", statement)...)
}

func etcdctl(p dial.Parts, statement string) string {
	scheme := "http://"
	if p.TLS != nil {
		scheme = "https://"
	}
	cli := []string{"etcdctl", "--endpoints=" + scheme + strings.Join(p.Addrs, ","+scheme)}
	for _, flag := range [][2]string{{"--cacert=", "tls-ca"}, {"--cert=", "tls-cert"}, {"--key=", "tls-key"}} {
		if value := p.TLS[flag[1]]; value != "" {
			cli = append(cli, flag[0]+value)
		}
	}
	if p.User != "" {
		cli = append(cli, "--user="+p.User)
	}
	words, _ := plainWords(statement)
	return shell.Join(append(cli, words...)...)
}

// plainWords splits a statement into words, and undoes quotes around text
// without escapes.
func plainWords(statement string) ([]string, bool) {
	var words []string
	for statement != "" {
		if statement[0] != '"' {
			word, rest, _ := strings.Cut(statement, " ")
			if strings.ContainsAny(word, `"'\`) {
				return nil, false
			}
			words, statement = append(words, word), rest
			continue
		}
		word, rest, ok := strings.Cut(statement[1:], `"`)
		if !ok || strings.ContainsAny(word, `\`) || rest != "" && rest[0] != ' ' {
			return nil, false
		}
		words, statement = append(words, word), strings.TrimPrefix(rest, " ")
	}
	return words, true
}

const checkSentinels = "Check sentinel-user= and sentinel-password= in the store's URL: the Sentinels have a login of their own"

// CheckLogin is what to check after a login that was refused: a sentence.
func (u *URL) CheckLogin(err error) string {
	check := "Check user, password and certificate"
	if u.file != "" {
		check += " in " + u.file + ", which is read again at each login"
	}
	switch p := u.Parts(); {
	case p.Kind == dial.MySQL && p.Params.Get("tls") == "":
		// MariaDB refuses a user that comes without TLS and has to come with it in the words for a wrong password.
		return check + ", and whether the server wants TLS (tls=true in the store's URL)."
	case p.Kind == dial.Sentinel && errors.As(err, new(*redisdriver.SentinelsError)):
		return checkSentinels + "."
	case p.Kind == dial.Sentinel:
		return "It is that of Redis, not of the Sentinels: check NAME:PASSWORD@ and user= in the store's URL."
	}
	return check + "."
}

// NameMaster is what to do about a server that cannot be written: a sentence; empty where the store finds its master itself.
func (u *URL) NameMaster() string {
	switch u.Parts().Kind {
	case dial.Redis:
		return "Name its master in the store's URL, or take redis+sentinel:// or redis+cluster://, which find it."
	case dial.Sentinel, dial.Cluster, dial.Etcd, dial.ZK:
		return ""
	}
	return "Name its master in the store's URL."
}
