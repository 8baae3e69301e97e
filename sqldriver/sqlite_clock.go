// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
)

// kept is how the clock of a reading stands to the one that the file was last
// written by, and so what its rows say now.
type kept int

const (
	keptAll  kept = iota // it is the same clock
	keptNone             // the machine was booted since: everything is over
	keptLeft             // unknown: each row has what it had left at the last write
)

const (
	// agree is by how much the moment of the boot, which the wall clock says, may
	// be off between two processes of one machine.
	agree = 2 * time.Second
	// clockEvery is how often the file's stamp of the clock is brought up to date.
	clockEvery = time.Second
)

func (s *sqlite) see() (reading, error) {
	now, err := s.clock()
	if err != nil {
		return reading{}, &storeError{class: driver.ClassMisconfigured, err: err,
			advice: "leases in SQLite are measured by that clock"}
	}
	now.wall = max(s.wall().UnixMicro(), 1)
	return now, nil
}

// kept compares clocks. A container may have a boot id of its own, but has the
// machine's clock: it goes on from where the file was written, and was zero at
// the same moment. A clock that is behind is of a later boot, when it began after
// the last write, as it cannot have while a holder lives and renews. Of any other
// nothing is known, so everybody gets what was left of the time, counted anew.
//
// A boot that comes back after another was taken for its successor, with a clock
// that is behind, is no boot: two machines share the file.
func (s *sqlite) kept(h head, now reading) (kept, error) {
	began := now.wall - now.up.Microseconds() // when this boot began, by the wall clock
	apart := began - (h.wall - time.Duration(h.clock).Microseconds())
	known, behind := now.boot == h.boot, int64(now.up) < h.clock
	switch {
	case h.version > schemaVersion:
		return 0, tooNew(h.version)
	case h.wall == 0 && !known, h.wall == 0 && behind && now.boot == "": // as versions before 4 have it
		return keptNone, nil
	case !behind && (known || max(apart, -apart) <= agree.Microseconds()):
		return keptAll, nil
	case behind && now.boot != "" && now.boot == h.before:
		return 0, errTwoMachines
	case behind && began > h.wall && (!known || now.boot == ""):
		return keptNone, nil
	}
	return keptLeft, nil
}

var errTwoMachines = &storeError{class: driver.ClassMisconfigured,
	err: errors.New("the file is used from two machines at once (or from a virtual machine and its host)"),
	advice: "SQLite's clock is the machine's, so they cannot agree when a lease ends: give each a file of its own, or use a server; " +
		"if the other has stopped using it, end every program that uses the file, delete it with its -wal and -shm, and it is made anew"}

// adopt makes the rows' times those of this clock.
func (t *tx) adopt(k kept) (err error) {
	switch k {
	case keptNone:
		_, err = t.sql.ExecContext(t.ctx, sqliteWipe)
	case keptLeft:
		_, err = t.sql.ExecContext(t.ctx, sqliteShift, int64(t.up)-t.was.clock)
	}
	if k != keptAll {
		t.head.floors = t.head.alone(t.up)
		if t.boot != t.was.boot {
			t.head.boot, t.head.before = t.boot, t.was.boot
		}
	}
	if k != keptAll || t.was.wall == 0 || t.up-time.Duration(t.was.clock) >= clockEvery {
		t.head.clock, t.head.wall = int64(t.up), t.wall
	}
	return err
}
