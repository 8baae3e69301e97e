// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
)

var _ driver.Examiner = (*Driver)(nil)

// longStop is how long a leader can be stopped and still be the leader afterwards, with ZooKeeper's defaults: its followers leave it after
// syncLimit ticks, five of two seconds. A session that may end within that, counted from a sign of life that it had, is short.
const (
	longStop     = 10 * time.Second
	shortSession = longStop * 6 / 5
)

// Examine implements [driver.Examiner]: the session that the servers granted.
func (d *Driver) Examine(ctx context.Context) ([]driver.Finding, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	s, err := d.c.session(ctx)
	if err != nil {
		return nil, err
	}
	f := driver.Finding{Level: driver.LevelOK, Check: "session", Text: fmt.Sprintf("%s has a session of %v for this process, and so leases of at most %v",
		d.c.zk.Server(), s.Timeout(), d.Traits().MaxTTL)}
	switch {
	case s.Timeout() < d.c.timeout:
		f.Level = driver.LevelWarn
		f.Text += fmt.Sprintf(": %v were asked for, and its maxSessionTimeout is shorter", d.c.timeout)
	case s.Timeout() > d.c.timeout:
		f.Level = driver.LevelWarn
		f.Text += fmt.Sprintf(": %v were asked for, and its minSessionTimeout is longer: so long does what a process that dies held last", d.c.timeout)
	}
	found := []driver.Finding{f}
	if s.Timeout() < shortSession {
		found = append(found, driver.Finding{Level: driver.LevelWarn, Check: "leader", Text: fmt.Sprintf("a session of %v is over while a leader is stopped, "+
			"which may be for syncLimit ticks (%v by default): when it goes on, a key may have two holders if the first is cut off at that moment. Ask for %v or more",
			s.Timeout(), longStop, shortSession)})
	}
	return found, nil
}
