// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// A session is one key with a TTL, on which many leases of a client depend: see [Options].Session. A lease
// begins as any other. Its first renewal attaches it: its own keys then have an expiry that no lease takes, its grant
// names the session, and one sign of life, a beat, renews all that is attached. Whoever else asks for the key makes the
// lease an ordinary one first, which lasts for what the session has left, or ends it where the session is over. Its
// holder learns that from the next beat, and renews it by itself until it can be attached again. So the two rules are:
// what is attached ends no earlier than the session, and a beat counts for no lease that it names.
type session struct {
	d    *Driver
	ttl  time.Duration
	wake chan struct{}
	soon chan struct{} // somebody waits for one lease only

	mu      sync.Mutex
	id      string             // "": it is to begin
	run     string             // of the server where it began
	members map[string]*member // by owner
	fresh   []*member          // to attach
	next    *turn              // who waits for the next beat; nil: nobody
	gone    []string           // owners that a beat named and that are no members: it need not name them again
	beats   int                // how many there were
	looked  []*member          // whose locks are still to be looked at, in this round
	lookAt  time.Time          // when some last were
	failing bool               // the latest beat had no answer
}

// member is a lease of a session.
type member struct {
	driver.Claim
	until    time.Time // nobody relies on it any more, unless it is renewed
	sent     string    // the latest session that it may be attached to; earlier ones get no beats any more
	id       string    // the session that it is attached to, for certain; else ""
	attached time.Time // when that was
	asked    time.Time // when it was last sent to be attached
	over     bool      // nobody knows whether it was released
	queued   bool      // to be attached
	listed   bool      // among fresh
	alone    int       // how often it was renewed by itself
}

// turn is a beat that is waited for.
type turn struct {
	done chan struct{} // closed when the next two stand
	id   string
	err  error
}

// over waits for the answer to the beat, or for the end of ctx or of the driver without one.
func (t *turn) over(ctx, life context.Context) bool {
	select {
	case <-t.done:
	case <-ctx.Done():
	case <-life.Done():
	}
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

const (
	// longest is the expiry of what is attached, which other clients see. It is set again after half of it.
	longest = 30 * 24 * time.Hour
	// beatGap is between two beats at most, and 3/20 of the TTL: the core asks again for a renewal that has had no
	// answer for a sixth, and with very many leases there is no time to ask for each of them twice.
	beatGap = 4500 * time.Millisecond
	// beatTime bounds one beat, and one script that attaches; as does a third of the TTL.
	beatTime = 3 * time.Second
	// perAttach is how many leases one script attaches.
	perAttach = 100
	// lookTime is how long it takes to look at all locks, which says what a person, or an eviction, did to them, and
	// perLook how many at most are looked at with one beat.
	lookTime, perLook = 10 * time.Minute, 2_000
	// maxSessions is how many TTLs have one.
	maxSessions = 16
)

// released notes that a lease was released, or that nobody knows whether it was.
func (s *session) released(owner string, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[owner]
	switch {
	case m == nil:
	case answered || m.sent == "":
		delete(s.members, owner)
	default: // while the session lives it would stay
		m.id, m.until, m.over = "", time.Time{}, true
	}
}

// join returns the turn of the next beat, which is to renew those of all that are attached, and the others. A Renew of one lease,
// as by [hasp.Lease.Extend], has its beat at once: that costs no more than a renewal.
func (s *session) join(rs []driver.RenewRequest, all []int) (t *turn, attached, others []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, i := range all {
		m := s.members[rs[i].Owner]
		if m == nil {
			others = append(others, i)
			continue
		}
		m.until, m.over = now.Add(s.ttl), false
		if m.id == "" || m.id != s.id {
			m.alone++
			m.queued = false // not before the answer: the renewal would find it attached, and have to undo that
			others = append(others, i)
			continue
		}
		attached = append(attached, i)
	}
	if len(attached) == 0 {
		return nil, nil, others
	}
	if s.next == nil {
		s.next = &turn{done: make(chan struct{})}
		s.stir()
	}
	if len(rs) == 1 {
		signal(s.soon)
	}
	return s.next, attached, others
}

// stands says whether a beat renewed a lease, in the end.
func (s *session) stands(owner string, t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[owner]
	return m != nil && m.id != "" && m.id == t.id
}

func (s *session) stir() { signal(s.wake) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// gap is between two rounds.
func (s *session) gap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := min(s.ttl*3/20, s.d.sessions.gap)
	if s.failing {
		gap /= 2
	}
	return gap
}

// live beats, attaches and sweeps until the driver is closed.
func (s *session) live() {
	timer := time.NewTimer(s.ttl)
	defer timer.Stop()
	for swept := time.Now(); ; {
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.d.life.Done():
			return
		}
		begun := time.Now()
		s.beat()
		s.attachAll()
		if time.Since(swept) >= s.ttl/3 {
			s.sweep()
			swept = time.Now()
		}
		timer.Reset(s.gap() - time.Since(begun))
		select { // what is asked for meanwhile comes with the next
		case <-timer.C:
		case <-s.soon:
		case <-s.d.life.Done():
			return
		}
		timer.Reset(s.ttl)
	}
}

func (s *session) do(c *wire.Call) (*wire.Reply, error) {
	ctx, cancel := context.WithTimeout(s.d.life, min(beatTime, s.ttl/3))
	defer cancel()
	v, err := s.d.renew.Do(ctx, c)
	if err != nil {
		return nil, err
	}
	return wire.NewReply(v), nil
}

func sessionKey(id string) string { return wire.Sidecars + "session:" + id }

// beat gives a sign of life, if somebody waits for it.
func (s *session) beat() {
	s.mu.Lock()
	t, id := s.next, s.id
	s.next = nil
	if t == nil {
		s.mu.Unlock()
		return
	}
	var look []*member // or else which run of the server it is: each is a command
	asks := ""
	if s.beats++; s.beats%2 == 0 {
		look = s.look()
	} else {
		asks = "1"
	}
	s.gone = slices.DeleteFunc(s.gone, func(owner string) bool { return s.members[owner] != nil }) // since
	gone := s.gone[:min(len(s.gone), int(layout.Named))]
	keys, args := []any{sessionKey(id)}, []any{wire.Millis(s.ttl), asks}
	for _, m := range look {
		keys, args = append(keys, s.d.keyed(m.Key).lock), append(args, m.Owner)
	}
	for _, owner := range gone {
		args = append(args, owner)
	}
	s.mu.Unlock()

	var r *wire.Reply
	if id != "" {
		r, t.err = s.do(&wire.Call{Script: beatScript, Keys: keys, Args: args})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing = t.err != nil; t.err == nil && id == s.id && s.heard(r, asks != "") {
		t.id = id
		s.gone = s.gone[len(gone):]
	}
	close(t.done)
}

// look returns who is to be looked at now. mu is held.
func (s *session) look() []*member {
	now := time.Now()
	since := min(now.Sub(s.lookAt), lookTime)
	s.lookAt = now
	n := int(min(int64(len(s.members))*int64(since)/int64(lookTime)+1, perLook))
	if len(s.looked) == 0 {
		for _, m := range s.members {
			s.looked = append(s.looked, m)
		}
	}
	n = min(n, len(s.looked))
	some := s.looked[:n]
	s.looked = s.looked[n:]
	look := make([]*member, 0, n)
	for _, m := range some {
		if m.id != "" && s.members[m.Owner] == m {
			look = append(look, m)
		}
	}
	return look
}

// heard reads the answer to a beat, and is false where nothing is attached any more. mu is held.
func (s *session) heard(r *wire.Reply, asked bool) bool {
	if r == nil || r.Bad || len(r.Fields) == 0 || wire.Next[string](r) != s.run && asked {
		s.id = "" // members have the old one, and renew by themselves
		return false
	}
	named, lost := wire.NewReply(wire.Next[[]any](r)), wire.NewReply(wire.Next[[]any](r))
	for !r.Bad && len(named.Fields) > 0 {
		owner := wire.Next[string](named)
		if m := s.members[owner]; m != nil {
			m.id = ""
		} else if owner != "!" {
			s.gone = append(s.gone, owner)
		}
	}
	for !r.Bad && len(lost.Fields) > 0 {
		if m := s.members[wire.Next[string](lost)]; m != nil {
			m.id = ""
		}
	}
	if r.Bad || named.Bad || lost.Bad {
		s.id = ""
	}
	return s.id != ""
}

// sweep looks after what may be attached and is not renewed here any more, which would last as long as the session; and
// has attached again what was so long ago.
func (s *session) sweep() {
	var over []*member
	s.mu.Lock()
	now, id := time.Now(), s.id
	for owner, m := range s.members {
		switch {
		case !m.until.Before(now):
			if m.id != "" && now.Sub(m.attached) > longest/2 {
				s.enlist(m)
			}
		case m.sent == "" || m.sent != id:
			delete(s.members, owner)
		default:
			over = append(over, m)
		}
	}
	s.mu.Unlock()
	for _, m := range over {
		if time.Since(now) >= s.gap() {
			return // others wait for a beat
		}
		s.end(m, id)
	}
}

// end ends the lease of a member where its Release had no answer. Else it makes it an ordinary one, and no more: it may be
// renewed by another client, or in another way.
func (s *session) end(m *member, id string) {
	s.mu.Lock()
	over, asked := m.over, m.asked
	s.mu.Unlock()
	if over {
		if !s.d.expire(m.Claim, s.ttl) {
			return
		}
	} else {
		names := s.d.names(m.Key)
		if _, err := s.do(detachCall(names.lock, names.grant, id)); err != nil || time.Since(asked) < driver.LateRequest {
			return // a late request might attach it once more
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members[m.Owner] == m && m.until.Before(time.Now()) {
		delete(s.members, m.Owner)
	}
}

// expire releases a lease that nobody relies on any more, as its expiry would have, and whatever is on its way to the server.
// It is false without an answer.
func (d *Driver) expire(c driver.Claim, ttl time.Duration) bool {
	ctx, cancel := context.WithTimeout(d.life, beatTime)
	defer cancel()
	r := driver.ReleaseRequest{Claim: c, TTL: ttl, End: driver.Unfinished}
	return releaseAnswered(d.sendRelease(ctx, d.releaseCall(driver.WithdrawRequest{ReleaseRequest: r})))
}
