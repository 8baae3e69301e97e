// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

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
		{&HeldError{Left: 1, Ahead: 1}, "held by " + Holder{}.String() + ", 0s left, 1 waiting ahead of us"},
		{&HeldError{Left: -1, Ahead: 2}, "held by " + Holder{}.String() + ", 2 waiting ahead of us"},
		{notThatOwner(Info{Held: true, Holder: Holder{Owner: "O"}, Holds: 1}), "not held by that owner, but by " + Holder{Owner: "O"}.String() + ", owner O"},
		{notThatOwner(Info{Held: true, Holder: Holder{Owner: "O"}, Holds: 3}), "not held by that owner, but by " + Holder{Owner: "O"}.String() + ", owner O, and 2 more"},
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
		if got := shortDuration(d); got != want {
			t.Errorf("%d: %s, must be %s", d, got, want)
		}
	}
}
