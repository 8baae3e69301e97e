// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// Record returns the server's node record; see [driver.Recorded].
func (n *Node) Record(ctx context.Context) (driver.Record, error) {
	if n.bad != nil {
		return driver.Record{}, n.bad
	}
	reply, err := n.send.Do(ctx, &wire.Call{Script: recordScript, Keys: []any{recordKey}, Args: []any{rand.Text()}})
	if err != nil {
		return driver.Record{}, err
	}
	r := wire.NewReply(reply)
	rec := driver.Record{Text: wire.Next[string](r), Node: wire.Next[string](r)}
	if err := newer(recordKey, rec.Text); err != nil {
		return driver.Record{}, err
	}
	if f := strings.Fields(rec.Text); len(f) == 3 && f[0] == "ok" {
		ms, err := strconv.ParseInt(f[2], 10, 64)
		rec.Voting, rec.MaxTTL, r.Bad = true, wire.Span(ms), r.Bad || err != nil || ms <= 0
	}
	switch {
	case r.Bad:
		return driver.Record{}, wire.ErrReply
	case rec.Node == "":
		return driver.Record{}, errNameless
	}
	return rec, nil
}

// errNameless is of a server that cannot be told from another, or from itself
// before a restart.
var errNameless = &wire.ConfigError{Why: "INFO of this server has no run_id of 40 hexadecimal digits, by which a restart is noticed: " +
	"take a server that has it, or do without a node record (max-ttl= in a store's URL)"}

// Admit lets the server vote; see [driver.Recorded]. maxTTL is at least 10 ms, and
// is rounded up to milliseconds.
func (n *Node) Admit(ctx context.Context, r driver.Record, maxTTL time.Duration) error {
	if n.bad != nil {
		return n.bad
	}
	if maxTTL < minTTL {
		return fmt.Errorf("redis: a node is admitted for leases of %v at least, not %v", minTTL, maxTTL)
	}
	reply, err := n.send.Do(ctx, &wire.Call{
		Script: admitScript, Keys: []any{markKey, recordKey, proposedKey}, Args: []any{r.Text, wire.Millis(maxTTL)},
	})
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply == int64(0):
		return driver.ErrNotHeld
	}
	return wire.ErrReply
}
