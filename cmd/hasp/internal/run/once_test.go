// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the machine may have no zones

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

func TestOccurrence(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	midnight := time.Date(2026, 10, 25, 0, 0, 0, 0, berlin) // the clocks go back on that day
	for _, behind := range []time.Duration{-5 * time.Second, 0, 5 * time.Second} {
		for at, want := range map[time.Duration]map[string]string{
			0:              {"@day": "2026-10-25+02:00", "@hour": "2026-10-24T22Z"},
			3 * time.Hour:  {"@day": "2026-10-25+02:00", "@hour": "2026-10-25T01Z"}, // 02:00 for the second time
			24 * time.Hour: {"@day": "2026-10-25+02:00", "@hour": "2026-10-25T22Z"},
			25 * time.Hour: {"@day": "2026-10-26+01:00", "@hour": "2026-10-25T23Z"},
		} {
			for once, want := range want {
				if got, err := occurrence(once, midnight.Add(at+behind)); got != want || err != nil {
					t.Errorf("%s at %v is %q, %v; want %q", once, midnight.Add(at+behind), got, err, want)
				}
			}
		}
	}
	if got, err := occurrence("@day", time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)); got != "2026-01-02Z" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	santiago, err := time.LoadLocation("America/Santiago")
	must(t, err)
	for at, want := range map[time.Time]string{ // a day without a midnight
		time.Date(2026, 9, 5, 12, 0, 0, 0, santiago): "2026-09-05-04:00",
		time.Date(2026, 9, 6, 1, 0, 0, 0, santiago):  "2026-09-06-04:00",
		time.Date(2026, 9, 6, 12, 0, 0, 0, santiago): "2026-09-06-04:00",
		time.Date(2026, 9, 7, 12, 0, 0, 0, santiago): "2026-09-07-03:00",
	} {
		if got, err := occurrence("@day", at); got != want || err != nil {
			t.Errorf("@day at %v is %q, %v; want %q", at, got, err, want)
		}
	}
	for _, bad := range []string{"", "@", "@week"} {
		if got, err := occurrence(bad, midnight); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
	if got, err := occurrence("2026\x1b[2J", midnight); got != "2026\x1b[2J" || err != nil { // any other text is itself
		t.Errorf("%q, %v", got, err)
	}
}

// onceJob is a job with --once monday on a store that fails so often to describe a key.
func onceJob(t *testing.T, fails int) *job {
	c, err := hasp.New(&vague{memdriver.New(), fails}, nil)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	o := &options{occurrence: "monday"}
	return &job{o: o, rep: newReport(o, []string{"k"}, &strings.Builder{}), keys: []string{"k"}, wait: newWatcher(nil), blocked: make(chan *base.Exit),
		signals: make(chan os.Signal, 1), once: c.Once("k", "monday", time.Hour, nil),
		from: &storeKeys{Locks: &base.Locks{Client: c}, lockers: hasp.Locks{c.Mutex("k", &hasp.LockOptions{MaxHold: time.Minute})}}}
}

type vague struct {
	driver.Driver
	fails int
}

func (v *vague) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if v.fails--; v.fails >= 0 {
		return driver.Info{}, errors.New("connection reset by peer")
	}
	return v.Driver.Inspect(ctx, key)
}

// Under the lock a store that fails for a moment is asked again; a signal ends that.
func TestMarkedInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := onceJob(t, 2).marked(false); err != nil {
			t.Error(err)
		}
		j, sent := onceJob(t, 1000), make(chan os.Signal, 1)
		j.signals = sent
		sent <- syscall.SIGTERM
		end, began := (*base.Exit)(nil), time.Now()
		if err := j.marked(false); !errors.As(err, &end) || end.Code != 143 || time.Since(began) > 0 {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		synctest.Wait()
	})
}

// Work whose lock is over cannot be noted, and that is said.
func TestMarkOfLostWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := onceJob(t, 0)
		leases, err := j.from.ask(t.Context(), 0)
		must(t, err)
		time.Sleep(2 * time.Minute)
		end := j.mark(leases)
		if end == nil || end.Code != base.ExitUnreachable || end.Verdict != unmarked {
			t.Fatalf("%+v", end)
		}
		t.Log(end.Message)
	})
}

// A run that another did counts as a success of the job at that time.
func TestDoneIsASuccess(t *testing.T) {
	j := onceJob(t, 0)
	leases, err := j.from.ask(t.Context(), 0)
	must(t, err)
	if end := j.mark(leases); end != nil {
		t.Fatal(end)
	}
	j.metrics = &jobMetrics{path: t.TempDir() + "/k.prom", figures: noFigures()}
	err = j.marked(true)
	j.measureEnd(nil, endOf(err))
	must(t, <-j.metrics.done)
	if f := j.metrics.figures; endOf(err).Verdict != "done" || time.Since(time.UnixMilli(int64(f[lastSuccess]*1000))) > time.Hour || f[lastExit] != 0 {
		t.Errorf("%v; %v", err, f)
	}
}
