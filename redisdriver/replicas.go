// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// ReplicasError reports that fewer replicas (Got) than [Options].Replicas (Want) confirmed a request in time, so that a failover may
// undo it. A requested lease is not granted then, and a lease that was to be renewed lasts no longer.
type ReplicasError = wire.ReplicasError

// confirm waits until the replicas confirm a lease that was granted. It renews it for that: a renewal always writes.
func (d *Driver) confirm(ctx context.Context, r driver.RenewRequest, granted driver.Result) (res driver.Result, err error) {
	one := []driver.RenewRequest{r}
	j := d.leaseJobs(one, []int{0}, "")[0]
	if _, err := d.renew.Do(ctx, j.call); err != nil {
		return res, fmt.Errorf("redis: asking the replicas: %w", err) // never NotSent: the lease was granted
	}
	d.report(one, j, func(_ int, answer driver.Renewal) { err = answer.Err })
	if errors.Is(err, driver.ErrNotHeld) {
		err = &ReplicasError{Want: d.renew.Replicas(), Gone: true}
	}
	if err != nil {
		return res, err
	}
	return granted, nil
}
