// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	sqldrv "database/sql/driver"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"

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
	adviceDenied = "this user may not: it needs SELECT, INSERT, UPDATE and DELETE on hasp_key and hasp_lease, "
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
	var ne net.Error
	var op *net.OpError
	if errors.As(err, &ne) || errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, sqldrv.ErrBadConn) || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "connection") {
		return &storeError{class: driver.ClassUnreachable, err: err, advice: "the server does not answer, or not in time"}
	}
	return err
}

func explainPostgres(err error) error {
	if errors.Is(err, errForgets) {
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("synchronous_commit is off"),
			advice: adviceForget + "set it to on for this user or database (ALTER ROLE ... SET synchronous_commit = on)"}
	}
	state := sqlState(err)
	e := &storeError{err: err}
	switch {
	case in(state, "42P01", "42703", "3F000", "42883"): // no such table, column, schema, function
		e.class, e.advice = driver.ClassMisconfigured, adviceTables
	case state == "42501":
		e.class, e.advice = driver.ClassDenied, adviceDenied+"SELECT on hasp_meta, and USAGE on the sequence hasp_fence"
	case strings.HasPrefix(state, "28"):
		e.class, e.advice = driver.ClassLogin, "the server does not let this user in: look at the name, the password and pg_hba.conf"
	case in(state, "3D000"):
		e.class, e.advice = driver.ClassMisconfigured, "the database does not exist"
	case in(state, "53100"):
		e.class, e.advice = driver.ClassFull, "the server's disk is full"
	case in(state, "25006"):
		e.class, e.advice = driver.ClassReadOnly, "locks must be written: this is a standby, or default_transaction_read_only is on"
	case state == "55P03" || state == "57014":
		e.class, e.advice = driver.ClassUnreachable, "a statement took longer than lock_timeout or statement_timeout of this user allow"
	case strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "53") || state == "25P03":
		e.class, e.advice = driver.ClassUnreachable, "the server is starting, stopping or overloaded, or ended the connection"
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
	case in(n, 1044, 1142, 1143, 1370):
		e.class, e.advice = driver.ClassDenied, adviceDenied+"and SELECT and UPDATE on hasp_meta"
	case in(n, 1045, 1698):
		e.class, e.advice = driver.ClassLogin, "the server does not let this user in: look at the name and the password"
	case in(n, 1114, 1021, 1030):
		e.class, e.advice = driver.ClassFull, "the server's disk is full"
	case in(n, 1290, 1836, 1792):
		e.class, e.advice = driver.ClassReadOnly, "locks must be written: this is a replica, or read_only is on"
	case n == 1665:
		e.class, e.advice = driver.ClassMisconfigured, "binlog_format is STATEMENT; it must be MIXED or ROW"
	case in(n, 1205, 1040, 1203, 1053, 1927, 3024, 1969):
		e.class, e.advice = driver.ClassUnreachable, "the server is stopping or overloaded, or somebody stopped within a transaction (SHOW PROCESSLIST)"
	default:
		return nil
	}
	return e
}
