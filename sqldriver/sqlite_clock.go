// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// reading is what the machine's clock shows. SQLite runs in its clients, so this is
// the store's clock, by which all leases are measured; the wall clock only ever makes
// fences larger.
//
// Two readings can be compared only when both are of one boot, whose start At counts from, sleep
// included.
type reading struct {
	boot string // names the boot; empty on systems that don't name them
	rules.Now
}

// head is the row of hasp_meta.
type head struct {
	version int
	boot    string
	before  string
	clock   int64
	journal string // not of the row: the connection's journal_mode
	floors  rules.Floors
	node    string // a random name of the file
	wall    int64  // the wall clock at clock, in microseconds; 0: not known

	synchronous, busy int // what the connection runs with; 0 where it was not asked
}

func (h *head) fields() []any {
	return []any{&h.version, &h.boot, &h.before, &h.clock, &h.journal, &h.floors.Newest, &h.floors.Old, &h.floors.Mid, &h.floors.At, &h.node, &h.wall}
}

// scan reads the answer to qHead.
func (h *head) scan(from *sql.Row) error {
	err := from.Scan(append(h.fields(), &h.synchronous, &h.busy)...)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoHead
	}
	return err
}

// clockChange is how the clock of a reading is related to the one at the last write,
// and so what the times in the rows mean now.
type clockChange int

const (
	sameClock    clockChange = iota // it is the same clock
	rebooted                        // the machine was booted since: everything has expired
	unknownClock                    // unknown: each row has what it had left at the last write
)

const (
	// agree is by how much the moment of the boot, which the wall clock says, may
	// be off between two processes of one machine.
	agree = 2 * time.Second
	// clockEvery is how often the file's stamp of the clock is brought up to date.
	clockEvery = time.Second
)

// clockChange compares clocks. A container may have a boot id of its own, but has the
// machine's clock: it goes on from where the file was written, and was zero at the
// same moment. A clock that is behind belongs to a later boot if it began after the
// last write, as it cannot have done while a holder lives and renews. Nothing is known
// of any other, so every lease gets what was left of it, counted from now.
//
// A boot that comes back after another was taken for its successor, with a clock
// that is behind, is no boot: two machines share the file.
func (h *head) clockChange(now reading) (clockChange, error) {
	began := now.Wall - now.At.Microseconds() // when this boot began, by the wall clock
	apart := began - (h.wall - time.Duration(h.clock).Microseconds())
	known, behind := now.boot == h.boot, int64(now.At) < h.clock
	if err := rightVersion(h.version); err != nil {
		return 0, err
	}
	switch {
	case h.journal != persist:
		return 0, errSwitched
	case h.wall == 0 && !known: // no program has written to the file yet
		return rebooted, nil
	case !behind && (known || max(apart, -apart) <= agree.Microseconds()):
		return sameClock, nil
	case behind && now.boot != "" && now.boot == h.before:
		return 0, errTwoMachines
	case behind && began > h.wall && (!known || now.boot == ""):
		return rebooted, nil
	}
	return unknownClock, nil
}

var errTwoMachines = &storeError{class: driver.ClassMisconfigured,
	err: errors.New("the file is used from two machines at once (or from a virtual machine and its host)"),
	advice: "SQLite's clock is the machine's, so they cannot agree when a lease ends: give each a file of its own, or use a server; " +
		"if the other has stopped using it, end every program that uses the file, delete it with its -journal, and it is made anew"}

// offset returns what a time namespace adds to CLOCK_BOOTTIME, from the text
// of /proc/self/timens_offsets: lines of a clock's name, seconds, nanoseconds.
func offset(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "boottime" {
			continue
		}
		sec, err := strconv.ParseInt(f[1], 10, 64)
		nsec, err2 := strconv.ParseInt(f[2], 10, 64)
		const most = int64(1<<63-1) / int64(time.Second)
		if err := errors.Join(err, err2); err != nil || sec >= most || sec <= -most || nsec < 0 || nsec >= int64(time.Second) {
			return 0, fmt.Errorf("cannot read the offset of the time namespace in %q", line)
		}
		return time.Duration(sec)*time.Second + time.Duration(nsec), nil
	}
	return 0, nil
}
