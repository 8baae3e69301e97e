// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"os/user"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// A label says when its acquisition began, whatever else it says.
func TestLabelSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		for _, reason := range []string{"", "deploy", "2006-01-02T15:04:05.001Z", "\x00\"}"} {
			time.Sleep(time.Minute)
			lease := lock(t, c, "k", &hasp.LockOptions{Reason: reason})
			info, err := c.Inspect(t.Context(), "k")
			need(t, err)
			l, ok := driver.ParseLabel(info.Holder.Label)
			if !ok || l.Reason != reason || !l.Since.Equal(time.Now().Truncate(time.Millisecond)) {
				t.Errorf("%q: the label is %s", reason, info.Holder.Label)
			}
			release(t, lease)
		}
	})
}

// A label says who runs the process.
func TestLabelSaysWho(t *testing.T) {
	u, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	c := newClient(t, newStore(), nil)
	lock(t, c, "k", nil)
	info, err := c.Inspect(t.Context(), "k")
	need(t, err)
	if l := info.Holder.Describe(); l.User != u.Username {
		t.Errorf("the user is %q, must be %q", l.User, u.Username)
	}
}
