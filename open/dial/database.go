// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

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
	"github.com/hasplock/hasp/internal/files"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// The most connections to a database, each of which is a process, or a thread, of its server.
const (
	maxConns    = 8
	sparedConns = 4
)

// pool bounds the connections of a pool. Idle ones are kept where a program goes on to use them.
func (how *opening) pool(db *sql.DB) {
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	if how.Sparing {
		db.SetMaxOpenConns(sparedConns)
		db.SetMaxIdleConns(1)
	}
}

// startUp is for how long a connection to PostgreSQL is kept for the next request.
const startUp = 2 * time.Second

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
		if info, err := os.Stat(file); err == nil && (info.Mode()&os.ModeDevice != 0 || info.Size() > files.MaxPEM) { // pgx would read all of it
			return nil, fmt.Errorf("%s= in the store's URL, or PG%s, names no file that PostgreSQL's clients read: it is a device, or larger than %d MiB", name, strings.ToUpper(name), files.MaxPEM>>20)
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

func (p *postgresDB) open(how *opening) (*Store, error) {
	logins := files.Latest[*pgx.ConnConfig]{Value: p.config}
	anew := func(_ context.Context, c *pgx.ConnConfig) error {
		p := how.latest().(*postgresDB)                                                                  //nolint:forcetypeassert // as place.open says
		read := logins.Again(func() (*pgx.ConnConfig, error) { return pgx.ParseConfig(p.url.String()) }) // PGPASSFILE and the files of certificates, too
		c.User, c.Password, c.TLSConfig, c.Fallbacks = read.User, read.Password, read.TLSConfig, read.Fallbacks
		return nil
	}
	db := stdlib.OpenDB(*p.config, stdlib.OptionBeforeConnect(anew), stdlib.OptionShouldPing(pgxlisten.ShouldPing))
	disconnect := db.Close
	if how.pool(db); how.Sparing {
		db.SetConnMaxIdleTime(time.Second)
		// Many commands may wait, each with a connection that listens; a server admits few. At the start requests follow each
		// other; later each sign of life closes its connection: an idle connection stays for up to two seconds, of three.
		begun := time.AfterFunc(startUp, func() { db.SetMaxIdleConns(0) })
		disconnect = func() error { begun.Stop(); return db.Close() }
	}
	locks := sqldriver.NewPostgres(db, &sqldriver.PostgresOptions{Listener: pgxlisten.New(p.config, anew)})
	return &Store{Driver: owning(locks, disconnect), DB: db}, nil
}

func (p *postgresDB) String() string {
	if strings.HasPrefix(p.config.Host, "/") {
		return fmt.Sprintf("postgres:///%s?host=%s&port=%d", url.PathEscape(p.config.Database), p.config.Host, p.config.Port)
	}
	return fmt.Sprintf("postgres://%s/%s", net.JoinHostPort(p.config.Host, fmt.Sprint(p.config.Port)), url.PathEscape(p.config.Database))
}

func (p *postgresDB) sights() *sights { return p.seen }

func (p *postgresDB) parts() Parts {
	_, set := p.url.User.Password()
	query := p.url.Query()
	public := Parts{Kind: Postgres, Addrs: strings.Split(p.url.Host, ","), Database: strings.TrimPrefix(p.url.Path, "/"), Params: query,
		User: cmp.Or(p.url.User.Username(), query.Get("user")), Password: set || query.Has("password") || query.Has("sslpassword")}
	query.Del("password")
	query.Del("sslpassword")
	return public
}

// mysqlDB is a database of MariaDB or MySQL.
type mysqlDB struct {
	*hosts
	params url.Values
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
	m.params = values
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

func (m *mysqlDB) open(how *opening) (*Store, error) {
	err := m.config.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		latest := how.latest().(*mysqlDB) //nolint:forcetypeassert // as place.open says
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
	how.pool(db) // the idle one of a sparing program stays: others may take all that the server has left
	return &Store{Driver: owning(sqldriver.NewMySQL(db), db.Close), DB: db}, nil
}

func (m *mysqlDB) parts() Parts { return m.hosts.parts(MySQL, m.params) }
