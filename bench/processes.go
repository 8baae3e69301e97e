// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/history"
)

// s12 is processes that contend for one file.
var s12 = scenario{
	name:  "s12",
	title: "one hot key in a file, processes of one machine, held for 1 ms",
	about: "Eight processes with a lock in one file between them: each locks the one key, holds it for 1 ms and releases it, over and over, for two seconds. " +
		"Waits, handoffs and fairness are counted as in S2, with processes in place of clients. flock(2) lets a process that has just released take " +
		"the lock again, past those that wait, and keeps no order.",
	metrics:  only(contended, "handoffs", "grants", "p99", "longest", "fairness", "never"),
	variants: []variant{{"8 processes", 8}},
	own:      filePeers,
	limit:    time.Minute,
	run:      runProcesses,
}

// booked keeps a book of the turns of one worker.
type booked struct {
	locker
	turns []turn
}

// turn is one Lock and what came of it: instants of a clock that all processes of the machine share.
type turn struct {
	Asked, Answered time.Duration
	Released        time.Duration // 0: it was not granted
}

func now() time.Duration {
	i := clock.System()
	return cmp.Or(i.Boot, i.Wall)
}

func (l *booked) Lock(ctx context.Context, key string) (unlock, error) {
	t := turn{Asked: now()}
	release, err := l.locker.Lock(ctx, key)
	t.Answered = now()
	if err != nil {
		l.turns = append(l.turns, t)
		return nil, err
	}
	return func(ctx context.Context) error {
		t.Released = now()
		l.turns = append(l.turns, t)
		return release(ctx)
	}, nil
}

// contendInChild contends between two lines of its standard input, and prints its turns.
func contendInChild(ctx context.Context, l locker, key string) error {
	defer l.Close()
	g := new(guard)
	if err := (&worker{locker: l, key: "warm/" + strconv.Itoa(os.Getpid()), guard: g}).turn(ctx, ctx, 0); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	waits, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = in.ReadString('\n')
		stop()
	}()
	b := &booked{locker: l}
	if err := (&worker{locker: b, key: key, guard: g}).work(ctx, waits, time.Millisecond, func() {}); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(b.turns)
}

func runProcesses(ctx context.Context, e *env, v variant, p *peer) (f figures, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the children
	to := e.target
	if to.Dir, err = os.MkdirTemp("", "hasp-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(to.Dir)
	all := make([]*process, v.n)
	for i := range all {
		if all[i], err = (task{"contend", p.name, to, hotKey}).start(ctx); err != nil {
			return nil, err
		}
	}
	each := func(f func(c *process) error) error {
		for _, c := range all {
			if err := f(c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := each(func(c *process) error { return c.expect("ready") }); err != nil {
		return nil, err
	}
	begin := now()
	if err := each(func(c *process) error { _, err := io.WriteString(c.in, "begin\n"); return err }); err != nil {
		return nil, err
	}
	if err := pause(ctx, e.lasts(2*time.Second)); err != nil {
		return nil, err
	}
	end := now()
	if err := each(func(c *process) error { _, err := io.WriteString(c.in, "end\n"); return err }); err != nil {
		return nil, err
	}
	var turns [][]turn
	if err := each(func(c *process) error {
		var t []turn
		err := json.NewDecoder(c.out).Decode(&t)
		turns = append(turns, t)
		return errors.Join(err, c.cmd.Wait())
	}); err != nil {
		return nil, err
	}
	return together(turns, begin, end)
}

// together returns the figures of all processes. It fails if two held the key at once.
func together(parts [][]turn, begin, end time.Duration) (figures, error) {
	var waits hist
	var holds []history.Hold
	at := func(d time.Duration) time.Time { return time.Unix(0, int64(d)) }
	grants := make([]int, len(parts))
	for i, turns := range parts {
		for _, t := range turns {
			waits.add(t.Answered - t.Asked)
			if t.Released == 0 {
				continue
			}
			holds = append(holds, history.Hold{Key: hotKey, Owner: strconv.Itoa(i), From: at(t.Answered), To: at(t.Released)})
			if t.Answered <= end {
				grants[i]++
			}
		}
	}
	if err := history.Check(holds); err != nil {
		return nil, fmt.Errorf("%w: %w", errTwoHolders, err)
	}
	slices.SortFunc(holds, func(a, b history.Hold) int { return a.From.Compare(b.From) })
	handoffs := 0
	for i, h := range holds {
		if !h.From.After(at(end)) && (i == 0 || h.Owner != holds[i-1].Owner) {
			handoffs++
		}
	}
	return outcome(end-begin, &waits, grants, handoffs), nil
}
