// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// A node whose proposals' mark is gone, as after 12 hours without a proposal, refuses a proposal
// that was made before by at most once: the floor that it names stays, for this key and every other.
func TestForgottenMarkRefusesOnce(t *testing.T) {
	w, d := newVoting(t)
	held := proposing("held", w.micros())
	w.grant(d, held)
	for _, lose := range []string{"PEXPIRE", "DEL"} {
		for name, ask := range map[string]func(contend.Owner) contend.Owner{
			"alone":         func(r contend.Owner) contend.Owner { return r },
			"with a place":  queued,
			"shared":        func(r contend.Owner) contend.Owner { r.Mode = driver.Shared; return r },
			"in a batch":    func(r contend.Owner) contend.Owner { return r },
			"for n of them": func(r contend.Owner) contend.Owner { r.Fences = 3; return r },
		} {
			t.Run(lose+", "+name, func(t *testing.T) {
				old := proposing("old "+lose+name, w.micros())
				w.on(d).grant(old).release(old)
				if lose == "DEL" {
					w.do("DEL", proposedKey)
				} else {
					w.do("PEXPIRE", proposedKey, 1)
					w.until("the mark goes", func() bool { return w.admin.Exists(w.ctx, proposedKey).Val() == 0 })
				}
				w.refuse(d, proposing("held", w.micros())) // that another has the key says no floor that counts
				behind := w.micros() - uint64((90 * time.Second).Microseconds())
				r := ask(proposing("k "+lose+name, behind))
				var floor uint64
				if name == "in a batch" {
					calls := tries(d, r, proposing("other "+lose, behind))
					w.together(d, calls...)
					for _, c := range calls {
						a, err := parseTry(c.Reply)
						if err != nil || c.Err != nil || a.Why != voting.FenceTooLow {
							t.Fatalf("%+v, %v, %v", a, err, c.Err)
						}
						floor = a.Fence
					}
				} else {
					floor = w.tooLow(d, r)
				}
				failIf(t, floor < old.Fence, "the floor is %d, granted was %d", floor, old.Fence)
				r.Fence = floor + uint64(max(r.Fences, 1))
				w.on(d).grant(r).grant(proposing(fmt.Sprint("beside ", lose, name), r.Fence)) // and so do others make progress
				w.release(d, r)
			})
		}
	}
}
