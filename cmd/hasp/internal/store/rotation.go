// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// MaxPEM bounds files of certificates, keys and tokens: a system's authorities have a quarter of a MiB.
const MaxPEM = 4 << 20

// ReadFile reads a file, which may be a pipe, of at most so many bytes: one without an end is refused.
func ReadFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is too large: it may have %d KiB", name, most>>10)
	}
	return text, err
}

// ReadKeyPair reads a certificate and its key.
func ReadKeyPair(certFile, keyFile string) (pair tls.Certificate, err error) {
	cert, err := ReadFile(certFile, MaxPEM)
	if err != nil {
		return pair, err
	}
	key, err := ReadFile(keyFile, MaxPEM)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, key)
}

// rereadLimit is how long a login waits for a disk that may hang: what was read before may do.
const rereadLimit = time.Second

// latest is what was read last of files that may change.
type latest[T any] struct {
	mu      sync.Mutex
	value   T
	reading chan T // of the reading that is under way; closed without a value when it failed
}

// again reads the files once more, unless the reading before hangs, and returns what was read last. What is no plain file is
// not read again: a pipe has been read.
func (l *latest[T]) again(read func() (T, error), files ...string) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading != nil {
		select {
		case <-l.reading: // too late: it may be stale
		default:
			return l.value
		}
	}
	reading := make(chan T, 1)
	l.reading = reading
	go func() {
		defer close(reading)
		for _, name := range files {
			if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
				return
			}
		}
		if value, err := read(); err == nil {
			reading <- value
		}
	}()
	select {
	case value, ok := <-reading:
		if l.reading = nil; ok {
			l.value = value
		}
	case <-time.After(rereadLimit):
	}
	return l.value
}

// rotation is the file that a URL was found in. It is read at each login, since a password may have been changed by then: only
// the user, the password and certificates are taken from it. A file that cannot be read at the moment, or names another store, changes nothing.
type rotation struct {
	file, store string // "": no file
	latest      latest[place]
}

func newRotation(u *URL) *rotation {
	return &rotation{file: u.file, store: u.String(), latest: latest[place]{value: u.place}}
}

func (r *rotation) now() place {
	if r.file == "" {
		return r.latest.value
	}
	return r.latest.again(func() (place, error) {
		u, err := fromFile(r.file)
		if err == nil && u.String() != r.store {
			err = errors.New("it names another store")
		}
		if err != nil {
			return nil, err
		}
		return u.place, nil
	}, r.file)
}

// renewed reads the client's certificate again at each handshake; pair is what it read first. While certificate and key do not fit each
// other, since only one file was replaced so far, it uses the latest pair that did.
func (t tlsFiles) renewed(pair tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	l := latest[tls.Certificate]{value: pair}
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair := l.again(func() (tls.Certificate, error) { return ReadKeyPair(t["tls-cert"], t["tls-key"]) }, t["tls-cert"], t["tls-key"])
		return &pair, nil
	}
}
