// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hasplock/hasp/driver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var _ driver.Examiner = (*Driver)(nil)

// Examine implements [driver.Examiner]: what each member says of itself, and the alarms.
func (d *Driver) Examine(ctx context.Context) ([]driver.Finding, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	endpoints := d.client.Endpoints()
	states, errs := make([]*clientv3.StatusResponse, len(endpoints)), make([]error, len(endpoints))
	var asked sync.WaitGroup
	for i, endpoint := range endpoints {
		asked.Go(func() { states[i], errs[i] = d.client.Status(ctx, endpoint) })
	}
	asked.Wait()
	var found []driver.Finding
	say := func(level driver.Level, check, format string, args ...any) {
		found = append(found, driver.Finding{Level: level, Check: check, Text: fmt.Sprintf(format, args...)})
	}
	answers := 0
	for i, endpoint := range endpoints {
		switch s := states[i]; {
		case errs[i] != nil:
			say(driver.LevelWarn, "member", "%s does not answer: %v", endpoint, errs[i])
		case s.Leader == 0:
			answers++
			say(driver.LevelWarn, "member", "%s has no leader: it is cut off from the others, or too few of them run", endpoint)
		default:
			answers++
			say(driver.LevelOK, "member", "%s is etcd %s, and has a leader", endpoint, s.Version)
			if revokesRenewed(s.Version) {
				say(driver.LevelWarn, "version", "%s: etcd %s may revoke leases that were renewed, after its leader was stalled: take 3.4.31, 3.5.13 or later", endpoint, s.Version)
			}
		}
	}
	if answers == 0 {
		return found, errors.Join(errs...)
	}
	alarms, err := d.client.AlarmList(ctx)
	if err != nil { // it is for administrators only, where etcd has users
		return found, nil //nolint:nilerr // the rest was found
	}
	for _, a := range alarms.Alarms {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			say(driver.LevelFail, "space", "etcd is out of space (NOSPACE), and grants nothing: compact and defragment it, then etcdctl alarm disarm")
		}
	}
	return found, nil
}

// revokesRenewed reports whether a version has etcd's issue 15247.
func revokesRenewed(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 || major != 3 {
		return false
	}
	return minor < 4 || minor == 4 && patch < 31 || minor == 5 && patch < 13
}
