// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package gocronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/hasplock/hasp"
	gocronlock "github.com/hasplock/hasp/adapters/gocron"
	"github.com/hasplock/hasp/memdriver"
)

// client is one host's, of a store that all share.
func client(t *testing.T, store *memdriver.Store) *hasp.Client {
	c, err := hasp.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// schedule has a scheduler run the job now, and returns what came of it.
func schedule(t *testing.T, o gocron.SchedulerOption, job func()) <-chan error {
	s, err := gocron.NewScheduler(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	done := make(chan error, 1)
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(job), gocron.WithName("report"), gocron.WithEventListeners(
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { done <- err }),
		gocron.AfterJobRuns(func(uuid.UUID, string) { done <- nil })))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	return done
}

// Of three schedulers one runs the job of an occurrence, also when the others come after its end.
func TestOneRunsIt(t *testing.T) {
	store := memdriver.New()
	var runs atomic.Int32
	start := func(occurrence string) <-chan error {
		return schedule(t, gocron.WithDistributedLocker(gocronlock.NewLocker(client(t, store), func(time.Time) string { return occurrence }, time.Hour, nil)), func() { runs.Add(1) })
	}
	all := []<-chan error{start("monday"), start("monday"), start("monday")}
	done := 0
	for _, one := range all {
		if err := <-one; errors.Is(err, gocronlock.ErrDone) {
			done++
		} else if err != nil {
			t.Error(err)
		}
	}
	if late := <-start("monday"); runs.Load() != 1 || done != 2 || !errors.Is(late, gocronlock.ErrDone) {
		t.Errorf("it ran %d times, was done for %d, and a late one says %v", runs.Load(), done, late)
	}
	if err := <-start("tuesday"); err != nil || runs.Load() != 2 {
		t.Errorf("another occurrence: %v, %d runs", err, runs.Load())
	}
}

func TestNearest(t *testing.T) {
	hour := gocronlock.Nearest(time.Hour)
	at := time.Date(2026, 11, 30, 2, 0, 0, 0, time.FixedZone("", 3600))
	for _, off := range []time.Duration{-5 * time.Second, 0, 5 * time.Second} {
		if got := hour(at.Add(off)); got != "2026-11-30T01:00:00Z" {
			t.Error(got)
		}
	}
}

// One leads; when its process gives up, another does.
func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		ctx, resign := context.WithCancel(t.Context())
		first := gocronlock.NewElector(ctx, client(t, store), "scheduler", nil)
		synctest.Wait()
		second := gocronlock.NewElector(t.Context(), client(t, store), "scheduler", nil)
		synctest.Wait()
		if one, two := first.IsLeader(t.Context()), second.IsLeader(t.Context()); one != nil || !errors.Is(two, gocronlock.ErrFollower) {
			t.Errorf("the first one: %v, the second one: %v", one, two)
		}
		resign()
		synctest.Wait()
		if one, two := first.IsLeader(t.Context()), second.IsLeader(t.Context()); !errors.Is(one, gocronlock.ErrFollower) || two != nil {
			t.Errorf("after the first one resigned: %v, the second one: %v", one, two)
		}
	})
}

// An elector whose client is closed says why it follows.
func TestElectorOfAClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := client(t, memdriver.New())
		_ = locks.Close()
		e := gocronlock.NewElector(t.Context(), locks, "scheduler", nil)
		synctest.Wait()
		if err := e.IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrFollower) || !errors.Is(err, hasp.ErrClosed) {
			t.Error(err)
		}
	})
}
