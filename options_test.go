// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// The bounds of the options are themselves allowed, and what is beyond them is named.
func TestLockOptionsBounds(t *testing.T) {
	tr := driver.Traits{Engine: "e", MinTTL: 100 * time.Millisecond, MaxTTL: time.Hour}
	usable := 10*time.Second - drift(10*time.Second)
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
		_, err := c.o.normal(tr)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	// An engine without bounds: something has to be left of the TTL.
	for ttl, want := range map[time.Duration]string{
		-1: "must be positive", 2020202 * time.Nanosecond: "nothing is left of it", 2020203 * time.Nanosecond: "", 1000 * time.Hour: "",
	} {
		if _, err := (&LockOptions{TTL: ttl}).normal(driver.Traits{}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("TTL %d: %v, want %q", ttl, err, want)
		}
	}
}
