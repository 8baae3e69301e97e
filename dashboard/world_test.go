// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// world is a store, a client of it, and what was asked of it.
type world struct {
	testing.TB
	store    *memdriver.Store
	client   *hasp.Client
	lists    atomic.Int64
	inspects atomic.Int64
	away     atomic.Bool             // an Inspect fails
	claims   map[string]driver.Claim // by owner
}

// counted counts what is asked of a store.
type counted struct {
	*memdriver.Store
	w *world
}

func (c counted) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	c.w.lists.Add(1)
	return c.Store.List(ctx, prefix)
}

func (c counted) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if c.w.inspects.Add(1); c.w.away.Load() {
		return driver.Info{}, errors.New("no answer")
	}
	return c.Store.Inspect(ctx, key)
}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, store: memdriver.New(), claims: map[string]driver.Claim{}}
	c, err := hasp.New(counted{w.store, w}, nil)
	must(t, err)
	w.client = c
	t.Cleanup(func() { _ = c.Close() })
	return w
}

// day is longer than any test, under whatever clock.
const day = 24 * time.Hour

// ask has somebody hold a key, or wait for it, and returns the owner.
func (w *world) ask(key string, l driver.Label) string {
	w.Helper()
	owner := rand.Text()
	w.claims[owner] = driver.Claim{Key: key, Owner: owner, Label: l.Encode()}
	w.try(owner)
	return owner
}

func (w *world) try(owner string) driver.Result {
	w.Helper()
	res, err := w.store.Try(context.Background(), driver.TryRequest{Claim: w.claims[owner], TTL: day, Queue: true, Patience: day})
	if err != nil {
		w.Fatal(err)
	}
	return res
}

// release ends what ask began.
func (w *world) release(owner string) {
	w.Helper()
	if err := w.store.Release(context.Background(), driver.ReleaseRequest{Claim: w.claims[owner], TTL: day, Settled: true}); err != nil {
		w.Fatal(err)
	}
}

// handOn has an owner release a key, and the next claim it.
func (w *world) handOn(owner, next string) {
	w.Helper()
	w.release(owner)
	if res := w.try(next); !res.Granted {
		w.Fatalf("it was not handed to %s: %+v", next, res)
	}
}

// local are options under which this machine may do everything.
func local() *Options { return &Options{Identify: Local(true)} }

// request returns a request from this machine, as curl sends it; headers are pairs.
func request(method, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:1234", "localhost:8390"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
		r.Header.Del("Host")
	}
	return r
}

func serve(h http.Handler, r *http.Request) (int, string, http.Header) {
	if strings.HasPrefix(r.URL.Path, "/events/") { // one that is served would not end
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		r = r.WithContext(ctx)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	body, _ := io.ReadAll(rec.Body)
	return rec.Code, string(body), rec.Header()
}

func (w *world) get(o *Options, path string) string {
	w.Helper()
	code, body, _ := serve(New(w.client, o), request("GET", path, ""))
	if code != 200 {
		w.Fatalf("GET %s: %d %s", path, code, body)
	}
	return body
}

var errTest = errors.New("the test says no")
