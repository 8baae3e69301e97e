// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/tls"
	"database/sql"
	sqldrv "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

func in[T comparable](v T, list ...T) bool { return slices.Contains(list, v) }

// sqlState is the SQLSTATE of a server's error, "" of others. The drivers for PostgreSQL
// have it under this name.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// mysqlNumber is the number of a server's error, 0 of others. The driver has it in a field
// of its error type, which this package does not import.
func mysqlNumber(err error) int {
	for ; err != nil; err = errors.Unwrap(err) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if n := mysqlNumber(e); n != 0 {
					return n
				}
			}
			return 0
		}
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		if f := v.FieldByName("Number"); f.IsValid() && f.CanUint() {
			return int(f.Uint())
		}
	}
	return 0
}

const (
	adviceTables = "the tables are missing: make them with Init of the driver (hasp init), or by hand with the schema that it shows; " +
		"if they are there, they are not on the search_path of this user, or in another database"
	adviceDenied = "this user lacks the right that the server names: it needs SELECT, INSERT, UPDATE and DELETE on hasp_key and hasp_lease, "
	adviceForget = "a lease would be forgotten with it: "
)

// explain adds to an error what kind of trouble it is, and what to do.
func (s *Server) explain(err error) error {
	var se *storeError
	switch {
	case err == nil || errors.As(err, &se) || errors.Is(err, driver.ErrNotHeld):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return &storeError{class: driver.ClassMisconfigured, err: errNoHead, advice: adviceTables}
	}
	if e := s.eng.explain(err); e != nil {
		return e
	}
	if errors.As(err, new(*busyError)) {
		return &storeError{class: driver.ClassUnreachable, err: err, advice: "the server was not asked: allow the pool more connections, or give hasp one of its own"}
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return &storeError{class: driver.ClassMisconfigured, err: err, advice: "the server's certificate is not one that this program trusts"}
	}
	var ne net.Error
	if errors.As(err, &ne) || errors.As(err, new(*net.OpError)) || errors.As(err, new(*lostError)) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, sqldrv.ErrBadConn) || errors.Is(err, context.DeadlineExceeded) {
		return &storeError{class: driver.ClassUnreachable, err: err}
	}
	return err
}

// lostError is of a connection that could not be made, or is none any more. Some drivers say so in words alone.
type lostError struct{ error }

// busyError is of a pool whose connections others use: the server was not asked.
type busyError struct {
	waited time.Duration
	pool   sql.DBStats
}

func (e *busyError) Error() string {
	return fmt.Sprintf("waited %v for a connection of the pool, %d of %d in use", e.waited.Round(time.Millisecond), e.pool.InUse, e.pool.MaxOpenConnections)
}

func (e *lostError) Unwrap() error { return e.error }

// errDemoted is of a server that took writes when this driver asked before.
var errDemoted = errors.New("the server takes no writes any more, and what it says of locks may be over")

// errAlone is of a commit that a failover may take back.
var errAlone = errors.New("the server stopped waiting for a standby to have the commit (somebody cancelled it, or statement_timeout did)")

const adviceReadOnly = "locks must be written, and this server takes no writes: it is a standby, or was told to be read-only"

// refuses says whether a server refused what it was asked, and left nothing of it, since it is not, or no longer, the
// one that takes writes: another connection may lead to that one.
func (s *Server) refuses(err error) bool {
	return errors.Is(err, errDemoted) || in(sqlState(err), "25006", "0A000") || in(mysqlNumber(err), 1290, 1792, 1836, 1047, 3032)
}

func explainPostgres(err error) error {
	if errors.Is(err, errForgets) {
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("synchronous_commit is off"),
			advice: adviceForget + "set it to on for this user or database (ALTER ROLE ... SET synchronous_commit = on)"}
	}
	state := sqlState(err)
	e := &storeError{err: err}
	switch {
	case errors.Is(err, errAlone):
		e.class, e.advice = driver.ClassUnreachable, "so it does not count: look at the synchronous standbys"
	case in(state, "42P01", "42703"): // no such table, column
		e.class, e.advice = driver.ClassMisconfigured, adviceTables
	case state == "3F000":
		e.class, e.advice = driver.ClassMisconfigured, "the search_path of this user names no schema that exists"
	case state == "42883":
		e.class, e.advice = driver.ClassMisconfigured, "the server lacks a function of PostgreSQL's, or the search_path of this user hides it: is it another product?"
	case state == "42501":
		e.class, e.advice = driver.ClassDenied, adviceDenied+"SELECT on hasp_meta, USAGE on the sequence hasp_fence and on their schema, and what "+
			"PostgreSQL allows everybody: EXECUTE of its own functions. To make the tables it needs CREATE on the schema"
	case strings.HasPrefix(state, "28"):
		e.class, e.advice = driver.ClassLogin, "the server does not let this user in: look at the name, the password and pg_hba.conf"
	case state == "3D000":
		e.class, e.advice = driver.ClassMisconfigured, "the database does not exist"
	case in(state, "26000", "42P05"):
		e.class, e.advice = driver.ClassMisconfigured, "a pooler of connections in between gives each transaction another session: have the client prepare no "+
			"statements (pgx: default_query_exec_mode=exec)"
	case state == "53100":
		e.class, e.advice = driver.ClassFull, "the server's disk is full"
	case state == "25006" || errors.Is(err, errDemoted):
		e.class, e.advice = driver.ClassReadOnly, adviceReadOnly+" (default_transaction_read_only)"
	case state == "0A000":
		e.class, e.advice = driver.ClassUnreachable, "the server cannot do that at present: it is a standby that has serializable as its default isolation, or the tables were changed meanwhile"
	case in(state, "55P03", "57014"):
		e.class, e.advice = driver.ClassUnreachable, "a statement took longer than lock_timeout or statement_timeout of this user allow, or somebody cancelled it"
	case state != "" && in(state[:2], "08", "40", "53", "57", "58") || in(state, "25P03", "55000"):
		e.class, e.advice = driver.ClassUnreachable, "the server, or a pooler in between, is starting, stopping, overloaded or without a disk, or ended the connection"
	default:
		return nil
	}
	return e
}

func explainMySQL(err error) error {
	if errors.Is(err, errForgets) {
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("innodb_flush_log_at_trx_commit is 0, or autocommit is off"),
			advice: adviceForget + "set innodb_flush_log_at_trx_commit to 1 and leave autocommit on"}
	}
	e := &storeError{err: err}
	switch n := mysqlNumber(err); {
	case in(n, 1146, 1054): // no such table, column
		e.class, e.advice = driver.ClassMisconfigured, adviceTables
	case in(n, 1049, 1046):
		e.class, e.advice = driver.ClassMisconfigured, "the database does not exist, or the data source name does not say which"
	case n == 1044:
		e.class, e.advice = driver.ClassDenied, "this user may not use the database, or does not exist in it: GRANT it rights there"
	case in(n, 1142, 1143, 1370):
		e.class, e.advice = driver.ClassDenied, adviceDenied+"and SELECT and UPDATE on hasp_meta; to make the tables, CREATE"
	case in(n, 1045, 1698):
		e.class, e.advice = driver.ClassLogin, "the server does not let this user in: look at the name and the password"
	case n == 1130:
		e.class, e.advice = driver.ClassDenied, "the server lets no user in from this host"
	case in(n, 1114, 1021, 1030):
		e.class, e.advice = driver.ClassFull, "the server's disk is full"
	case in(n, 1290, 1836, 1792) || errors.Is(err, errDemoted):
		e.class, e.advice = driver.ClassReadOnly, adviceReadOnly+" (read_only)"
	case n == 1665:
		e.class, e.advice = driver.ClassMisconfigured, "binlog_format is STATEMENT; it must be MIXED or ROW"
	case n == 1226:
		e.class, e.advice = driver.ClassUnreachable, "this user has as many connections, or asked as often, as the server allows it (max_user_connections, MAX_QUERIES_PER_HOUR)"
	case n == 1047:
		e.class, e.advice = driver.ClassUnreachable, "this node of a Galera cluster is not ready: it is joining, or without a majority"
	case in(n, 1040, 1203, 1205, 1213, 1969, 3024): // overload
		e.class, e.advice = driver.ClassUnreachable, "the server is overloaded, or somebody stopped within a transaction (SHOW PROCESSLIST)"
	case in(n, 1053, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 2002, 2003, 2006, 2013, 3032, 3100, 3101, 3169, 4031) || 9000 <= n && n < 9100: // ProxySQL's own
		e.class, e.advice = driver.ClassUnreachable, "the server, or a proxy in between, is starting or stopping, or ended the connection"
	default:
		return nil
	}
	return e
}
