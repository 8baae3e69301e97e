// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
)

// screenOf is a browser that looks at a stream: it keeps what it was sent. With stuck set it
// takes nothing more.
type screenOf struct {
	mu       sync.Mutex
	code     int
	lists    []listEvent
	locks    []lockEvent
	stuck    bool
	deadline time.Time
	cancel   context.CancelFunc
	done     chan struct{}
}

func (s *screenOf) Header() http.Header { return http.Header{} }
func (s *screenOf) Flush()              {}
func (s *screenOf) WriteHeader(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = code
}

// seen returns what it was sent by now.
func (s *screenOf) seen() (lists []listEvent, locks []lockEvent, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists), slices.Clone(s.locks), s.code
}

func (s *screenOf) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return nil
}

func (s *screenOf) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck {
		left := time.Until(s.deadline)
		s.mu.Unlock()
		time.Sleep(left)
		s.mu.Lock()
		return 0, os.ErrDeadlineExceeded
	}
	for _, line := range strings.Split(string(p), "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if strings.Contains(string(p), "event: list\n") {
			var ev listEvent
			if err := json.Unmarshal([]byte(data), &ev); err != nil {
				return 0, err
			}
			s.lists = append(s.lists, ev)
		} else {
			var ev lockEvent
			if err := json.Unmarshal([]byte(data), &ev); err != nil {
				return 0, err
			}
			s.locks = append(s.locks, ev)
		}
	}
	return len(p), nil
}

// open opens a stream, within a bubble of synctest.
func open(h http.Handler, path string) *screenOf {
	s := &screenOf{done: make(chan struct{})}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		h.ServeHTTP(s, request("GET", path, "").WithContext(ctx))
	}()
	return s
}

func (s *screenOf) close() {
	s.cancel()
	<-s.done
}

// However many look, the store is asked once; and not at all when nobody does.
func TestNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ask("k", label("web-1"))
		h := New(w.client, local())
		synctest.Wait()
		time.Sleep(time.Hour)
		if n := w.lists.Load() + w.inspects.Load(); n != 0 {
			t.Errorf("nobody looks, and it asked %d times", n)
		}
		var all []*screenOf
		for range 100 {
			all = append(all, open(h, "/events/locks"))
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if n := w.lists.Load(); n < 5 || n > 12 {
			t.Errorf("100 look for ten seconds, and it listed %d times", n)
		}
		for _, s := range all {
			if lists, _, _ := s.seen(); len(lists) == 0 || len(lists[0].Rows) != 1 || lists[0].Rows[0].Key != "k" {
				t.Errorf("one sees %+v", lists)
			}
			s.close()
		}
		synctest.Wait()
		n := w.lists.Load() + w.inspects.Load()
		time.Sleep(time.Hour)
		if now := w.lists.Load() + w.inspects.Load(); now != n {
			t.Errorf("nobody looks any more, and it asked %d times", now-n)
		}
	})
}

// A stream sends what changed of the page that it shows, and nothing else.
func TestStreamSendsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var owners []string
		for i := range 60 {
			owners = append(owners, w.ask(fmt.Sprintf("k%02d", i), label("web-1")))
		}
		s := open(New(w.client, local()), "/events/locks")
		defer s.close()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		lists, _, _ := s.seen()
		if len(lists[0].Rows) != 50 || len(lists[0].Order) != 50 || lists[0].Pages != 2 || lists[0].Keys != 60 {
			t.Fatalf("the first has %d rows: %+v", len(lists[0].Rows), lists[0])
		}
		for _, ev := range lists[1:] {
			if ev.Rows != nil || ev.Order != nil {
				t.Errorf("nothing changed, and it sent %+v", ev)
			}
		}
		n := len(lists)
		second := w.ask("k07", label("web-2")) // waits
		w.release(owners[59])                  // is on the next page
		time.Sleep(3 * time.Second)
		synctest.Wait()
		lists, _, _ = s.seen()
		rows := 0
		for _, ev := range lists[n:] {
			for _, r := range ev.Rows {
				if rows++; r.Key != "k07" || r.Waiters != 1 {
					t.Errorf("it sent %+v", r)
				}
			}
			if ev.Order != nil {
				t.Errorf("it sent the order %v", ev.Order)
			}
		}
		if last := lists[len(lists)-1]; rows != 1 || last.Keys != 59 || last.Waiters != 1 {
			t.Errorf("it sent %d rows, at last %+v", rows, last)
		}
		n = len(lists)
		w.handOn(owners[7], second)
		w.release(owners[0])
		time.Sleep(3 * time.Second)
		synctest.Wait()
		lists, _, _ = s.seen()
		got := map[string]string{}
		var order []string
		for _, ev := range lists[n:] {
			for _, r := range ev.Rows {
				got[r.Key] = r.Holder
			}
			if ev.Order != nil {
				order = ev.Order
			}
		}
		if len(got) != 2 || !strings.HasPrefix(got["k07"], "web-2") || got["k50"] == "" || len(order) != 50 || order[0] != encodeKey("k01") {
			t.Errorf("it sent %v, and the order %v", got, order)
		}
	})
}

// The page of a key shows its queue, and what happened while somebody looks.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		owner := w.ask("k", label("web-1"))
		h := New(w.client, local())
		s := open(h, "/events/lock?key="+encodeKey("k"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		second := w.ask("k", label("web-2"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.handOn(owner, second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.release(second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, locks, _ := s.seen()
		var got []string
		for _, ev := range locks {
			for _, c := range ev.Changes {
				got = append(got, c.Text)
			}
		}
		want := []string{"web-2 (pid 42, user app) waits for it", "web-1 (pid 42, user app) no longer holds it",
			"web-2 (pid 42, user app) holds it, from the queue, fence ", "web-2 (pid 42, user app) no longer holds it"}
		if len(got) != len(want) {
			t.Fatalf("it says %q", got)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("it says %q, want %q", got[i], want[i])
			}
		}
		if last := locks[len(locks)-1].Lock; last.State != "free" || len(last.Holders) != 0 {
			t.Errorf("at last it is %+v", last)
		}
		if w.lists.Load() != 0 {
			t.Error("for the page of one key it listed all")
		}
		// Whoever comes later sees what the first saw; after the last, it begins anew.
		late := open(h, "/events/lock?key="+encodeKey("k"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, lateLocks, _ := late.seen()
		if n := len(lateLocks[0].Changes); n != len(want) {
			t.Errorf("a second viewer sees %d changes", n)
		}
		late.close()
		s.close()
		again := open(h, "/events/lock?key="+encodeKey("k"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, againLocks, _ := again.seen()
		if len(againLocks) != 1 || againLocks[0].Changes != nil {
			t.Errorf("after all have left: %+v", againLocks)
		}
		again.close()
	})
}

// After an hour a view costs what it cost at first: of what changes all the time, no more
// is kept than can be seen.
func TestAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		server := newServer(w.client, local())
		h := server.guard(server.routes())
		w.ask("stays", label("web-1"))
		list, page := open(h, "/events/locks?sort=waiters"), open(h, "/events/lock?key="+encodeKey("k"))
		for i := range 900 {
			owner := w.ask("k", label(fmt.Sprint("web-", i)))
			other := w.ask(fmt.Sprint("once/", i), label("web-1"))
			time.Sleep(4 * time.Second)
			synctest.Wait()
			w.release(owner)
			w.release(other)
		}
		_, pageLocks, _ := page.seen()
		for _, ev := range pageLocks {
			if len(ev.Changes) > mostChanges {
				t.Fatalf("it sent %d changes at once", len(ev.Changes))
			}
		}
		// A late viewer gets what is kept.
		late := open(h, "/events/lock?key="+encodeKey("k"))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		_, lateLocks, _ := late.seen()
		if n := len(lateLocks[0].Changes); n != mostChanges {
			t.Errorf("%d changes are kept", n)
		}
		p := server.poller
		p.mu.Lock()
		if len(p.screens) > 2 || len(p.watched) != 1 || len(p.snap.entries) > 2 || len(p.snap.views.all) > 1 {
			t.Errorf("it keeps %d keys of screens, %d pages, %d entries", len(p.screens), len(p.watched), len(p.snap.entries))
		}
		p.mu.Unlock()
		late.close()
		list.close()
		page.close()
		if len(p.screens) > 0 || len(p.watched) > 0 {
			t.Errorf("after all have left it keeps %v and %v", p.screens, p.watched)
		}
	})
}

// A live view ends when whoever looks may look no longer, whatever else happens on it.
func TestStreamOfRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ask("k", label("web-1"))
		var revoked atomic.Bool
		h := New(w.client, &Options{Identify: func(r *http.Request) Identity {
			return Identity{Name: "bob", Read: !revoked.Load()}
		}})
		for _, path := range []string{"/events/locks", "/events/lock?key=" + encodeKey("k")} {
			revoked.Store(false)
			s := open(h, path)
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case <-s.done:
				t.Fatalf("%s: it ended although bob may look", path)
			default:
			}
			revoked.Store(true)
			time.Sleep(heartbeat + time.Millisecond)
			synctest.Wait()
			select {
			case <-s.done:
			default:
				t.Errorf("%s: it goes on although bob may look no longer", path)
			}
			s.close()
		}
	})
}

// No more streams are open than may be, and those who are refused can come again.
func TestThousandViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 200 {
			w.ask(fmt.Sprint("k", i), label("web-1"))
		}
		o := local()
		o.Streams = 100
		h := New(w.client, o)
		var all []*screenOf
		for i := range 1000 {
			all = append(all, open(h, fmt.Sprintf("/events/locks?page=%d", i%4+1)))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		served, refused := 0, 0
		for _, s := range all {
			switch lists, _, code := s.seen(); {
			case code == 503 && len(lists) == 0:
				refused++
			case len(lists) > 0 && len(lists[0].Rows) == 50:
				served++
			}
		}
		if served != 100 || refused != 900 || w.lists.Load() > 7 {
			t.Errorf("%d are served and %d refused, with %d lists", served, refused, w.lists.Load())
		}
		for _, s := range all {
			s.close()
		}
		s := open(h, "/events/locks")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if lists, _, _ := s.seen(); len(lists) == 0 {
			t.Error("after all have left there is no place")
		}
		s.close()
	})
}

// A reader that takes nothing is left, and holds up nobody.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ask("k", label("web-1"))
		o := local()
		o.Streams = 2
		h := New(w.client, o)
		slow, quick := open(h, "/events/locks"), open(h, "/events/locks")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		slow.mu.Lock()
		slow.stuck = true
		slow.mu.Unlock()
		before, _, _ := quick.seen()
		for i := range 10 {
			w.ask(fmt.Sprint("k", i), label("web-1"))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if now, _, _ := quick.seen(); len(now)-len(before) < 8 {
			t.Errorf("the other was sent %d events in ten seconds", len(now)-len(before))
		}
		time.Sleep(answerLimit)
		select {
		case <-slow.done:
		default:
			t.Error("it still waits for a reader that takes nothing")
		}
		slow.close()
		quick.close()
	})
}

// Over a connection: an event comes, and a reader that leaves is noticed.
func TestStreamOverHTTP(t *testing.T) {
	w := newWorld(t)
	owner := w.ask("k", label("web-1"))
	second := w.ask("k", label("web-2"))
	o := local()
	o.Every, o.Streams = 5*time.Millisecond, 1
	server := httptest.NewServer(New(w.client, o))
	defer server.Close()
	resp, err := http.Get(server.URL + "/events/locks")
	must(t, err)
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("its header is %v", resp.Header)
	}
	in, released := bufio.NewScanner(resp.Body), false
	for in.Scan() {
		if strings.Contains(in.Text(), `"holder":"web-1`) && !released {
			released = true
			w.handOn(owner, second)
		}
		if strings.Contains(in.Text(), `"holder":"web-2`) {
			break
		}
	}
	if in.Err() != nil || !released {
		t.Fatalf("the stream ended: %v", in.Err())
	}
	if r, err := http.Get(server.URL + "/events/locks"); err != nil || r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("a second one: %v, %v", r, err)
	}
	resp.Body.Close()
	for { // the place is free as soon as the server has noticed
		r, err := http.Get(server.URL + "/events/locks")
		must(t, err)
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return
		}
	}
}

// The end of a lease seems to move a little with every answer; only a renewal is news.
func TestRenewalIsNews(t *testing.T) {
	at := time.Now()
	seen := func(left time.Duration) *entry {
		info := driver.Info{Key: "k", Held: true, Left: left, Leases: 1}
		info.Holders = []driver.Holding{{Left: left}}
		return newEntry(info, at)
	}
	before := seen(10 * time.Second)
	for left, want := range map[time.Duration]bool{10*time.Second + jitter - 1: true, 10*time.Second - jitter + 1: true, 15 * time.Second: false, 8 * time.Second: false} {
		e := seen(left).steady(before)
		if same(e, before) != want || sameLeases(e, before) != want {
			t.Errorf("of %v left it is the same: %v, %v; want %v", left, same(e, before), sameLeases(e, before), want)
		}
	}
}
