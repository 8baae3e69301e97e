// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"embed"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/people"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// pages are read when the first is shown: most programs that have them show none.
var pages = sync.OnceValue(func() *templates { return read(templateFiles, pageFuncs()) })

// pageFuncs are what the templates call.
func pageFuncs() map[string]any {
	return map[string]any{
		"ago": func(ms int64, now time.Time) string {
			if ms == 0 {
				return "–"
			}
			return people.HeldFor(time.UnixMilli(ms), now)
		},
		"left": func(ms int64, now time.Time) string {
			switch ms {
			case 0:
				return "–"
			case -1:
				return "never ends"
			}
			return people.Short(time.UnixMilli(ms).Sub(now))
		},
		"clock": func(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05") },
		"shown": driver.Printable, "commands": commands,
		// What a part of a page needs, under names.
		"pair": func(r row, now time.Time) any {
			return struct {
				Row row
				Now time.Time
			}{r, now}
		},
		"holding": func(p person, now time.Time, breaks bool) any { return personPart{p, now, breaks, true} },
		"waiting": func(p person, now time.Time, breaks bool) any { return personPart{p, now, breaks, false} },
	}
}

type personPart struct {
	P      person
	Now    time.Time
	Breaks bool // the viewer may break it
	Holds  bool // else it waits
}

func static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := staticFiles.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	_, _ = w.Write(b)
}

// frame is what all pages have.
type frame struct {
	Title  string // of the store
	Prefix string
	Page   string // which of the pages it is
	Who    Identity
	Now    time.Time
	NowMS  int64
}

func (s *server) frame(r *http.Request, page string) frame {
	now := time.Now()
	return frame{Title: driver.Printable(s.Title), Prefix: driver.Printable(s.Prefix), Page: page, Who: sender(r), Now: now, NowMS: now.UnixMilli()}
}

func (s *server) render(w http.ResponseWriter, name string, data any) {
	var b bytes.Buffer // a panic in the middle would leave half a page
	pages().fill(&b, name, data)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// choice is one of the choices of a filter.
type choice struct {
	Value, Text string
	Chosen      bool
}

func choices(chosen string, pairs ...string) (all []choice) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, choice{pairs[i], pairs[i+1], pairs[i] == chosen})
	}
	return all
}

type locksPage struct {
	frame
	Query    query
	States   []choice
	Columns  []heading
	Rows     []row
	Blank    row // of which the script makes new ones
	Event    listEvent
	Previous string
	Next     string
}

// heading is the head of a column.
type heading struct {
	Title, Class string
	Link         string // sorts by it; empty: that is not possible
	Sorted       string // which way it is, as ARIA has it; empty: it is not
}

// headings are those of the list, with the names that hasp ls has.
func (q query) headings() (all []heading) {
	for _, h := range []struct{ title, class, sort, way string }{
		{"Key", "", "key", "ascending"}, {"Mode", "wide", "", ""}, {"Holder", "", "", ""}, {"Held", "num since", "held", "descending"}, {"Left", "num", "left", "ascending"},
		{"Fence", "num wide", "", ""}, {"Waiters", "num", "waiters", "descending"}, {"Reason", "wide", "", ""},
	} {
		add, by := heading{Title: h.title, Class: h.class}, q
		if by.Sort = h.sort; h.sort == q.Sort {
			add.Sorted = h.way
		}
		if h.sort != "" {
			add.Link = by.link(1)
		}
		all = append(all, add)
	}
	return all
}

func (s *server) locksPage(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, http.StatusBadRequest, err)
		return
	}
	snap, err := s.poller.fresh(r.Context())
	if snap == nil {
		snap = newSnapshot(nil)
		snap.err = err
	}
	p := locksPage{frame: s.frame(r, "locks"), Query: q, Columns: q.headings(),
		States: choices(q.State, "all", "all keys", "waited", "waited for", "foreign", "foreign holders", "endless", "without an end")}
	p.Event, _ = (&screen{}).update(snap, q)
	p.Rows = p.Event.Rows
	if q.Page > 1 {
		p.Previous = q.link(min(q.Page-1, p.Event.Pages))
	}
	if q.Page < p.Event.Pages {
		p.Next = q.link(q.Page + 1)
	}
	s.render(w, "locks.html", p)
}

type lockPage struct {
	frame
	Lock    lockView
	Trouble string
	Blank   person
}

func (s *server) lockPage(w http.ResponseWriter, r *http.Request) {
	key, ok := s.keyParam(w, r, r.URL.Query().Get("key"))
	if !ok {
		return
	}
	p := lockPage{frame: s.frame(r, "lock")}
	e, err := s.poller.inspectOne(r.Context(), key)
	if err != nil {
		e = newEntry(driver.Info{Key: key}, p.Now)
		p.Trouble = trouble(err)
	}
	p.Lock = toLockView(e)
	if err != nil {
		p.Lock.State = "not known"
	}
	s.render(w, "lock.html", p)
}

// find leads to the page of a key that a user typed.
func (s *server) find(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("name")
	if driver.CheckKey(key) != nil {
		refuse(w, r, http.StatusBadRequest, errKey)
		return
	}
	w.Header().Set("Location", "lock?"+url.Values{"key": {encodeKey(key)}}.Encode()) // relative: the path above is unknown
	w.WriteHeader(http.StatusSeeOther)
}

// signIn lets a reader sign in anew, as a user that may break: the browser asks.
func (s *server) signIn(w http.ResponseWriter, r *http.Request) {
	if !sender(r).Break {
		challenge(w, r)
		return
	}
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// report is what Doctor or Leaks found out about the store, which takes time and work.
type report[T any] struct {
	ask func(context.Context) ([]T, error)

	mu    sync.Mutex // held while it asks; others wait for the answer
	found []T
	err   error
	at    time.Time
}

const (
	reportAge   = 30 * time.Second
	reportLimit = 30 * time.Second
)

func (p *report[T]) get(ctx context.Context) ([]T, time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) > reportAge || p.at.IsZero() {
		// Others wait for it, too: it goes on when this reader has gone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportLimit)
		defer cancel()
		p.found, p.err = p.ask(ctx)
		p.at = time.Now()
	}
	return p.found, p.at, p.err
}

type reportPage[T any] struct {
	frame
	Found   []T
	At      int64
	Trouble string
	Level   operator.Level // of Doctor's verdict
	Verdict string
}

func (s *server) doctorPage(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * reportLimit))
	found, at, err := s.doctor.get(r.Context())
	p := reportPage[Finding]{frame: s.frame(r, "doctor"), Found: slices.Clone(found), At: at.UnixMilli(), Trouble: trouble(err)}
	p.Level, p.Verdict = verdict(p.Found, p.Trouble)
	s.render(w, "doctor.html", p)
}

// leak is a Leak with the id of its key.
type leak struct {
	Leak
	ID string
}

func (s *server) leaksPage(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * reportLimit))
	found, at, err := s.leaks.get(r.Context())
	p := reportPage[leak]{frame: s.frame(r, "leaks"), At: at.UnixMilli(), Trouble: trouble(err)}
	for _, l := range found {
		id := ""
		if driver.CheckKey(l.Key) == nil && s.covers(l.Key) {
			id = encodeKey(l.Key)
		}
		p.Found = append(p.Found, leak{l, id})
	}
	s.render(w, "leaks.html", p)
}
