// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"crypto/rand"
	"errors"
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
	queued   bool      // among fresh
	alone    int       // how often it was renewed by itself
}

// turn is a beat that is waited for.
type turn struct {
	done chan struct{} // closed when the next two stand
	id   string
	err  error
}

const (
	// longest is the expiry of what is attached, which other clients see. It is set again after half of it.
	longest = 30 * 24 * time.Hour
	// beatGap is between two beats at most, and a fifth of the TTL: the core asks for a renewal after a third, and
	// gives it ten seconds.
	beatGap = 6 * time.Second
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

// sessions are those of a driver, by TTL.
type sessions struct {
	d   *Driver
	gap time.Duration // beatGap, but for tests
	mu  sync.Mutex
	all map[time.Duration]*session
}

// of returns the session of a lease, nil: it has none.
func (ss *sessions) of(r driver.RenewRequest) *session {
	if ss == nil || r.Mode != driver.Exclusive || r.Wanted != nil || r.Entered {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.all[r.TTL]
	if s == nil && len(ss.all) < maxSessions && ss.d.life.Err() == nil {
		s = &session{d: ss.d, ttl: r.TTL, wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), members: map[string]*member{}, lookAt: time.Now()}
		ss.all[r.TTL] = s
		ss.d.running.Go(s.live)
	}
	return s
}

// close waits until no session begins any more; the driver's life is over.
func (ss *sessions) close() {
	if ss != nil {
		ss.mu.Lock()
		ss.mu.Unlock() //nolint:staticcheck // nothing is to be done in between
	}
}

// granted notes that a Try has a lease, whatever its owner had before.
func (ss *sessions) granted(owner string) {
	if ss == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.all {
		s.mu.Lock()
		if m := s.members[owner]; m != nil {
			m.over = false
		}
		s.mu.Unlock()
	}
}

// released notes that a lease was released, or that nobody knows whether it was.
func (ss *sessions) released(owner string, err error) {
	if ss == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.all {
		s.released(owner, err)
	}
}

func (s *session) released(owner string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[owner]
	switch {
	case m == nil:
	case err == nil || m.sent == "":
		delete(s.members, owner)
	default: // while the session lives it would stay
		m.id, m.until, m.over = "", time.Time{}, true
	}
}

// join returns the turn of the next beat, if a lease is attached; else nil. Who comes alone, as [hasp.Lease.Extend], has it at
// once: that costs no more than a renewal.
func (s *session) join(r driver.RenewRequest, alone bool) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[r.Owner]
	if m == nil {
		return nil
	}
	m.until, m.over = time.Now().Add(s.ttl), false
	if m.id == "" || m.id != s.id {
		m.alone++
		return nil
	}
	if s.next == nil {
		s.next = &turn{done: make(chan struct{})}
		s.stir()
	}
	if alone {
		signal(s.soon)
	}
	return s.next
}

// stands says whether a beat renewed a lease, in the end.
func (s *session) stands(owner string, t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[owner]
	return m != nil && m.id != "" && m.id == t.id
}

// attach has a lease attached that was renewed by itself.
func (s *session) attach(c driver.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[c.Owner]
	if m == nil {
		m = &member{Claim: c}
		s.members[c.Owner] = m
	}
	m.id = "" // the renewal made it an ordinary one, whatever the answer to an earlier request says
	m.alone++
	m.until, m.over = time.Now().Add(s.ttl), false
	s.enlist(m)
}

// enlist has a member attached with the next round. mu is held.
func (s *session) enlist(m *member) {
	if !m.queued {
		m.queued = true
		s.fresh = append(s.fresh, m)
		s.stir()
	}
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
	gap := min(s.ttl/5, s.d.sessions.gap)
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

// attachAll attaches what was renewed since the latest round.
func (s *session) attachAll() {
	for begun := time.Now(); ; {
		s.mu.Lock()
		some := s.fresh[:min(len(s.fresh), perAttach)]
		s.fresh = s.fresh[len(some):]
		more, now := len(s.fresh) > 0, time.Now()
		all, alone := make([]*member, 0, len(some)), make([]int, 0, len(some))
		for _, m := range some {
			m.queued = false
			if s.members[m.Owner] == m && !m.until.Before(now) { // else it was released since
				all, alone = append(all, m), append(alone, m.alone)
			}
		}
		begins := s.id == "" && len(all) > 0
		if begins {
			s.id, s.gone = rand.Text(), nil
		}
		id := s.id
		for _, m := range all {
			m.sent, m.asked = id, now
		}
		s.mu.Unlock()
		if len(all) == 0 {
			if more {
				continue
			}
			return
		}
		r, err := s.do(s.attachCall(id, begins, all))
		s.mu.Lock()
		s.attached(id, begins, all, alone, r, err)
		s.mu.Unlock()
		if err != nil || !more {
			return // what was not attached is, after its next renewal
		}
		if time.Since(begun) >= s.gap() { // others wait for a beat
			s.stir()
			return
		}
	}
}

func (s *session) attachCall(id string, begins bool, all []*member) *wire.Call {
	n := len(all)
	keys, args := make([]any, 1+3*n), make([]any, 3, 3+n)
	keys[0], args[0], args[1], args[2] = sessionKey(id), wire.Millis(s.ttl), longest.Milliseconds(), ""
	if begins {
		args[2] = "1"
	}
	for i, m := range all {
		names := s.d.names(m.Key)
		keys[1+i], keys[1+n+i], keys[1+2*n+i] = names.lock, names.grant, names.queue
		args = append(args, value(m.Claim))
	}
	return &wire.Call{Script: attachScript, Keys: keys, Args: args}
}

// attached reads what a script attached. A session that may have begun, or not, is never used again. mu is held.
func (s *session) attached(id string, begins bool, all []*member, alone []int, r *wire.Reply, err error) {
	if s.id != id {
		return
	}
	run := ""
	if err == nil {
		run = wire.Next[string](r)
	}
	switch {
	case begins && err == nil && !r.Bad:
		s.run = run
	case err != nil && !begins:
		return
	case err != nil || r.Bad || run != s.run:
		s.id = ""
		return
	}
	now := time.Now()
	for i, m := range all {
		if wire.Next[int64](r) == 1 && !r.Bad && m.alone == alone[i] { // a renewal that was sent since makes it an ordinary one
			m.id, m.attached = id, now
		}
	}
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
		if _, err := s.do(detachCall(names.lock, names.grant, id)); err != nil || time.Since(asked) < lateRequest {
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
	err := d.sendRelease(ctx, d.releaseCall(driver.WithdrawRequest{ReleaseRequest: r}))
	return err == nil || errors.Is(err, driver.ErrNotHeld)
}

// detachCall makes a lease an ordinary one; see detach.lua.
func detachCall(lock, grant any, id string) *wire.Call {
	return &wire.Call{Script: detachScript, Keys: []any{lock, grant, sessionKey(id)}}
}

// exec runs calls as one pipeline. An error: the context ended, and the calls are still in use.
func (d *Driver) exec(ctx context.Context, calls []*wire.Call) error {
	_, err := wire.Await(ctx, func(ctx context.Context) (any, error) {
		d.renew.Exec(ctx, calls)
		return nil, nil //nolint:nilnil // each call has its own
	})
	return err
}

// detach does it for somebody who wants the key of c.
func (d *Driver) detach(ctx context.Context, c *wire.Call, id string) error {
	_, err := d.send.Do(ctx, detachCall(c.Keys[0], c.Keys[1], id))
	return err
}

// attachedTo is the session that a lease is attached to, as try.lua and release.lua answer; "": it is not, or to none.
func attachedTo(reply any) string {
	if f, ok := reply.([]any); ok && len(f) == 2 && f[0] == int64(attachedCode) {
		id, _ := f[1].(string)
		return id
	}
	return ""
}

// attachedCode is what they begin that answer with.
const attachedCode = 6

// maxDetach is how often one request is sent, and has a lease made an ordinary one: its holder has it attached again after each renewal.
const maxDetach = 3

// detached runs a call of the batch script until it is not refused because of a session.
func (d *Driver) detached(ctx context.Context, c *wire.Call) (*wire.Call, error) {
	for range maxDetach {
		reply, err := d.send.Do(ctx, c) // c.Reply may still be written where this is an error
		id := attachedTo(reply)
		if err != nil || id == "" {
			return c, err
		}
		if err = d.detach(ctx, c, id); err != nil {
			return c, err
		}
		c = &wire.Call{Script: c.Script, Mark: c.Mark, Keys: c.Keys, Args: c.Args}
	}
	return c, errAttached
}

// attachedLease is the number of a lease in a Renew that was found attached, and its session.
type attachedLease struct {
	i  int
	id string
}

// errAttached is of a lease that was attached again while it was asked for: only its holder's driver does that.
var errAttached = errors.New("redis: the lease is attached to a session of another client")

// joined are the leases of a Renew that one beat is to renew.
type joined struct {
	s      *session
	turn   *turn
	leases []int
}

// join has leases that are attached wait for a beat, and returns the others.
func (d *Driver) join(rs []driver.RenewRequest, leases []int) (others []int, beats []joined) {
	if d.sessions == nil {
		return leases, nil
	}
	for _, i := range leases {
		s := d.sessions.of(rs[i])
		var t *turn
		if s != nil {
			t = s.join(rs[i], len(rs) == 1)
		}
		at := slices.IndexFunc(beats, func(j joined) bool { return j.turn == t })
		switch {
		case t == nil:
			others = append(others, i)
		case at < 0:
			beats = append(beats, joined{s, t, []int{i}})
		default:
			beats[at].leases = append(beats[at].leases, i)
		}
	}
	return others, beats
}

// await reports what beats renewed, and has alone renew the leases that they did not.
func (d *Driver) await(ctx context.Context, rs []driver.RenewRequest, beats []joined, done func(int, driver.Renewal), alone func([]int)) {
	for _, b := range beats {
		select {
		case <-b.turn.done:
		case <-ctx.Done():
			return
		case <-d.life.Done():
			return
		}
		var others []int
		for _, i := range b.leases {
			switch {
			case b.turn.err != nil:
				done(i, driver.Renewal{Err: b.turn.err})
			case b.s.stands(rs[i].Owner, b.turn):
				done(i, driver.Renewal{TTL: rs[i].TTL})
			default:
				others = append(others, i)
			}
		}
		if len(others) > 0 {
			alone(others) // the next beat may be one of another TTL, and come later
		}
	}
}

// detachAll makes leases ordinary ones, and returns those that are.
func (d *Driver) detachAll(ctx context.Context, rs []driver.RenewRequest, all []attachedLease, done func(int, driver.Renewal)) (leases []int) {
	for some := range slices.Chunk(all, perAttach) {
		calls := make([]*wire.Call, len(some))
		for k, l := range some {
			names := d.names(rs[l.i].Key)
			calls[k] = detachCall(names.lock, names.grant, l.id)
		}
		if d.exec(ctx, calls) != nil {
			return leases
		}
		for k, l := range some {
			if err := calls[k].Err; err != nil {
				done(l.i, driver.Renewal{Err: err})
			} else {
				leases = append(leases, l.i)
			}
		}
	}
	return leases
}
