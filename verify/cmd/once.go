// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
)

// occurrences are a job that many processes plan for the same times, by clocks that differ, while processes are killed.
type occurrences struct {
	Kind   engines.Kind
	Addrs  []string
	N      int           // how many there are
	Start  time.Time     // of the first
	Period time.Duration // from each to the next
	Skew   time.Duration // the process's clock is ahead by so much
	Late   bool          // it was begun anew: it looks after the latest ones
}

// onceBack is how far a process that was begun anew looks back.
const onceBack = 10 * time.Second

const onceEnv = "HASP_VERIFY_ONCE"

// occurred is what a process says: that it begins an occurrence, that it has done it, or that it is over.
type occurred struct {
	N         int
	Fence     uint64
	Abandoned bool
	Done      bool
	Failed    bool // what it began last
	Over      bool
}

func init() { player.Main(onceEnv, serveOccurrences) }

func serveOccurrences(in io.Reader, out io.Writer) error {
	var o occurrences
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	conn, err := engines.Open(o.Kind, o.Addrs)
	if err != nil {
		return err
	}
	c, err := conn.Client(nil)
	if err != nil {
		return err
	}
	say := json.NewEncoder(out)
	i := 0
	if o.Late {
		i = max(0, int((time.Since(o.Start)+o.Skew-onceBack)/o.Period))
	}
	for ; i < o.N; i++ {
		time.Sleep(time.Until(o.Start.Add(time.Duration(i)*o.Period - o.Skew)))
		_, err := c.Once("job", strconv.Itoa(i), time.Hour, &hasp.LockOptions{TTL: 2 * time.Second}).Do(context.Background(), func(_ context.Context, l *hasp.Lease) error {
			if err := say.Encode(occurred{N: i, Fence: l.Fence(), Abandoned: l.Abandoned()}); err != nil {
				return err
			}
			time.Sleep(rand.N(5 * time.Millisecond))
			return say.Encode(occurred{N: i, Fence: l.Fence(), Done: true})
		})
		if err := say.Encode(occurred{Failed: err != nil}); err != nil { // another runs it, and is told
			return err
		}
	}
	return say.Encode(occurred{Over: true})
}

func onces(flags *flag.FlagSet) func(*testserver.Program) {
	processes := flags.Int("processes", 50, "how many plan the job")
	n := flags.Int("n", 1000, "for how many times")
	period := flags.Duration("period", 100*time.Millisecond, "from each of these to the next")
	skew := flags.Duration("skew", 5*time.Second, "the clocks are ahead, or behind, by at most so much")
	kill := flags.Duration("kill", 250*time.Millisecond, "a process is killed, and begun anew, so often")
	return func(t *testserver.Program) {
		for name, kind := range map[string]engines.Kind{"SQLite": engines.SQLite, "Redis": engines.Redis, "PostgreSQL": engines.Postgres} {
			o := occurrences{Kind: kind, Addrs: engines.Start(t, kind).Addrs(), N: *n, Period: *period, Start: time.Now().Add(*skew + time.Second)}
			o.run(t, name, *processes, *skew, *kill)
		}
	}
}

// run has the processes run the job, and judges: each occurrence was done, and begun more than once only by a holder that was told.
func (o *occurrences) run(t *testserver.Program, name string, processes int, skew, kill time.Duration) {
	var mu sync.Mutex
	begun, done, failed := map[int][]occurred{}, map[int]int{}, 0
	over := make(chan struct{}, processes)
	victim := make(chan int) // a process that begins while the next one is to be killed at its work
	spawn := func(i int, late bool) *player.Process {
		job := *o
		job.Late = late
		job.Skew = time.Duration(2*rand.Float64()*float64(skew)) - skew
		p, err := player.Spawn(i, onceEnv, job, func(e occurred) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case e.Over:
				over <- struct{}{}
			case e.Done:
				done[e.N]++
			case e.Failed:
				failed++
			case e.Fence > 0:
				begun[e.N] = append(begun[e.N], e)
				select {
				case victim <- i: // in its work, or about its mark
				default:
				}
			}
		})
		t.Must(err)
		return p
	}
	all := make([]*player.Process, processes)
	for i := range all {
		all[i] = spawn(i, false)
	}
	defer func() {
		for _, p := range all {
			p.Kill()
		}
	}()
	kills := 0
	for end := o.Start.Add(time.Duration(o.N)*o.Period - skew); time.Now().Before(end) && t.Context().Err() == nil; kills++ { // until the first of them may be over
		time.Sleep(kill)
		i := rand.IntN(processes)
		if kills%4 == 0 {
			select {
			case i = <-victim:
				time.Sleep(rand.N(8 * time.Millisecond))
			case <-time.After(kill):
			}
		}
		all[i].Kill()
		all[i] = spawn(i, true)
	}
	for range processes {
		select {
		case <-over:
		case <-t.Context().Done():
			return
		}
	}
	missed, twice, silent := 0, 0, 0
	for i := range o.N {
		if done[i] == 0 {
			missed++
		}
		runs := begun[i]
		slices.SortFunc(runs, func(a, b occurred) int { return int(a.Fence) - int(b.Fence) })
		for _, r := range runs[min(1, len(runs)):] {
			if twice++; !r.Abandoned {
				silent++
			}
		}
	}
	fmt.Printf("%s: %d processes, %d occurrences, clocks ± %v, %d kills: %d begun again after a crash, %d of these untold, %d never done; %d errors\n",
		name, processes, o.N, skew, kills, twice, silent, missed, failed)
	if missed+silent > 0 {
		t.Errorf("%s: an occurrence was done twice without a word, or never", name)
	}
}
