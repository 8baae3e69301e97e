// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Each kind of invalid request is reported with its own reason.
func TestCheck(t *testing.T) {
	good := driver.Claim{Key: "k", Owner: strings.Repeat("A", driver.OwnerLen), Label: "{}"}
	claim := func(change func(c *driver.Claim)) driver.Claim {
		c := good
		change(&c)
		return c
	}
	for want, err := range map[string]error{
		"mode 2":             claim(func(c *driver.Claim) { c.Mode = 2 }).Check(),
		"the limit is -1":    claim(func(c *driver.Claim) { c.Mode, c.Limit = driver.Shared, -1 }).Check(),
		`owner "a" is not`:   claim(func(c *driver.Claim) { c.Owner = "a" }).Check(),
		"label has 513":      claim(func(c *driver.Claim) { c.Label = strings.Repeat("x", driver.MaxLabel+1) }).Check(),
		"the key is empty":   claim(func(c *driver.Claim) { c.Key = "" }).Check(),
		"the key has 513":    claim(func(c *driver.Claim) { c.Key = strings.Repeat("k", driver.MaxKey+1) }).Check(),
		"Shared only":        driver.TryRequest{Claim: good, TTL: time.Second, Convert: true}.Check(),
		"the TTL is 0s":      driver.TryRequest{Claim: good}.Check(),
		"the patience is 0":  driver.TryRequest{Claim: good, TTL: time.Second, Queue: true}.Check(),
		"the TTL is -1ns":    driver.RenewRequest{Claim: good, TTL: -1}.Check(),
		"the TTL is 0s: it":  driver.RenewRequest{Claim: good}.Check(),
		"patience is 0s: it": driver.RenewRequest{Claim: good, TTL: time.Second, Queue: true}.Check(),
		"the patience is -":  driver.RenewRequest{Claim: good, TTL: time.Second, Queue: true, Patience: -1}.Check(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := claim(func(c *driver.Claim) { c.Mode = 2 }).Check(); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a mode that nobody knows: %v, want ErrUnsupported", err)
	}
	largest := claim(func(c *driver.Claim) {
		c.Key, c.Label = strings.Repeat("\xff", driver.MaxKey), strings.Repeat("\x00", driver.MaxLabel)
	})
	for _, err := range []error{
		good.Check(), largest.Check(),
		driver.TryRequest{Claim: good, TTL: 1}.Check(),
		driver.RenewRequest{Claim: good, TTL: 1}.Check(),
		driver.RenewRequest{Claim: good, Queue: true, Patience: 1}.Check(), // a place has no TTL
	} {
		if err != nil {
			t.Error(err)
		}
	}
}
