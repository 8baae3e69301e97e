// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicaTime is for how long a master waits for its replicas at most.
const replicaTime = time.Second

// ReplicasError reports that fewer replicas than Options.Replicas confirmed a request in time, so that a failover may undo it. A
// requested lease is not granted then, and a lease that was to be renewed lasts no longer.
type ReplicasError struct {
	Want, Got int

	Gone bool // the lease was gone before
}

func (e *ReplicasError) Error() string {
	if e.Gone {
		return "redis: the lease was gone before replicas confirmed it: another master took over, somebody broke it, or its TTL was over"
	}
	return fmt.Sprintf("redis: %d of %d replicas confirmed in time: see INFO replication on the master", e.Got, e.Want)
}

// replicate carries out commands about keys of one master, over one connection: WAIT is about what its own connection wrote. short
// is why none of them counts; all is what the pipeline said.
func (s *Sender) replicate(ctx context.Context, cmds []*command) (short, all error) {
	rdb, wait := s.rdb, replicaTime
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(at)*3/4)
	}
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, cmds[0].calls[0].Keys[0].(string))
		if err != nil {
			return err, err
		}
		rdb, wait = node, shorter(wait, c.Options().ReadTimeout)
		defer func() {
			if all != nil { // the node may no longer be the master, which its own client does not look after
				c.ReloadState(ctx)
			}
		}()
	case *redis.Client:
		wait = shorter(wait, c.Options().ReadTimeout)
	}
	p := rdb.Pipeline()
	for _, cmd := range cmds {
		_ = p.Process(ctx, cmd) // is queued only: its outcome is the command's own
	}
	confirmed := redis.NewIntCmd(ctx, "wait", s.replicas, max(wait.Milliseconds(), 1)) // 0: for ever
	_ = p.Process(ctx, confirmed)
	_, all = p.Exec(ctx)
	n, err := confirmed.Result()
	if err == nil && int(n) < s.replicas {
		err = &ReplicasError{Want: s.replicas, Got: int(n)}
	}
	return err, all
}

// shorter is wait, or half of what the client gives an answer; 0: any time.
func shorter(wait, timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return wait
	}
	return min(wait, timeout/2)
}
