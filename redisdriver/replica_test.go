// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// split is a master with a node record and a holder, one of whose replicas was
// promoted behind the holder's back.
type split struct {
	*world             // the old master
	other      *world  // the replica that was promoted
	d, onOther *Driver // of each
	held, next contend.Owner
}

func newSplit(t *testing.T, master ...string) *split {
	s := &split{world: newWorld(t, append([]string{"--repl-diskless-sync-delay", "0"}, master...)...), other: newWorld(t)}
	s.other.server.Follow(s.server)
	s.d, s.onOther = s.node(), s.other.node()
	s.admit(s.d)
	s.held, s.next = ask("k"), ask("k")
	s.grant(s.d, s.held)
	s.refuse(s.d, queued(s.next))
	s.do("WAIT", 1, 0)
	s.other.server.Promote()
	return s
}

// admitOther lets the promoted replica vote, when whatever the old master had granted
// at the promotion is over, and grants a lease there.
func (s *split) admitOther() contend.Owner {
	s.Helper()
	s.other.heldBack(s.onOther, ask("k"))
	s.other.admit(s.onOther)
	s.other.do("DEL", "lock:k", s.onOther.names("k").queue) // both ended meanwhile
	b := ask("k")
	s.other.grant(s.onOther, b)
	return b
}

// A record keeps a promoted replica from voting until all that the old master
// granted before has expired. It does not keep the old master from renewing: without
// min-replicas-to-write it goes on for ever, beside whoever is granted the key by
// the replica. That is the assumption that the documentation names.
func TestSplitMasterGoesOn(t *testing.T) {
	t.Parallel()
	s := newSplit(t)
	s.admitOther()
	if err := s.renew(s.d, s.held)[0]; err != nil {
		t.Fatalf("Renew at the old master: %v", err)
	}
}

// With min-replicas-to-write for all of its replicas, a master that lost one of them
// grants, prolongs, converts and hands over nothing, and says so as a store that
// cannot be reached: its holder's lease ends by its own deadline.
func TestSplitMasterStops(t *testing.T) {
	t.Parallel()
	s := newSplit(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "5")
	refused := func(what string, err error) {
		t.Helper()
		if s.d.Classify(err) != driver.ClassUnreachable || errors.Is(err, voting.ErrNotVoting) {
			t.Errorf("%s at the old master: %v", what, err)
		}
	}
	s.until("it misses its replica", func() bool { return s.renew(s.d, s.held)[0] != nil })
	s.other.heldBack(s.onOther, s.held)
	left := func() int64 { return s.admin.PTTL(s.ctx, "lock:k").Val().Milliseconds() }
	before := left()
	b := s.admitOther()
	for range 3 {
		refused("Renew", s.renew(s.d, s.held)[0])
		for _, r := range []contend.Owner{s.held, queued(s.held), converted(s.held), ask("free"), proposed(s, ask("free"))} {
			_, err := contend.Try(s.ctx, seen(s.d), r)
			refused("Try", err)
		}
		for _, r := range []contend.Owner{s.held, s.next} {
			refused("Release", contend.Release(s.ctx, seen(s.d), r))
		}
	}
	if after := left(); after > before {
		t.Errorf("the lease at the old master was prolonged from %d to %d ms", before, after)
	}
	if got := s.holder(s.d, "k"); got != s.held.Owner {
		t.Errorf("the old master gave the key to %q", got)
	}
	if err := s.other.renew(s.onOther, b)[0]; err != nil {
		t.Errorf("Renew at the new master: %v", err)
	}
}

func converted(r contend.Owner) contend.Owner {
	r.Convert, r.Mode = true, driver.Shared
	return r
}

func proposed(s *split, r contend.Owner) contend.Owner {
	r.Fence = s.micros()
	return r
}
