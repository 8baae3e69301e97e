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

// explainServer adds to an error what kind of trouble it is, and what to do, where that is known;
// own does so for the errors of one kind of server, and returns nil for others.
func explainServer(own func(error) error, err error) error {
	var se *storeError
	switch {
	case err == nil || errors.As(err, &se) || errors.Is(err, driver.ErrNotHeld):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return &storeError{class: driver.ClassMisconfigured, err: errNoHead, advice: adviceTables}
	}
	if e := own(err); e != nil {
		return e
	}
	if errors.As(err, new(*busyError)) {
		return &storeError{class: driver.ClassUnreachable, err: err, advice: "the server was not asked: allow the pool more connections, or give hasp one of its own"}
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return &storeError{class: driver.ClassMisconfigured, err: err, advice: "this program does not trust the server's certificate"}
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
// server that takes writes: another connection may lead to that.
func refuses(err error) bool {
	return err != nil && (errors.Is(err, errDemoted) || in(sqlState(err), "25006", "0A000") || in(mysqlNumber(err), 1290, 1792, 1836, 1047, 3032))
}

// errForgets is of a server on which a lease might be forgotten.
var errForgets = errors.New("the database answers a commit before it is safe")
