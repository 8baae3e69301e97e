// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var keyCases = []Case{
	{Name: "HostileKeys", // failure case 29
		Rule: "Any key of 1 to 512 bytes works from grant to release, and is no other key's.",
		run:  anyKey},
	{Name: "HostileLabels",
		Rule: "Any label of up to 512 bytes is returned unchanged, for a holder and in the queue.",
		run:  anyLabel},
	{Name: "KeysNamedLikeTheStoresOwn",
		Rule: "A key with the name of something that the engine keeps for another key never harms that key.",
		play: "grant a; queue? join b; collide; held a; queue? waits b; release a; queue? turn b"},
}

// anyKey holds all the keys at once: two that the engine takes for one would
// be refused.
func anyKey(e *env) {
	held := make(map[string]contend.Owner)
	for _, key := range hostileKeys() {
		held[key] = e.ask(key)
		e.grant(e.d, held[key])
	}
	other := e.open()
	for key, a := range held {
		e.heldBy(a)
		e.refuse(other, e.ask(key))
		e.renewed(other, a)
		if e.traits.Queue == driver.QueueNone {
			e.release(e.d, a)
			e.free(key)
			continue
		}
		b := e.ask(key)
		ch := e.watch(other, b)
		e.join(other, b, 0)
		e.renewed(other, queued(b))
		e.release(e.d, a)
		if ch != nil {
			e.hinted(ch)
		}
		e.turn(other, b, 0)
		e.release(other, b)
		e.free(key)
	}
}

func hostileLabels() []string {
	return []string{
		"", "{}", "plain", "|", "a|b", "\x00", "\n", "a\r\nb", "\xff\xfe", "'\"`;--", "\x1b[2J", "%s%n",
		`{"host":"h","pid":1}`, `{"host":"` + strings.Repeat("x", 400) + `"}`,
		strings.Repeat("l", driver.MaxLabel), strings.Repeat("\x00", driver.MaxLabel),
	}
}

func anyLabel(e *env) {
	for _, label := range hostileLabels() {
		a, b := e.ask("k"), e.ask("k")
		a.Label, b.Label = label, label
		e.grant(e.d, a)
		e.heldBy(a)
		if res := e.refuse(e.d, b); res.Holder.Label != label {
			e.Errorf("the holder's label is %q, want %q", res.Holder.Label, label)
		}
		if e.traits.Queue != driver.QueueNone {
			e.join(e.d, b, 0)
			if l := e.heldBy(a).Queue; len(l) != 1 || l[0].Label != label {
				e.Errorf("the label in the queue is not %q: %+v", label, l)
			}
			e.release(e.d, b)
		}
		e.renewed(e.d, a)
		e.release(e.d, a)
		e.free("k")
	}
}

// askForNames takes as keys every end of every name that the store shows while
// "k" is held: whatever prefix the engine adds, one of them meets what is kept
// for "k".
func (e *env) askForNames() {
	e.Helper()
	if e.store.Names == nil {
		e.Skip("the harness cannot show the names in this store (Store.Names is nil)")
	}
	tried := map[string]bool{"k": true}
	for _, name := range e.store.Names() {
		for i := range name {
			key := name[i:]
			if tried[key] || len(key) > driver.MaxKey {
				continue
			}
			tried[key] = true
			rs := []contend.Owner{e.ask(key)}
			if needShared.Met(e.d) {
				rs = append(rs, e.reader(key))
			}
			for _, r := range rs {
				if res, err := contend.Try(e.ctx, e.d, r); err == nil && res.Granted {
					e.release(e.d, r)
				} // an error is allowed: the name is taken
			}
		}
	}
}
