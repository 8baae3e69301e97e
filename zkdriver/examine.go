// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"fmt"

	"github.com/hasplock/hasp/driver"
)

var _ driver.Examiner = (*Driver)(nil)

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
	return []driver.Finding{f}, nil
}
