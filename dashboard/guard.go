// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// policy: only our own files, no inline script or style, no frame around us.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

const (
	// answerLimit bounds the writing of an answer, and of each event of a stream.
	answerLimit = 15 * time.Second
	// bodyLimit bounds the body of a request, in bytes.
	bodyLimit = 8 << 10
	// queryLimit bounds the query of a request, in bytes.
	queryLimit = 4 << 10
)

type whoKey struct{}

// sender returns the sender of a request, as guard found out.
func sender(r *http.Request) Identity {
	id, _ := r.Context().Value(whoKey{}).(Identity)
	return id
}

// guard decides whether a request is heard at all.
func (s *server) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// Not every ResponseWriter has deadlines; then they are up to the server.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerLimit))
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit)
		if err := s.checkHost(r.Host); err != nil {
			refuse(w, r, http.StatusForbidden, err)
			return
		}
		if len(r.URL.RawQuery) > queryLimit {
			refuse(w, r, http.StatusBadRequest, errors.New("the query is too long"))
			return
		}
		if err := fromHere(r); err != nil {
			refuse(w, r, http.StatusForbidden, err)
			return
		}
		if err := cross.Check(r); err != nil {
			refuse(w, r, http.StatusForbidden, errForeign)
			return
		}
		id := Identity{}
		if r.URL.Path != "/healthz" {
			if id = s.Identify(r); !id.Read {
				challenge(w, r)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, id)))
	})
}

func challenge(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Basic realm="hasp: the password is a token", charset="UTF-8"`)
	refuse(w, r, http.StatusUnauthorized, errors.New("this request names no sender. Send a token, as the password of basic authentication or as a bearer; or a client certificate, if this server asks for one"))
}

// checkHost refuses names that are not ours: a page of another site may have pointed its own
// name at this machine (DNS rebinding). No site can point an IP address at us.
func (s *server) checkHost(host string) error {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == "localhost" || net.ParseIP(strings.Trim(name, "[]")) != nil {
		return nil
	}
	for _, h := range s.Hosts {
		if h == "*" || name != "" && strings.EqualFold(strings.TrimSuffix(h, "."), name) {
			return nil
		}
	}
	return errors.New("this server does not go by that name: it has to be told its names (hasp serve --host NAME, Options.Hosts)")
}

var errForeign = errors.New("a page of another site sent this request, or the page came from another address than this")

// fromHere refuses what a page of another site asks for in the background. A person may
// follow a link from there to a page of ours.
func fromHere(r *http.Request) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin", "none":
		return nil
	case "": // an old browser, or none
		origin := r.Header.Get("Origin")
		if u, err := url.Parse(origin); origin != "" && (err != nil || !strings.EqualFold(u.Host, r.Host)) {
			return errForeign
		}
		return nil
	}
	dest := r.Header.Get("Sec-Fetch-Dest")
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && dest == "document" && !strings.HasPrefix(r.URL.Path, "/events/") {
		return nil
	}
	return errForeign
}

// refuse answers with an error: as JSON to programs, as a line to people.
func refuse(w http.ResponseWriter, r *http.Request, code int, err error) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		writeJSON(w, code, problem{Error: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(driver.Printable(err.Error()) + "\n"))
}
