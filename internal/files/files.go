// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package files reads files of secrets and certificates, which may be replaced while a program runs, and lie on a disk that hangs.
package files

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// MaxPEM bounds files of certificates, keys and tokens: a system's authorities have a quarter of a MiB.
const MaxPEM = 4 << 20

// Read reads a file, which may be a pipe, of at most so many bytes: one without an end is refused.
func Read(name string, most int64) ([]byte, error) {
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

// KeyPair reads a certificate and its key.
func KeyPair(certFile, keyFile string) (pair tls.Certificate, err error) {
	cert, err := Read(certFile, MaxPEM)
	if err != nil {
		return pair, err
	}
	key, err := Read(keyFile, MaxPEM)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, key)
}

// rereadLimit is how long a login waits for a disk that may hang: what was read before may do.
const rereadLimit = time.Second

// Latest is what was read last of files that may change.
type Latest[T any] struct {
	Value T // what was read first

	mu      sync.Mutex
	reading chan T // of the reading that is under way; closed without a value when it failed
}

// Again reads the files once more, unless the reading before hangs, and returns what was read last. What is no plain file is
// not read again: a pipe has been read.
func (l *Latest[T]) Again(read func() (T, error), files ...string) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading != nil {
		select {
		case <-l.reading: // too late: it may be stale
		default:
			return l.Value
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
			l.Value = value
		}
	case <-time.After(rereadLimit):
	}
	return l.Value
}
