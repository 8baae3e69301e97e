// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

//go:embed openapi.json
var openAPIFile []byte

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPIFile)
}

// covers says whether a key is one of those that this dashboard is about.
func (s *server) covers(key string) bool { return strings.HasPrefix(key, s.Prefix) }

// listJSON is a page of the list, for programs.
type listJSON struct {
	At      time.Time  `json:"at"`
	Keys    int        `json:"keys"`
	Found   int        `json:"found"`
	Waiters int        `json:"waiters"`
	Page    int        `json:"page"`
	Pages   int        `json:"pages"`
	More    bool       `json:"more,omitempty"`
	Trouble string     `json:"trouble,omitempty"`
	Locks   []*keyJSON `json:"locks"`
}

func (s *server) apiLocks(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, http.StatusBadRequest, err)
		return
	}
	snap, err := s.poller.fresh(r.Context())
	if err != nil {
		refuse(w, r, http.StatusBadGateway, errors.New(trouble(err)))
		return
	}
	found := snap.view(q)
	entries, pages := q.page(found)
	l := listJSON{At: snap.at.UTC(), Keys: len(snap.entries), Found: len(found), Waiters: snap.waiters, Page: q.Page, Pages: pages,
		More: snap.more, Trouble: trouble(snap.err), Locks: []*keyJSON{}}
	for _, e := range entries {
		info := e.Info
		info.Holders, info.Queue, info.LookCommands, info.FreeCommands = nil, nil, nil, nil
		l.Locks = append(l.Locks, toKeyJSON(info))
	}
	writeJSON(w, http.StatusOK, l)
}

func (s *server) apiLock(w http.ResponseWriter, r *http.Request) {
	key, ok := s.keyParam(w, r, r.PathValue("id"))
	if !ok {
		return
	}
	e, err := s.poller.inspectOne(r.Context(), key)
	if err != nil {
		refuse(w, r, http.StatusBadGateway, errors.New(trouble(err)))
		return
	}
	writeJSON(w, http.StatusOK, toKeyJSON(e.Info))
}

// breakRequest is the body of a request to break a lock.
type breakRequest struct {
	Owner  string `json:"owner"`
	Reason string `json:"reason"`
}

// mostReason bounds a reason, in bytes.
const mostReason = 256

func (b *breakRequest) read(r *http.Request) error {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return errors.New("the body has to be application/json")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return errors.New("the body cannot be read, or is too long")
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(b); err != nil || d.More() {
		return errors.New(`the body has to be an object with "owner" and "reason", and nothing else`)
	}
	switch b.Reason = strings.TrimSpace(b.Reason); {
	case !driver.ValidOwner(b.Owner):
		return errors.New("owner has to be the 26 characters that the list of holders shows")
	case b.Reason == "" || len(b.Reason) > mostReason || !utf8.ValidString(b.Reason):
		return errors.New("reason has to say why, in at most 256 bytes")
	}
	return nil
}

// breakLimit bounds a break, which goes on when the reader has gone.
const breakLimit = 10 * time.Second

// brokenJSON is the answer to a break that took place.
type brokenJSON struct {
	Broken  bool     `json:"broken"`
	Warning string   `json:"warning,omitempty"`
	Now     *keyJSON `json:"now,omitempty"`
}

func (s *server) apiBreak(w http.ResponseWriter, r *http.Request) {
	key, ok := s.keyParam(w, r, r.PathValue("id"))
	if !ok {
		return
	}
	var body breakRequest
	if err := body.read(r); err != nil {
		refuse(w, r, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakLimit)
	defer cancel()
	rec := Record{ID: rand.Text()[:16], Actor: sender(r).Name, Action: "break", Key: key, Owner: body.Owner, Reason: body.Reason}
	if !sender(r).Break {
		_ = s.record(rec, "denied") // nothing is done either way
		refuse(w, r, http.StatusForbidden, errors.New("you may look, but not break locks"))
		return
	}
	info, err := s.client.Operator().Inspect(ctx, key)
	if err != nil {
		refuse(w, r, http.StatusBadGateway, errors.New("nothing was done: "+trouble(s.poller.explained(err))))
		return
	}
	rec.Fence = fenceOf(info, body.Owner)
	if err := s.record(rec, "attempt"); err != nil {
		refuse(w, r, http.StatusInternalServerError, errors.New("nothing was done: it cannot be recorded"))
		return
	}
	err = s.client.Operator().Break(ctx, key, body.Owner)
	outcome := "broken"
	switch {
	case errors.Is(err, hasp.ErrNotHeld):
		outcome = "not held"
	case err != nil:
		outcome = "failed: " + trouble(s.poller.explained(err))
	}
	recorded := s.record(rec, outcome)
	s.poller.relist()
	now := s.now(ctx, key)
	switch {
	case errors.Is(err, hasp.ErrNotHeld):
		writeJSON(w, http.StatusConflict, problem{Error: "nothing was done: that owner no longer has the key", Now: now})
	case err != nil:
		writeJSON(w, http.StatusBadGateway, problem{Error: "it may or may not have been broken: " + trouble(s.poller.explained(err)), Now: now})
	default:
		b := brokenJSON{Broken: true, Now: now}
		if recorded != nil {
			b.Warning = "it was broken, but that could not be recorded"
		}
		writeJSON(w, http.StatusOK, b)
	}
}

// now says how a key is held; nil when the store does not.
func (s *server) now(ctx context.Context, key string) *keyJSON {
	e, err := s.poller.inspectOne(ctx, key)
	if err != nil {
		return nil
	}
	return toKeyJSON(e.Info)
}

func (s *server) record(rec Record, outcome string) error {
	if s.Audit == nil {
		return nil
	}
	rec.Time, rec.Outcome = time.Now(), outcome
	return s.Audit(rec)
}

// fenceOf returns the fence of an owner's lease; 0 when it has none.
func fenceOf(info hasp.Info, owner string) uint64 {
	for _, l := range info.Holders {
		if l.Holder.Owner == owner {
			return l.Fence
		}
	}
	return 0
}
