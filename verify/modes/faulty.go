// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"fmt"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/verify/broken"
)

// faults are what a client can do without, by name, to show that each oracle notices.
var faults = map[string]broken.Fault{
	"":                        nil,
	"one more than the limit": broken.OneMore,
	"one slot for all":        broken.OneSlot,
	"writers share":           broken.EverybodyShares,
	"fences fall":             broken.FallingFences,
	"leases too long":         broken.TooLong,
	"deaths hidden":           broken.DeathsHidden,
	"deaths made up":          broken.DeathsMadeUp,
	"nothing released":        broken.All(broken.Outliving, broken.NoRelease),
	"no hints":                broken.All(broken.NoHints, broken.NoRetry),
	"the dead hold on":        broken.Outliving,
}

// faulty wraps a driver with the named fault; an empty name means none.
func faulty(d driver.Driver, name string) (driver.Driver, error) {
	f, ok := faults[name]
	if !ok {
		return nil, fmt.Errorf("no fault is called %q", name)
	}
	return broken.Around(d, f), nil
}
