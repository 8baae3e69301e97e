// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// heartbeat keeps proxies from ending a stream on which nothing happens; as often it is
// asked whether the viewer still may look.
const heartbeat = 5 * time.Second

var errStreams = errors.New("too many live views are open")

// stream begins an answer of server-sent events. It returns nil when there are too many.
func (s *server) stream(w http.ResponseWriter, r *http.Request) (st *stream) {
	select {
	case s.slots <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, r, http.StatusServiceUnavailable, errStreams)
		return nil
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would keep it back
	return &stream{w: w, out: http.NewResponseController(w), may: func() bool { return s.Identify(r).Read }, done: func() { <-s.slots }}
}

type stream struct {
	w    http.ResponseWriter
	out  *http.ResponseController
	may  func() bool // whether its reader may still look
	done func()
}

// send writes an event of JSON; nothing as a comment. A reader that takes nothing for
// answerLimit is left: it connects again when it can.
func (st *stream) send(event string, v any) error {
	_ = st.out.SetWriteDeadline(time.Now().Add(answerLimit)) // see guard
	text := ": here\n\n"
	if v != nil {
		text = fmt.Sprintf("event: %s\ndata: %s\n\n", event, encodeJSON(v))
	}
	if _, err := st.w.Write([]byte(text)); err != nil {
		return err
	}
	err := st.out.Flush()
	_ = st.out.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, also when nothing is written
	return err
}

// follow calls news whenever there may be something new, until it returns an error, or the
// reader has gone or may look no longer.
func (st *stream) follow(ctx context.Context, p *poller, news func(*snapshot) error) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		snap, changed := p.current()
		if news(snap) != nil {
			return
		}
	wait:
		select {
		case <-changed:
		case <-beat.C:
			if !st.may() || st.send("", nil) != nil {
				return
			}
			goto wait
		case <-ctx.Done():
			return
		}
	}
}

// listEvent is what changed of one page of the list.
type listEvent struct {
	Now     int64    `json:"now"` // by the clock of this server, in ms since 1970
	At      int64    `json:"at"`  // of the list; 0: there was none yet
	Keys    int      `json:"keys"`
	Found   int      `json:"found"` // by the filter
	Waiters int      `json:"waiters"`
	Held    int      `json:"held"`
	Longest int64    `json:"longest"` // since when the first of all waiters has waited; 0: not known
	Needy   int      `json:"needy"`   // keys that need a person, and the store where its latest list failed
	Pages   int      `json:"pages"`
	More    bool     `json:"more,omitempty"`    // there are more keys than are kept
	Trouble string   `json:"trouble,omitempty"` // why the latest list failed
	Order   []string `json:"order,omitempty"`   // the ids of all rows, where that changed
	Empty   bool     `json:"empty,omitempty"`   // there are no rows
	Rows    []row    `json:"rows,omitempty"`    // those that changed
}

// screen is what one stream has sent so far: at most a page.
type screen struct {
	keys []string
	ids  []string
	rows map[string]row
	last listEvent
}

// update returns what is to be sent, and whether there is anything.
func (c *screen) update(s *snapshot, q query) (ev listEvent, news bool) {
	found := s.view(q)
	entries, pages := q.page(found)
	rows := make(map[string]row, len(entries))
	ids, keys := make([]string, 0, len(entries)), make([]string, 0, len(entries))
	ev = listEvent{At: millis(s.at), Keys: len(s.entries), Found: len(found), Waiters: s.waiters, Held: s.held, Longest: millis(s.longest), Needy: s.needy, Pages: pages, More: s.more,
		Trouble: trouble(s.err), Empty: len(entries) == 0}
	if s.err != nil {
		ev.Needy++
	}
	for _, e := range entries {
		r := toRow(e)
		if old, ok := c.rows[r.ID]; !ok || old != r {
			ev.Rows = append(ev.Rows, r)
		}
		rows[r.ID] = r
		ids, keys = append(ids, r.ID), append(keys, e.Key)
	}
	if c.rows == nil || !slices.Equal(ids, c.ids) {
		ev.Order = ids
	}
	l := c.last
	news = c.rows == nil || ev.Order != nil || ev.Rows != nil || ev.At != l.At || ev.Keys != l.Keys || ev.Found != l.Found ||
		ev.Waiters != l.Waiters || ev.Held != l.Held || ev.Longest != l.Longest || ev.Needy != l.Needy || ev.More != l.More || ev.Trouble != l.Trouble
	c.rows, c.ids, c.keys, c.last = rows, ids, keys, ev
	c.last.Rows, c.last.Order = nil, nil
	return ev, news
}

func (s *server) locksEvents(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, http.StatusBadRequest, err)
		return
	}
	st := s.stream(w, r)
	if st == nil {
		return
	}
	defer st.done()
	defer s.poller.joinList()()
	c := &screen{}
	defer func() { s.poller.shows(c.keys, nil) }()
	if st.send("", nil) != nil { // the header
		return
	}
	st.follow(r.Context(), s.poller, func(snap *snapshot) error {
		if snap.at.IsZero() && snap.err == nil {
			return nil // the first list is under way
		}
		old := c.keys
		ev, news := c.update(snap, q)
		if !slices.Equal(old, c.keys) {
			s.poller.shows(old, c.keys)
		}
		if !news {
			return nil
		}
		ev.Now = time.Now().UnixMilli()
		return st.send("list", ev)
	})
}

// lockEvent is all about a key, and what is new of its history.
type lockEvent struct {
	Now     int64     `json:"now"`
	Lock    *lockView `json:"lock,omitempty"`
	Trouble string    `json:"trouble,omitempty"`
	Changes []change  `json:"changes,omitempty"`
}

func (s *server) lockEvents(w http.ResponseWriter, r *http.Request) {
	key, ok := s.keyParam(w, r, r.URL.Query().Get("key"))
	if !ok {
		return
	}
	st := s.stream(w, r)
	if st == nil {
		return
	}
	defer st.done()
	watch, leave := s.poller.joinKey(key)
	defer leave()
	if st.send("", nil) != nil {
		return
	}
	version, seq := 0, int64(0)
	st.follow(r.Context(), s.poller, func(*snapshot) error {
		ev, v := s.poller.lockEvent(watch, version, seq)
		if v == version {
			return nil
		}
		if version = v; len(ev.Changes) > 0 {
			seq = ev.Changes[len(ev.Changes)-1].Seq
		}
		return st.send("lock", ev)
	})
}

// lockEvent returns what a watch has that is newer than version and seq.
func (p *poller) lockEvent(w *watch, version int, seq int64) (lockEvent, int) {
	p.mu.Lock()
	e, err, v := w.entry, w.err, w.version
	var changes []change
	for _, c := range w.log {
		if c.Seq > seq {
			changes = append(changes, c)
		}
	}
	p.mu.Unlock()
	if v == version {
		return lockEvent{}, v
	}
	ev := lockEvent{Now: time.Now().UnixMilli(), Trouble: trouble(err), Changes: changes}
	if e != nil {
		l := toLockView(e)
		ev.Lock = &l
	}
	return ev, v
}

// keyParam returns the key that a request names, or answers why not.
func (s *server) keyParam(w http.ResponseWriter, r *http.Request, text string) (string, bool) {
	key, err := decodeKey(text)
	switch {
	case err != nil:
		refuse(w, r, http.StatusBadRequest, err)
	case !s.covers(key):
		refuse(w, r, http.StatusNotFound, errors.New("this page is not about that key: it shows those that start with another text only"))
	default:
		return key, true
	}
	return "", false
}
