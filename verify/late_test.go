// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

var lateRounds = flag.Int("late", 2*lateKeys, "how often a holder wakes up late, for each storage")

const (
	lateEnv  = "HASP_VERIFY_LATE"
	lateKeys = 50 // how many are held by the process that is stopped
)

// Rule: a holder that wakes up after its lease ended, and writes, changes nothing that a later holder
// wrote, if a guard compares the fences; and without one it does.
func TestWakesUpLate(t *testing.T) {
	server := testserver.Redis(t)
	locks, adm := server.Addr(), admin(t, server)
	for kind, place := range storages {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			job := lateJob{kind, place(t), locks}
			s, err := openStorage(kind, job.At)
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			c := Locks(t, locks, nil)
			rounds, guarded, plain := 0, 0, 0
			for ; rounds < *lateRounds; rounds += lateKeys {
				g, p := job.round(t, s, c, adm)
				guarded, plain = guarded+g, plain+p
			}
			if guarded != 0 || plain == 0 {
				t.Errorf("of %d late writes the guard let in %d; without it %d changed something", rounds, guarded, plain)
			}
		})
	}
}

// lateJob is what the process that is stopped is told.
type lateJob struct{ Kind, At, Locks string }

// round has a process hold all keys, and stops it; writes what they guard as their next holder; and has
// the process go on and write. It returns how many of its writes had an effect, with a guard and without.
func (j lateJob) round(t *testing.T, s storage, c *hasp.Client, adm *redis.Client) (guarded, plain int) {
	t.Helper()
	said := make(chan []bool, 2)
	p, err := player.Spawn(1, lateEnv, j, func(refused []bool) { said <- refused })
	must(t, err)
	t.Cleanup(p.Kill)
	next := func() []bool {
		select {
		case refused := <-said:
			return refused
		case <-p.Ended:
		}
		select {
		case refused := <-said:
			return refused
		default:
			t.Fatalf("the holder ended: %s", p.Last())
			panic("unreachable")
		}
	}
	next()
	must(t, p.Pause())
	values := make([]string, lateKeys)
	err = eachKey(func(i int) error {
		if n, err := adm.PExpire(t.Context(), "lock:"+lateName(j.Kind, i), time.Millisecond).Result(); err != nil || !n { // its lease ends
			return fmt.Errorf("there is no lease to end: %w", err)
		}
		lease, err := c.Mutex(lateName(j.Kind, i), &hasp.LockOptions{TTL: time.Hour}).Lock(t.Context())
		if err != nil {
			return err
		}
		values[i] = fmt.Sprint("later ", lease.Fence())
		return errors.Join(s.write(t.Context(), true, lateName("guarded", i), values[i], lease.Fence()),
			s.write(t.Context(), false, lateName("plain", i), values[i], lease.Fence()), lease.Release())
	})
	must(t, err)
	p.Send("write")
	must(t, p.Resume())
	refused := next()
	for i, want := range values {
		with, err := s.read(t.Context(), lateName("guarded", i))
		without, e := s.read(t.Context(), lateName("plain", i))
		must(t, errors.Join(err, e))
		if with != want || !refused[i] {
			guarded++
		}
		if without != want {
			plain++
		}
	}
	return guarded, plain
}

func lateName(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }

// eachKey does something for each key at once.
func eachKey(do func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, lateKeys)
	for i := range errs {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lateMain turns this process into the holder that is stopped: it locks all keys, says so, and writes once it is
// told to, as if it had looked at its leases before it was stopped.
func lateMain() {
	player.Main(lateEnv, func(in io.Reader, out io.Writer) error {
		var j lateJob
		lines := bufio.NewScanner(in)
		if lines.Scan(); json.Unmarshal(lines.Bytes(), &j) != nil {
			return fmt.Errorf("no job: %q, %w", lines.Text(), lines.Err())
		}
		s, err := openStorage(j.Kind, j.At)
		if err != nil {
			return err
		}
		c, err := hasp.New(redisdriver.New(redis.NewClient(&redis.Options{Addr: j.Locks, PoolSize: lateKeys, ReadTimeout: soon}), nil), nil)
		if err != nil {
			return err
		}
		leases, refused, say := make([]*hasp.Lease, lateKeys), make([]bool, lateKeys), json.NewEncoder(out)
		err = eachKey(func(i int) (err error) {
			leases[i], err = c.Mutex(lateName(j.Kind, i), &hasp.LockOptions{TTL: time.Hour}).Lock(context.Background())
			return err
		})
		if err = errors.Join(err, say.Encode(refused)); err != nil {
			return err
		}
		lines.Scan()
		err = eachKey(func(i int) error {
			n := leases[i].Fence()
			value := fmt.Sprint("late ", n)
			err := s.write(context.Background(), true, lateName("guarded", i), value, n)
			if refused[i] = errors.Is(err, fence.ErrStale); refused[i] {
				err = nil
			}
			return errors.Join(err, s.write(context.Background(), false, lateName("plain", i), value, n))
		})
		return errors.Join(err, say.Encode(refused))
	})
}
