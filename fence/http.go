// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Header is the field of a request that has the fence of its sender's lease, in decimal, and of an
// answer 412 that has the newest.
const Header = "Hasp-Fence"

// Transport sends a lease's fence with each request. Make one for each lease:
//
//	client := &http.Client{Transport: fence.Transport{Fence: lease.Fence()}}
type Transport struct {
	Fence uint64
	Base  http.RoundTripper // nil is http.DefaultTransport
}

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := Check(r.URL.Redacted(), t.Fence, 0); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(Header, strconv.FormatUint(t.Fence, 10))
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(r)
}

// Refused returns a *[StaleError] if a [Handler] refused a request for its fence, and nil otherwise.
func Refused(r *http.Response) error {
	newest := number(r.Header)
	if r.StatusCode != http.StatusPreconditionFailed || newest == 0 {
		return nil
	}
	return &StaleError{r.Request.URL.Redacted(), number(r.Request.Header), newest}
}

// number is the fence in a header, 0 if it has none.
func number(h http.Header) uint64 {
	n, _ := strconv.ParseUint(h.Get(Header), 10, 63) // 0 is no fence
	return n
}

// Handler lets next serve a request only with a fence that is large enough: otherwise it answers
// 412 Precondition Failed, with the newest in [Header]. A request with a method other than GET, HEAD, OPTIONS and TRACE
// writes; while it is served, no other is for the same resource. A request to read needs no fence. One to write without a
// fence is answered 428 Precondition Required, and 400 if it is no number.
//
// resource names what a request is about: nil is the path of its URL. The fences are in m, so
// they are lost when the server ends: a server that restarts, or one of several, should compare in its
// storage's own transaction ([SQL]), and answer with [Refuse].
func Handler(next http.Handler, m *Memory, resource func(*http.Request) string) http.Handler {
	if resource == nil {
		resource = func(r *http.Request) string { return r.URL.Path }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		work := func() error { next.ServeHTTP(w, r); return nil }
		fence, err := Of(r)
		switch reads := safe[r.Method]; {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		case fence == 0 && reads:
			_ = work()
		case fence == 0:
			http.Error(w, "the request has no "+Header, http.StatusPreconditionRequired)
		case reads:
			Refuse(w, m.Read(resource(r), fence, work))
		default:
			Refuse(w, m.Write(resource(r), fence, work))
		}
	})
}

var safe = map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodOptions: true, http.MethodTrace: true}

// Of is the fence that a request came with, 0 if none.
func Of(r *http.Request) (uint64, error) {
	all := r.Header.Values(Header)
	if len(all) == 0 {
		return 0, nil
	}
	fence, err := strconv.ParseUint(all[0], 10, 63)
	if err != nil || fence == 0 || len(all) > 1 {
		return 0, errors.New("fence: " + Header + " of the request is not one number from 1 to 2^63-1")
	}
	return fence, nil
}

// Refuse answers 412 with the newest fence if err is a [StaleError], and reports whether it did.
func Refuse(w http.ResponseWriter, err error) bool {
	var stale *StaleError
	if !errors.As(err, &stale) {
		return false
	}
	w.Header().Set(Header, strconv.FormatUint(stale.Newest, 10))
	http.Error(w, fmt.Sprintf("%s %d is too small: a later holder of the lock has written", Header, stale.Fence), http.StatusPreconditionFailed)
	return true
}
