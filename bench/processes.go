// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
)

// s12 is processes that contend for one file.
var s12 = scenario{
	name:     "s12",
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

// turn is one Lock and what came of it.
type turn struct {
	Asked, Answered player.Mono
	Released        player.Mono // 0: it was not granted
}

func (l *booked) Lock(ctx context.Context, key string) (unlock, error) {
	t := turn{Asked: player.Now()}
	release, err := l.locker.Lock(ctx, key)
	t.Answered = player.Now()
	if err != nil {
		l.turns = append(l.turns, t)
		return nil, err
	}
	return func(ctx context.Context) error {
		t.Released = player.Now()
		l.turns = append(l.turns, t)
		return release(ctx)
	}, nil
}

// contendInChild contends between two words, and reports its turns.
func contendInChild(l locker, key string, in *json.Decoder, say func(report) error) error {
	defer l.Close()
	ctx, g := context.Background(), new(guard)
	if err := (&worker{locker: l, key: "warm/" + strconv.Itoa(os.Getpid()), guard: g}).turn(ctx, ctx, 0); err != nil {
		return err
	}
	if err := errors.Join(say(report{}), in.Decode(new(any))); err != nil {
		return err
	}
	waits, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = in.Decode(new(any))
		stop()
	}()
	b := &booked{locker: l}
	if err := (&worker{locker: b, key: key, guard: g}).work(ctx, waits, time.Millisecond, func() {}); err != nil {
		return err
	}
	return say(report{b.turns})
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
	if err := many(v.n, func(i int) (err error) {
		all[i], err = task{"contend", p.name, to, hotKey}.start(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	begin := player.Now()
	for _, c := range all {
		c.Send("begin")
	}
	if err := pause(ctx, e.lasts(2*time.Second)); err != nil {
		return nil, err
	}
	end := player.Now()
	for _, c := range all {
		c.Send("end")
	}
	var turns [][]turn
	for _, c := range all {
		r, err := c.hear()
		if err != nil {
			return nil, err
		}
		turns = append(turns, r.Turns)
		<-c.Ended
	}
	return together(turns, begin, end)
}

// together returns the figures of all processes. It fails if two held the key at once.
func together(parts [][]turn, begin, end player.Mono) (figures, error) {
	var waits hist
	var holds []history.Hold
	at := func(d player.Mono) time.Time { return time.Unix(0, int64(d)) }
	grants := make([]int, len(parts))
	for i, turns := range parts {
		for _, t := range turns {
			waits.add(time.Duration(t.Answered - t.Asked))
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
	return outcome(time.Duration(end-begin), &waits, grants, handoffs), nil
}
