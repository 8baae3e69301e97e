// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/people"
)

const (
	// silence is how long nothing is written about a wait: most are over by then.
	silence = 400 * time.Millisecond
	// rest is the least time between two lines about a wait.
	rest = 2 * time.Second
	// answerDelay is how long a healthy store may take for its first answer.
	answerDelay = 2 * time.Second
)

// watcher reports a wait: which owner is in the way of which key, or that the store is, and
// each change of that.
type watcher struct {
	rep   *report
	store string // for people
	never bool   // -n: it does not wait
	began time.Time
	most  time.Duration // how long it may last; 0: for ever

	mu    sync.Mutex
	over  bool
	said  bool // something was said of this wait
	next  *entry
	last  string // what the latest line was about
	about string // what next is about
	timer *time.Timer
	first *time.Timer // reports that there is no answer yet
}

func newWatcher(rep *report) *watcher {
	return &watcher{rep: rep}
}

// begin begins a wait, after the end of the one before.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began, w.over, w.said, w.last, w.next, w.timer = time.Now(), w.never, false, "", nil, nil
	w.first = time.AfterFunc(answerDelay, w.unanswered)
}

// unanswered reports that the store has not answered the first request.
func (w *watcher) unanswered() {
	w.mu.Lock()
	answered := w.next != nil
	w.mu.Unlock()
	if !answered {
		w.away("away", entry{Waited: people.Seconds(answerDelay)}, "no answer yet")
	}
}

// refused reports the holder that is in the way.
func (w *watcher) refused(e *event.Event) {
	about := e.Key + " " + e.Holder.Owner
	if e.Holder.Foreign {
		about = e.Key + " foreign " + e.Holder.Label
	}
	w.report(about, entry{
		Event: "waiting", Key: e.Key, Holder: people.Holding(e.Holder), Ahead: e.Ahead, Left: people.Seconds(e.Left), Waited: people.Seconds(e.Waited),
		Message: fmt.Sprintf("waiting for %s, which %s", base.Quote(e.Key), base.Obstacle(e.Holder, e.Left, e.Ahead)),
	})
}

// troubled reports an error of the store.
func (w *watcher) troubled(e *event.Event) {
	about, why := "held back", reason(e.Err)
	if e.Kind == event.Trouble {
		about = "away"
		if err := (*hasp.Error)(nil); errors.As(e.Err, &err) {
			about += fmt.Sprint(err.Class) // each kind is said once
		}
	}
	said := entry{Key: e.Key, Error: e.Err.Error(), Left: people.Seconds(e.Left), Waited: people.Seconds(e.Waited)}
	if e.Kind == event.Trouble && e.Left > 0 {
		said.asked = time.Now().Add(e.Left)
	}
	w.away(about, said, why)
}

// away reports that the wait is for the store.
func (w *watcher) away(about string, e entry, why string) {
	e.Event, e.Message = "trouble", fmt.Sprintf("waiting for the store %s: %s", w.store, base.InFile(why, w.store))
	w.report(about, e)
}

// report reports e once the wait has lasted for a while, and not too often.
func (w *watcher) report(about string, e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next, w.about = &e, about
	if w.over || w.timer != nil || w.said && about == w.last {
		return
	}
	w.timer = time.AfterFunc(time.Until(w.began.Add(silence)), w.flush)
}

// flush reports the latest, and allows the next line after a rest.
func (w *watcher) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.next == nil || w.said && w.about == w.last {
		w.timer = nil
		return
	}
	e := *w.next
	ends, how := e.asked, "asking again for"
	if w.most > 0 {
		limit := w.began.Add(w.most)
		e.Wait = people.Seconds(max(time.Until(limit), 0))
		if ends.IsZero() || limit.Before(ends) {
			ends, how = limit, "giving up in"
		}
	}
	if !ends.IsZero() { // whichever end of the wait comes first
		e.Message += fmt.Sprintf("; %s %s", how, people.Short(time.Until(ends)))
	}
	w.rep.say(normal, e)
	w.said, w.last = true, w.about
	w.timer = time.AfterFunc(rest, w.flush)
}

// end says nothing more, and returns whether anything was said.
func (w *watcher) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.first != nil {
		w.first.Stop()
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.said
}
