// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "github.com/hasplock/hasp/driver"

// Mode is how a key is held. The zero value is Exclusive.
type Mode = driver.Mode

// The modes.
const (
	Exclusive = driver.Exclusive // one holder
	Shared    = driver.Shared    // readers, or the holders of a semaphore's slots
)

// Info describes a key in the store.
type Info = driver.Info

// Holder is somebody who holds a key or waits for it.
type Holder = driver.Holder
