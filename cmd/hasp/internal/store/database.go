// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// maxConns bounds the connections to a database: each is a process, or a thread, of its server.
const maxConns = 4

// startUp is for how long a connection to PostgreSQL is kept for the next request.
const startUp = 2 * time.Second

// dangers are what no database notices.
const dangers = "a server that is restored from a backup"

// postgresDB is a database of PostgreSQL.
type postgresDB struct {
	url    *url.URL // without hasp's own parameters
	config *pgx.ConnConfig
	seen   *sights
}

// postgresParameters are those that pgx and psql understand alike.
var postgresParameters = []string{
	"application_name", "connect_timeout", "dbname", "host", "options", "passfile", "password", "port", "sslcert", "sslkey", "sslmode",
	"sslpassword", "sslrootcert", "sslsni", "target_session_attrs", "user",
}

// parsePostgres reads a URL of PostgreSQL. What is wrong with it is not repeated: the
// parsers may quote it.
func parsePostgres(_, rest string) (*URL, error) {
	const form = "it is postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE; in a password, write characters with a meaning in a URL with %"
	parsed, err := url.Parse("postgres:" + rest)
	if err != nil || parsed.Opaque != "" || !strings.HasPrefix(rest, "//") || parsed.Fragment != "" || strings.HasSuffix(rest, "#") {
		return nil, errors.New("the store's URL cannot be read: " + form)
	}
	u, p := &URL{}, &postgresDB{url: parsed, seen: &sights{scheme: "postgres"}}
	u.place = p
	values, err := u.parameters(parsed.RawQuery, postgresParameters...)
	if err != nil {
		return nil, err
	}
	values.Del("ttl")
	parsed.RawQuery = values.Encode()
	for _, name := range []string{"passfile", "sslcert", "sslkey", "sslrootcert"} {
		file := cmp.Or(values.Get(name), os.Getenv("PG"+strings.ToUpper(name)))
		if info, err := os.Stat(file); err == nil && (info.Mode()&os.ModeDevice != 0 || info.Size() > MaxPEM) { // pgx would read all of it
			return nil, fmt.Errorf("%s= in the store's URL, or PG%s, names no file that PostgreSQL's clients read: it is a device, or larger than %d MiB", name, strings.ToUpper(name), MaxPEM>>20)
		}
	}
	if p.config, err = pgx.ParseConfig(parsed.String()); err != nil {
		return nil, errors.New("the store's URL, or a variable such as PGPORT or the file that PGPASSFILE names, cannot be read as PostgreSQL's: " + form)
	}
	if _, set := p.config.RuntimeParams["application_name"]; !set {
		p.config.RuntimeParams["application_name"] = "hasp"
	}
	p.config.DefaultQueryExecMode = pgx.QueryExecModeExec // works behind a pooler, too
	pgxlisten.WatchCommits(p.config)
	p.config.DialFunc = p.seen.watch(p.config.DialFunc)
	if p.config.ConnectTimeout == 0 {
		p.config.ConnectTimeout = limit
	}
	return u, nil
}

func (p *postgresDB) open(now func() place) (*Store, error) {
	logins := latest[*pgx.ConnConfig]{value: p.config}
	anew := func(_ context.Context, c *pgx.ConnConfig) error {
		p := now().(*postgresDB)                                                                         //nolint:forcetypeassert // as place.open says
		read := logins.again(func() (*pgx.ConnConfig, error) { return pgx.ParseConfig(p.url.String()) }) // PGPASSFILE and the files of certificates, too
		c.User, c.Password, c.TLSConfig, c.Fallbacks = read.User, read.Password, read.TLSConfig, read.Fallbacks
		return nil
	}
	db := stdlib.OpenDB(*p.config, stdlib.OptionBeforeConnect(anew), stdlib.OptionShouldPing(pgxlisten.ShouldPing))
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(1)
	db.SetConnMaxIdleTime(time.Second)
	// Many commands may wait, each with a connection that listens; a server admits few. After the start, whose requests follow
	// each other, each sign of life closes its connection: one that is idle stays for up to two seconds, of three.
	begun := time.AfterFunc(startUp, func() { db.SetMaxIdleConns(0) })
	locks := sqldriver.NewPostgres(db, &sqldriver.PostgresOptions{Listener: pgxlisten.New(p.config, anew)})
	return &Store{
		Driver: locks, disconnect: func() error { begun.Stop(); return db.Close() }, kind: doctor.Kind{Dangers: dangers}, Examine: p.pooler,
		NoMessages: ": is there a pooler of connections in between (PgBouncer in transaction mode), through which LISTEN does not work?",
		Tables:     &Tables{Schema: sqldriver.PostgresSchema, Make: locks.Init},
	}, nil
}

// pooler notices one between this program and the server: what it says of the connection is not what the server says.
func (p *postgresDB) pooler(ctx context.Context) []driver.Finding {
	c, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return nil // the driver's own connections say why
	}
	defer c.Close(ctx) // it was only asked
	var pid uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil || pid == c.PgConn().PID() {
		return nil
	}
	return []driver.Finding{{Level: driver.LevelOK, Check: "pooler", Text: "there is a pooler of connections in between, which does locks no harm; " +
		"the handoff below says whether messages come through it"}}
}

func (p *postgresDB) String() string {
	if strings.HasPrefix(p.config.Host, "/") {
		return fmt.Sprintf("postgres:///%s?host=%s&port=%d", url.PathEscape(p.config.Database), p.config.Host, p.config.Port)
	}
	return fmt.Sprintf("postgres://%s/%s", net.JoinHostPort(p.config.Host, fmt.Sprint(p.config.Port)), url.PathEscape(p.config.Database))
}

func (p *postgresDB) sights() *sights { return p.seen }

func (*postgresDB) inherited(string) string { return "" }

func (p *postgresDB) secrets() (some, password bool) {
	_, set := p.url.User.Password()
	query := p.url.Query()
	password = set || query.Has("password") || query.Has("sslpassword")
	return password || p.url.User != nil || query.Has("user"), password
}

func (p *postgresDB) byHand(_ int, statement string) string {
	public := *p.url
	public.User = nil // a password may stand there without a name
	if name := p.url.User.Username(); name != "" {
		public.User = url.User(name)
	}
	query := public.Query()
	query.Del("password")
	query.Del("sslpassword")
	public.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // psql takes a plus for a plus
	return shell.Join("psql", public.String(), "-c", statement)
}

func (p *postgresDB) remarks() []string {
	if _, password := p.secrets(); password {
		return []string{"set PGPASSWORD to the password first"}
	}
	return nil
}

// mysqlDB is a database of MariaDB or MySQL.
type mysqlDB struct {
	*hosts
	config *mysql.Config
}

// parseMySQL reads what follows "mysql:" or "mariadb:".
func parseMySQL(scheme, rest string) (*URL, error) {
	h, query, err := parseHosts(scheme, rest, "3306")
	if err == nil && h.user == "" && h.password != "" {
		err = h.needsBoth()
	}
	switch {
	case err != nil:
		return nil, err
	case len(h.addrs) > 1:
		return nil, errors.New("the store's URL names several hosts: locks are in one database server")
	case h.path == "" || strings.Contains(h.path, "/"):
		return nil, fmt.Errorf("the store's URL names no database: it is %s://USER:PASSWORD@HOST[:PORT]/DATABASE", scheme)
	}
	u, m := &URL{}, &mysqlDB{hosts: h, config: mysql.NewConfig()}
	u.place = m
	values, err := u.parameters(query, "tls", "socket")
	if err != nil {
		return nil, err
	}
	c := m.config
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = h.user, h.password, "tcp", h.addrs[0], h.path
	if socket := values.Get("socket"); socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	switch tls := values.Get("tls"); tls {
	case "", "true", "preferred", "skip-verify":
		c.TLSConfig = tls
	default:
		return nil, errors.New("tls= in the store's URL is not true, preferred or skip-verify")
	}
	c.Timeout, c.DialFunc = limit, m.seen.watch(plainly)
	c.Logger = &mysql.NopLogger{} // what matters comes back as an error
	return u, nil
}

func (m *mysqlDB) open(now func() place) (*Store, error) {
	err := m.config.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		latest := now().(*mysqlDB) //nolint:forcetypeassert // as place.open says
		c.User, c.Passwd = latest.user, latest.password
		return nil
	}))
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(m.config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(1) // it stays: others may take all that the server has left
	locks := sqldriver.NewMySQL(db)
	return &Store{
		Driver: locks, disconnect: db.Close, kind: doctor.Kind{Dangers: dangers},
		Tables: &Tables{Schema: sqldriver.MySQLSchema, Make: locks.Init},
	}, nil
}

// login: MariaDB refuses a user that comes without TLS and has to come with it in the words for a wrong password.
func (m *mysqlDB) login(error) string {
	if m.config.TLSConfig == "" {
		return checkLogin + ", and whether the server wants TLS (tls=true in the store's URL)"
	}
	return checkLogin
}

func (*mysqlDB) inherited(string) string { return "" }

func (m *mysqlDB) byHand(_ int, statement string) string {
	cli := []string{"mariadb"}
	if host, port, err := net.SplitHostPort(m.config.Addr); m.config.Net == "unix" {
		cli = append(cli, "-S", m.config.Addr)
	} else if err == nil {
		cli = append(cli, "-h", host, "-P", port)
	}
	if m.user != "" {
		cli = append(cli, "-u", m.user)
	}
	return shell.Join(append(cli, m.config.DBName, "-e", statement)...)
}

func (m *mysqlDB) remarks() []string {
	if _, password := m.secrets(); password {
		return []string{"add -p, and type the password"}
	}
	return nil
}
