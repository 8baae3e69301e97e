// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

// mostChanges bounds the history of a key, mostQueue what is shown of its queue.
const (
	mostChanges = 100
	mostQueue   = 100
)

// change is something that happened to a key while it was watched.
type change struct {
	Seq  int64  `json:"seq"` // grows, and is never used again: a view that connects anew knows what it has
	At   int64  `json:"at"`  // when it was noticed, in ms since 1970
	Text string `json:"text"`
}

// watch is a key that a viewer looks at, with what happened since. Its fields belong to
// the poller's mu.
type watch struct {
	viewers int
	entry   *entry // nil before the first answer
	err     error
	log     []change // the newest mostChanges
	version int
}

// joinKey says that one more looks at a key, until leave is called. The history begins
// with the first, and ends with the last.
func (p *poller) joinKey(key string) (w *watch, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w = p.watched[key]; w == nil {
		w = &watch{}
		p.watched[key] = w
	}
	w.viewers++
	p.start()
	return w, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if w.viewers--; w.viewers == 0 {
			delete(p.watched, key)
		}
		p.leave()
	}
}

// note takes an answer, and says whether it is news.
func (w *watch) note(e *entry, err error, now time.Time, seq *int64) bool {
	if err != nil {
		news := w.err == nil || w.err.Error() != err.Error()
		w.err = err
		if news {
			w.version++
		}
		return news
	}
	before, back := w.entry, w.err != nil
	if e.steady(before); before != nil && !back && same(e, before) && sameLeases(e, before) && slices.Equal(e.Queue, before.Queue) {
		return false
	}
	if before != nil {
		for _, text := range happened(before, e) {
			*seq++
			w.log = append(w.log, change{*seq, now.UnixMilli(), text})
		}
		if over := len(w.log) - mostChanges; over > 0 {
			w.log = slices.Delete(w.log, 0, over)
		}
	}
	w.entry, w.err = e, nil
	w.version++
	return true
}

// sameLeases says whether two entries have the same holders, and no lease was renewed.
func sameLeases(a, b *entry) bool {
	return slices.EqualFunc(a.Holders, b.Holders, func(x, y driver.Holding) bool {
		return x.Holder == y.Holder && x.Fence == y.Fence && (x.Left < 0) == (y.Left < 0)
	}) && slices.EqualFunc(a.untils, b.untils, time.Time.Equal)
}

// happened says what must have happened between two looks. What came and went in between
// is not known.
func happened(before, now *entry) (texts []string) {
	had, has := owners(nil, before.Holders), owners(nil, now.Holders)
	waited, waits := owners(before.Queue, nil), owners(now.Queue, nil)
	for _, l := range before.Holders {
		if !has[ownerOf(l.Holder)] {
			texts = append(texts, people.Name(l.Holder)+" no longer holds it")
		}
	}
	for _, l := range now.Holders {
		if had[ownerOf(l.Holder)] {
			continue
		}
		text := people.Name(l.Holder) + " holds it"
		if waited[ownerOf(l.Holder)] {
			text += ", from the queue"
		}
		if l.Fence > 0 {
			text += fmt.Sprintf(", fence %d", l.Fence)
		}
		texts = append(texts, text)
	}
	var came, left []string
	for _, h := range now.Queue {
		if !waited[ownerOf(h)] {
			came = append(came, people.Name(h)+" waits for it")
		}
	}
	for _, h := range before.Queue {
		if id := ownerOf(h); !waits[id] && !has[id] {
			left = append(left, people.Name(h)+" no longer waits")
		}
	}
	return append(append(texts, few(came, "%d more wait for it")...), few(left, "%d more no longer wait")...)
}

// few returns the first texts, and how many more there are.
func few(texts []string, more string) []string {
	const most = 3
	if len(texts) <= most {
		return texts
	}
	return append(texts[:most:most], fmt.Sprintf(more, len(texts)-most))
}

// owners returns the set of the waiters and holders.
func owners(queue []hasp.Holder, leases []driver.Holding) map[string]bool {
	set := make(map[string]bool, len(queue)+len(leases))
	for _, h := range queue {
		set[ownerOf(h)] = true
	}
	for _, l := range leases {
		set[ownerOf(l.Holder)] = true
	}
	return set
}

// ownerOf tells a holder or waiter from others; a foreign holder by its value.
func ownerOf(h hasp.Holder) string {
	if h.Foreign {
		return "foreign " + h.Label
	}
	return h.Owner
}
