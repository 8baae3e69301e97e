// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
)

var must = expect.Need

func quietJob(signals <-chan os.Signal) *job {
	o := &options{}
	rep := newReport(o, []string{"a", "b"}, io.Discard)
	return &job{o: o, rep: rep, keys: rep.keys, wait: newWatcher(rep), signals: signals, failing: map[string]bool{}}
}

// A store that does not answer does not delay signals.
func TestSignalWhileAStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		j := quietJob(signals)
		never, start := make(chan struct{}), time.Now()
		go func() {
			time.Sleep(time.Hour)
			signals <- syscall.SIGTERM
		}()
		err := j.finish(func() error { <-never; return nil })
		if took := time.Since(start); !errors.Is(err, errReleaseUnanswered) || took != time.Hour+base.SilentLimit {
			t.Errorf("%v after %v", err, took)
		}
		if j.received != syscall.SIGTERM {
			t.Errorf("heard %v", j.received)
		}
		close(never)
	})
}

// silentStore answers nothing from some time on, whatever the contexts say.
type silentStore struct {
	driver.Driver
	silent chan struct{} // closed: no answers
	answer chan struct{} // closed: again
}

func (s *silentStore) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	select {
	case <-s.silent:
		<-s.answer
	default:
	}
	return s.Driver.Try(ctx, r)
}

// The first signal ends the wait for several keys, the second one the wait for
// those that are released.
func TestSignalsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentStore{memdriver.New(), make(chan struct{}), make(chan struct{})}
		c, err := hasp.New(store, nil)
		must(t, err)
		close(store.silent)
		signals := make(chan os.Signal, 2)
		j := quietJob(signals)
		j.from = &storeKeys{lockers: hasp.Locks{c.Mutex("a", nil), c.Mutex("b", nil)}}
		signals <- syscall.SIGINT
		signals <- syscall.SIGTERM
		start := time.Now()
		_, err = j.acquire()
		var end *base.Exit
		if !errors.As(err, &end) || end.Code != 130 || !strings.Contains(end.Message, `"a", "b"`) {
			t.Errorf("%v", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("it waited for %v", time.Since(start))
		}
		close(store.answer)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A candidate's own end is not passed on to its command.
func TestSignalsOfACandidate(t *testing.T) {
	for _, at := range []struct {
		sig                            syscall.Signal
		runs, candidate, atTheTerminal bool
	}{
		{syscall.SIGINT, true, true, true},
		{syscall.SIGTERM, true, true, true},
		{syscall.SIGQUIT, true, true, true},
		{syscall.SIGHUP, true, false, true},
	} {
		run, c, terminal := quietJob(nil), quietJob(nil), quietJob(nil)
		c.candidate, terminal.candidate = &candidate{}, &candidate{terminal: true}
		if run.ends(at.sig) != at.runs || c.ends(at.sig) != at.candidate || terminal.ends(at.sig) != at.atTheTerminal {
			t.Errorf("%v ends hasp run: %v, hasp elect: %v, at a terminal: %v", at.sig, run.ends(at.sig), c.ends(at.sig), terminal.ends(at.sig))
		}
	}
}

// The pause between two terms grows, and a term that lasted makes it short again.
func TestPauseOfACandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := quietJob(nil)
		j.candidate = &candidate{}
		failed := &base.Exit{Code: base.ExitUnreachable, Verdict: "unreachable"}
		for i, want := range []float64{1, 2, 4, 8, 16, 32, 60, 60} {
			start := time.Now()
			must(t, j.rest(nil, failed, time.Hour))
			if took := time.Since(start); took.Seconds() != want {
				t.Errorf("pause %d: %v, want %v s", i, took, want)
			}
		}
		start := time.Now()
		if err := j.rest(&child.Status{}, nil, mostPause); err != nil || time.Since(start) != leastPause {
			t.Errorf("after a long term: %v, %v", time.Since(start), err)
		}
	})
}

// If leases have ended when the command would begin, it does not, and that is
// said with the code of a lost lock.
func TestLeaseIsOverBeforeTheCommandBegins(t *testing.T) {
	c, err := hasp.New(memdriver.New(), nil)
	must(t, err)
	defer c.Close()
	for _, onLost := range []string{lostTerm, lostIgnore} {
		leases, err := hasp.Locks{c.Mutex("a", &hasp.LockOptions{MaxHold: 50 * time.Millisecond})}.Lock(t.Context())
		must(t, err)
		<-leases.Done()
		ran := filepath.Join(t.TempDir(), "ran")
		j := quietJob(nil)
		j.o.onLost.Word, j.from = onLost, &storeKeys{Locks: &base.Locks{Client: c}}
		j.path, j.argv = "/bin/sh", []string{"sh", "-c", `echo >"$0"`, ran}
		var end *base.Exit
		if st, err := j.hold(&storeLeases{Leases: leases}); st != nil || !errors.As(err, &end) || end.Code != base.ExitLost || !strings.Contains(end.Message, "was not started") {
			t.Errorf("on-lost=%s: %+v, %v", onLost, st, err)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("on-lost=%s: the command ran", onLost)
		}
		j.candidate = &candidate{}
		if j.over(nil, end) {
			t.Errorf("on-lost=%s: it is the end of a candidacy", onLost)
		}
	}
}
