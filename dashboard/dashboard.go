// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package dashboard shows the locks of a store in a browser, live, with their holders and
// waiters, and a JSON API beside it. It has no other dependency than the standard library,
// and its files are embedded.
//
//	http.Handle("/locks/", http.StripPrefix("/locks", dashboard.New(client, nil)))
//
// [New] without options serves this machine alone, and only to look; a look at Doctor acquires a key of its own, once in half a
// minute at most. Which other users may
// look, and which may break a lock, is what [Options.Identify] says: by [Tokens], by
// [Certificates], or by whatever the program knows its users by.
//
// Nothing is asked of the store while there is no viewer. However many there are, it is
// asked once: the keys are listed as hasp ls lists them, and between two lists only the keys
// on a viewer's screen are inspected.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver/operator"
)

// Options of New. The zero value serves this machine alone, and breaks nothing.
type Options struct {
	// Title names the store on the pages, such as "redis, production". It must have no
	// password in it. Empty: the name of the engine.
	Title string
	// Prefix limits everything to the keys that start with it: others are neither shown
	// nor broken. Empty: all keys.
	Prefix string
	// Identify returns the sender of a request, and what it may do. It is called for each request
	// except that for /healthz, and every five seconds for that of a live view, which ends
	// when it may no longer look; by several goroutines at once. nil: [Local](false).
	Identify func(*http.Request) Identity
	// Hosts are the host names, without a port, by which the handler may be asked for, beside
	// localhost and every IP address: a page of another site that points its own name at this
	// server is refused. A "*" allows every name, for a server behind another that checks it.
	Hosts []string
	// Audit is called before a lock is broken, with the outcome "attempt", and after it with
	// what came of it. If it returns an error the first time, nothing is broken. It is
	// called by several goroutines at once. nil: nothing is recorded.
	Audit func(Record) error
	// Metrics is served at /metrics, to each sender that may look. nil: how many keys the store has,
	// held, waited for, foreign and without an end, in the text format of Prometheus.
	Metrics http.Handler
	// Doctor examines the store for the page of that name, at most once in half a minute,
	// and never twice at once. nil: what the engine itself examines, and a lock that it acquires below Prefix.
	Doctor func(context.Context) ([]Finding, error)
	// Leaks finds what was left in the store, for the page of that name, as rarely as
	// Doctor. nil: what the engine itself finds, and what was held by processes of this host that have ended.
	Leaks func(context.Context) ([]Leak, error)
	// Explain says in words for people what an error of the store means, and what to look at. It is called by several
	// goroutines at once. nil: what the error says itself.
	Explain func(error) string
	// Every is the least time between two looks at the store while there is a viewer; the
	// whole list is asked for more rarely where that takes long. 0 means a second.
	Every time.Duration
	// Streams is how many live views may be open at once. 0 means 256.
	Streams int
}

// Record says which actor broke which lock of which owner, and why.
type Record struct {
	Time    time.Time `json:"time"`
	ID      string    `json:"id"`     // joins the records of one break
	Actor   string    `json:"actor"`  // Identity.Name
	Action  string    `json:"action"` // "break"
	Key     string    `json:"key"`    // any bytes
	Owner   string    `json:"owner"`
	Fence   uint64    `json:"fence,omitempty"` // of the lease; 0 when not known, or of a waiter
	Reason  string    `json:"reason"`
	Outcome string    `json:"outcome"` // attempt, broken, not held, denied; or failed: and why
}

// Finding is what an examination of the store found.
type Finding struct {
	Level operator.Level // ok, warn or fail
	Node  string         // the server it is about; empty for the whole store
	Check string         // what was looked at, in a word
	Text  string         // what was found, and what to do
}

// Leak is something in the store that no owner stands behind any more.
type Leak struct {
	Key  string // the key of the lock, any bytes; empty where there is none
	What string // what was found, and why it is taken for a leak
	Fix  string // the command that removes it; empty where there is none
}

// New returns the handler of the pages and of the API. It works below any path, behind
// http.StripPrefix. nil options mean the defaults. The client stays the caller's: close it
// after the server. The handler has no goroutines while there is no viewer; its live views end
// with the contexts of their requests, so let the server's BaseContext end when it is to
// stop.
func New(c *hasp.Client, o *Options) http.Handler {
	s := newServer(c, o)
	return s.guard(s.routes())
}

func newServer(c *hasp.Client, o *Options) *server {
	s := &server{client: c}
	if o != nil {
		s.Options = *o
	}
	if s.Identify == nil {
		s.Identify = Local(false)
	}
	if s.Every <= 0 {
		s.Every = time.Second
	}
	if s.Streams <= 0 {
		s.Streams = 256
	}
	if s.Title == "" {
		s.Title = c.Traits().Engine
	}
	s.slots = make(chan struct{}, s.Streams)
	s.poller = newPoller(c, s.Prefix, s.Every, s.Explain)
	if s.Doctor == nil {
		s.Doctor = s.examine
	}
	if s.Leaks == nil {
		s.Leaks = s.leftovers
	}
	s.doctor, s.leaks = &report[Finding]{ask: s.Doctor}, &report[Leak]{ask: s.Leaks}
	return s
}

// server is what all handlers share.
type server struct {
	Options
	client *hasp.Client
	poller *poller
	slots  chan struct{} // one for each open stream
	doctor *report[Finding]
	leaks  *report[Leak]
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.locksPage)
	mux.HandleFunc("GET /lock", s.lockPage)
	mux.HandleFunc("GET /find", s.find)
	mux.HandleFunc("GET /signin", s.signIn)
	mux.HandleFunc("GET /events/locks", s.locksEvents)
	mux.HandleFunc("GET /events/lock", s.lockEvents)
	mux.HandleFunc("GET /static/{file}", static)
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /api/v1/openapi.json", openAPI)
	mux.HandleFunc("GET /api/v1/locks", s.apiLocks)
	mux.HandleFunc("GET /api/v1/locks/{id}", s.apiLock)
	mux.HandleFunc("POST /api/v1/locks/{id}/break", s.apiBreak)
	// What is asked wrongly of the API is answered as everything there is.
	for path, allowed := range map[string]string{"/api/v1/locks": "GET, HEAD", "/api/v1/locks/{id}": "GET, HEAD", "/api/v1/locks/{id}/break": "POST"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allowed)
			refuse(w, r, http.StatusMethodNotAllowed, fmt.Errorf("this takes %s only", allowed))
		})
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusNotFound, errors.New("there is no such thing"))
	})
	mux.HandleFunc("GET /doctor", s.doctorPage)
	mux.HandleFunc("GET /leaks", s.leaksPage)
	if s.Metrics == nil {
		s.Metrics = http.HandlerFunc(s.inventory)
	}
	mux.Handle("GET /metrics", s.Metrics)
	return mux
}

// healthy says that the process answers. It says nothing about the store, since a store that
// is away is no reason to restart what shows that.
func healthy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
