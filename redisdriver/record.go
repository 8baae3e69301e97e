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
)

// Record returns the server's node record; see [driver.Recorded].
func (n *Node) Record(ctx context.Context) (driver.Record, error) {
	if n.bad != nil {
		return driver.Record{}, n.bad
	}
	reply, err := n.send.do(ctx, &call{script: recordScript, keys: []any{recordKey}, args: []any{rand.Text()}})
	if err != nil {
		return driver.Record{}, err
	}
	r := newReply(reply)
	rec := driver.Record{Text: next[string](r), Node: next[string](r)}
	if f := strings.Fields(rec.Text); len(f) == 3 && f[0] == "ok" {
		ms, err := strconv.ParseInt(f[2], 10, 64)
		rec.Voting, rec.MaxTTL, r.bad = true, span(ms), r.bad || err != nil || ms <= 0
	}
	switch {
	case r.bad:
		return driver.Record{}, errReply
	case rec.Node == "":
		return driver.Record{}, errNameless
	}
	return rec, nil
}

// errNameless is of a server that cannot be told from another, or from itself
// before a restart.
var errNameless = &configError{"INFO of this server has no run_id of 40 hexadecimal digits, by which a restart is noticed: " +
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
	reply, err := n.send.do(ctx, &call{
		script: admitScript, keys: []any{markKey, recordKey, proposedKey}, args: []any{r.Text, millis(maxTTL)},
	})
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply == int64(0):
		return driver.ErrNotHeld
	}
	return errReply
}
