// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/lifetime"
)

// The bounds of the options are themselves allowed, and what is beyond them is named.
func TestLockOptionsBounds(t *testing.T) {
	tr := driver.Traits{Engine: "e", MinTTL: 100 * time.Millisecond, MaxTTL: time.Hour}
	usable := 10*time.Second - lifetime.Drift(10*time.Second)
	for _, c := range []struct {
		o    LockOptions
		want string // "": allowed
	}{
		{LockOptions{}, ""},
		{LockOptions{TTL: -1}, "must be positive"},
		{LockOptions{TTL: 100 * time.Millisecond}, ""},
		{LockOptions{TTL: 100*time.Millisecond - 1}, "e needs at least 100ms"},
		{LockOptions{TTL: time.Hour}, ""},
		{LockOptions{TTL: time.Hour + 1}, "e allows at most 1h"},
		{LockOptions{TTL: 10 * time.Second, Lead: usable - 1}, ""},
		{LockOptions{TTL: 10 * time.Second, Lead: usable}, "the lead is"},
		{LockOptions{Lead: -1}, "the lead is"},
		{LockOptions{Cohort: -1}, "the time of a cohort is"},
		{LockOptions{Cohort: 1, NoRenew: true}, "a cohort needs renewal"},
		{LockOptions{NoRenew: true}, ""},
		{LockOptions{MaxHold: -1}, "MaxHold is"},
		{LockOptions{MaxHold: 1}, ""},
		{LockOptions{MaxHold: time.Second, Lead: time.Second}, "longer than the lead"},
		{LockOptions{MaxHold: time.Second, Lead: time.Second - 1}, ""},
	} {
		err := new(settings).set(&c.o, tr)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	// An engine without bounds: something has to be left of the TTL, and it must not be centuries.
	for ttl, want := range map[time.Duration]string{
		-1: "must be positive", 2020202 * time.Nanosecond: "nothing is left of it", 2020203 * time.Nanosecond: "",
		maxTTL: "", maxTTL + 1: "at most 87600h0m0s",
	} {
		if err := new(settings).set(&LockOptions{TTL: ttl}, driver.Traits{}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("TTL %d: %v, want %q", ttl, err, want)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	trouble := errors.New("trouble")
	for _, c := range []struct {
		err  error
		want string
	}{
		{&Error{Op: "new", Err: trouble}, "hasp: new: trouble"},
		{&Error{Op: "list", Engine: "redis", Err: trouble}, "hasp: list (redis): trouble"},
		{&Error{Op: "lock", Key: "k", Err: trouble}, `hasp: lock "k": trouble`},
		{&Error{Op: "lock", Key: "k", Engine: "redis", Err: trouble}, `hasp: lock "k": trouble`},
		{&Error{Op: "lock", Key: strings.Repeat("k", 128), Err: trouble}, `hasp: lock "` + strings.Repeat("k", 128) + `": trouble`},
		{&Error{Op: "lock", Key: strings.Repeat("k", 129), Err: trouble}, `hasp: lock "` + strings.Repeat("k", 128) + `"... (129 bytes): trouble`},
		{&HeldError{}, "held by " + Holder{}.String()},
		{&HeldError{Holder: Holder{Label: `{"host":"web","pid":7,"reason":"nightly\u001b"}`}, Left: time.Minute, Ahead: 1},
			`held by web (pid 7), reason "nightly\x1b"; unless it is renewed, its lease ends in 1m0s; 1 waiting ahead of us`},
		{&HeldError{Holder: Holder{Label: driver.Label{Host: "web", PID: os.Getpid(), Process: self().Process + "0"}.Encode()}},
			fmt.Sprintf("held by web (pid %d)", os.Getpid())}, // another boot's, or machine's
		{&Error{Op: "lock", Key: "k", Engine: "redis", Class: driver.ClassImpossible, Err: mistake{trouble}}, `hasp: lock "k": trouble`},
		{&Error{Op: "lock", Key: "k", Engine: "redis", Class: driver.ClassUnreachable, Err: io.ErrUnexpectedEOF}, `hasp: lock "k": redis: unexpected EOF`},
		{&Error{Op: "lock", Key: "k", Engine: "redis", Class: driver.ClassFull, Err: errors.New("redis: full")}, `hasp: lock "k": redis: full`},
		{&HeldError{Left: -1, Ahead: 2}, "held by " + Holder{}.String() + "; 2 waiting ahead of us"},
		{notThatOwner(Info{Held: true, Holder: Holder{Owner: "O"}, Leases: 1}), "not held by that owner, but by " + Holder{Owner: "O"}.String() + ", owner O"},
		{notThatOwner(Info{Held: true, Holder: Holder{Owner: "O"}, Leases: 3}), "not held by that owner, but by " + Holder{Owner: "O"}.String() + ", owner O, and 2 more"},
		{notThatOwner(Info{Held: true, Holder: Holder{Owner: "O", Foreign: true}}), "not held by that owner, but by " + Holder{Owner: "O", Foreign: true}.String()},
		{notThatOwner(Info{}), driver.ErrNotHeld.Error()},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%s, must be %s", got, c.want)
		}
	}
}

// An hour needs no milliseconds.
func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour + 400*time.Millisecond:            "1h0m0s",
		10 * time.Second:                            "10s",
		10*time.Second - 60*time.Millisecond:        "9.9s",
		10*time.Second - 1:                          "10s",
		1234 * time.Millisecond:                     "1.2s",
		time.Second:                                 "1s",
		999*time.Millisecond + 499*time.Microsecond: "999ms",
		1400 * time.Microsecond:                     "1ms",
		12340 * time.Millisecond:                    "12s",
		0:                                           "0s",
	} {
		if got := short(d); got != want {
			t.Errorf("%d: %s, must be %s", d, got, want)
		}
	}
}
