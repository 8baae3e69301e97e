// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// Relay passes on what f makes of each hint, until ctx ends; not those for which it says false.
func Relay(ctx context.Context, in <-chan driver.Hint, f func(driver.Hint) (driver.Hint, bool)) <-chan driver.Hint {
	if in == nil {
		return nil
	}
	out := make(chan driver.Hint, 1)
	go func() {
		for {
			select {
			case h, open := <-in:
				if !open { // against the contract of Watch: nothing more comes
					return
				}
				if h, ok := f(h); ok {
					h.Send(out)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
