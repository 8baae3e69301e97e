// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// reading is what the machine's clock shows. SQLite runs in its clients, so this is
// the store's clock, by which all leases are measured; the wall clock only ever makes
// fences larger.
//
// Two readings can be compared only when both are of one boot.
type reading struct {
	boot string        // names the boot; empty on systems that don't name them
	up   time.Duration // since that boot, sleep included
	wall int64         // the wall clock in microseconds, positive
}

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
