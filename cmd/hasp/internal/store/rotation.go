// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/tls"
	"sync"
)

// rotation is the file that a URL was found in. It is read at each login, since a password may have been changed by then: only
// the user, the password and certificates are taken from it. A file that cannot be read at the moment, or names another store, changes nothing.
type rotation struct {
	file, store string // "": no file

	mu     sync.Mutex
	latest place
}

func newRotation(u *URL) *rotation {
	return &rotation{file: u.file, store: u.String(), latest: u.place}
}

func (r *rotation) now() place {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == "" {
		return r.latest
	}
	if u, err := fromFile(r.file); err == nil && u.String() == r.store {
		r.latest = u.place
	}
	return r.latest
}

// renewed reads the client's certificate again at each handshake; pair is what it read first. While certificate and key do not fit each
// other, since only one file was replaced so far, it uses the latest pair that did.
func (t tlsFiles) renewed(pair tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if now, err := tls.LoadX509KeyPair(t["tls-cert"], t["tls-key"]); err == nil {
			pair = now
		}
		latest := pair
		return &latest, nil
	}
}
