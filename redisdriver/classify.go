// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// Classify returns the class of an error; see [driver.Driver].
func (d *Driver) Classify(err error) driver.Class {
	var data *DataError
	var later *LayoutError
	if errors.As(err, &data) || errors.As(err, &later) {
		return driver.ClassImpossible
	}
	return wire.Classify(err)
}

// TypeError reports a lock key (Key, as Redis calls it) that holds another type of Redis value (Type), which is left
// unchanged.
type TypeError = wire.TypeError

// SentinelsError reports that none of the Sentinels of a failover client said which server is the master: they cannot be reached,
// or refused the login, which is another than that of the servers.
type SentinelsError = wire.SentinelsError

// Explained is an error of a go-redis client in words of this package, where go-redis's mislead.
func Explained(err error) error { return wire.Explained(err) }
