// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// Identity is the sender of a request. The zero value is unknown, and may do nothing.
type Identity struct {
	Name  string // stands in the records of Options.Audit
	Read  bool   // may look
	Break bool   // may break locks, if Read is true as well
}

// Local lets every user of this machine look, and break if breaks is true. A request that
// a proxy forwarded has an unknown sender: it only looks as if it came from here.
func Local(breaks bool) func(*http.Request) Identity {
	return func(r *http.Request) Identity {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return Identity{}
		}
		for name := range r.Header {
			if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" {
				return Identity{}
			}
		}
		return Identity{Name: "loopback", Read: true, Break: breaks}
	}
}

// Token is a secret by which a sender is known.
type Token struct {
	Name   string // of the sender; stands in the records of Options.Audit
	Secret string // at least 16 bytes
	Break  bool   // its owner may break locks, not only look
}

const leastSecret = 16

// Tokens knows people by a token: as "Authorization: Bearer SECRET", or as the password of
// basic authentication, where the user name counts for nothing. An error says which token
// cannot be used, without its secret.
func Tokens(tokens ...Token) (func(*http.Request) Identity, error) {
	type known struct {
		hash [sha256.Size]byte
		Identity
	}
	var all []known
	for i, t := range tokens {
		hash := sha256.Sum256([]byte(t.Secret))
		switch {
		case t.Name == "":
			return nil, fmt.Errorf("token %d has no name", i+1)
		case len(t.Secret) < leastSecret:
			return nil, fmt.Errorf("the token %q is too short: at least %d bytes, for example of openssl rand -hex 32", t.Name, leastSecret)
		case slices.ContainsFunc(all, func(k known) bool { return k.hash == hash }):
			return nil, fmt.Errorf("the token %q is the same as another: their senders could not be told apart", t.Name)
		}
		all = append(all, known{hash, Identity{Name: t.Name, Read: true, Break: t.Break}})
	}
	if len(all) == 0 {
		return nil, errors.New("there are no tokens")
	}
	return func(r *http.Request) (sender Identity) {
		secret, ok := secretOf(r)
		if !ok {
			return Identity{}
		}
		hash := sha256.Sum256([]byte(secret))
		for _, k := range all { // all of them: the time says nothing
			if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
				sender = k.Identity
			}
		}
		return sender
	}, nil
}

func secretOf(r *http.Request) (string, bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, true
	}
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return secret, ok && strings.EqualFold(scheme, "Bearer")
}

// Certificates knows people by the client certificate that the server has verified (its
// tls.Config has ClientCAs, and ClientAuth asks for one). All of them may look; they may
// break if the subject, or its common name, is one of breakers.
func Certificates(breakers ...string) func(*http.Request) Identity {
	return func(r *http.Request) Identity {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
			return Identity{}
		}
		subject := r.TLS.VerifiedChains[0][0].Subject
		sender := Identity{Name: subject.String(), Read: true}
		for _, b := range breakers {
			sender.Break = sender.Break || b != "" && (b == subject.CommonName || b == sender.Name)
		}
		return sender
	}
}

// FirstOf asks one way after another, and takes the first identity that may look.
func FirstOf(ways ...func(*http.Request) Identity) func(*http.Request) Identity {
	return func(r *http.Request) Identity {
		for _, way := range ways {
			if sender := way(r); sender.Read {
				return sender
			}
		}
		return Identity{}
	}
}
