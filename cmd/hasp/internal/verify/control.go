// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"os"
	"slices"
	"time"
)

// fault kills or stops a client. At least one is left at work.
func (r *run) fault(f fault) {
	var all, holding []*member
	working := 0
	for m := range r.members {
		if m.killed || m.stopped {
			continue
		}
		working++
		if m.began {
			all = append(all, m)
			if m.hold != nil {
				holding = append(holding, m)
			}
		}
	}
	if f.held && len(holding) > 0 {
		all = holding
	}
	if len(all) == 0 || working < 2 {
		return
	}
	slices.SortFunc(all, func(a, b *member) int { return a.n - b.n })
	m := all[f.pick%uint64(len(all))]
	if f.stop == 0 {
		m.killed = true
		r.Killed++
		_ = m.cmd.Process.Kill() // fails only when it is gone
		return
	}
	if stop(m.cmd.Process) != nil {
		return
	}
	m.stopped = true
	r.Stopped++
	time.AfterFunc(f.stop, func() {
		select {
		case r.resume <- m:
		case <-r.done:
		}
	})
}

// goOn lets a client go on that was stopped.
func (r *run) goOn(m *member) {
	if m.stopped {
		m.stopped = false
		_ = goOn(m.cmd.Process) // fails only when it is gone
	}
}

// close has every worker release what it holds, and end. A second signal makes
// it kill them.
func (r *run) close(signals <-chan os.Signal) {
	r.closing = true
	for m := range r.members {
		r.goOn(m)
		m.send(order{Stop: true})
	}
	most := lastLimit
	if r.ended != nil { // most often the store is gone, and nobody can tell it anything
		most = goneLimit
	}
	limit := time.NewTimer(most)
	defer limit.Stop()
	for len(r.members) > 0 {
		select {
		case rec := <-r.events:
			r.receive(rec)
		case <-r.resume: // it goes on already
		case <-signals:
			return
		case <-limit.C:
			for m := range r.members {
				if r.ended == nil {
					r.broken("%v did not end within %v when asked to", m, most)
				}
			}
			return
		}
	}
}

// killAll ends what is left.
func (r *run) killAll() {
	for m := range r.members {
		_ = m.cmd.Process.Kill() // fails only when it is gone
	}
}

func without(all []*member, m *member) []*member {
	return slices.DeleteFunc(all, func(other *member) bool { return other == m })
}
