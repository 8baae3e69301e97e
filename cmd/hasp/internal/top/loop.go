// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/screen"
)

// Locks is the store, as hasp top asks it. The text of an error is for people, and safe
// to print.
type Locks interface {
	// List returns all keys, sorted.
	List(ctx context.Context) ([]hasp.Info, error)
	// Inspect returns all about a key.
	Inspect(ctx context.Context, key string) (hasp.Info, error)
	// Plan says what breaking a target would do.
	Plan(ctx context.Context, t Target) (string, error)
	// Break breaks exactly the target, and says what it did.
	Break(ctx context.Context, t Target) (string, error)
	// Hopeless says of an error of List that asking again does not help.
	Hopeless(err error) bool
}

// Terminal is what a loop shows its model on. Its methods must not block.
type Terminal interface {
	Size() (width, height int)
	Draw(lines []screen.Line)
	// Changed handles a signal of screen.Changes. It may stop the process.
	Changed(sig os.Signal)
}

const (
	atOnce = 8 // Inspects
	tick   = time.Second
	// gentle is how many times longer than its questions to the store took, at least, hasp top
	// lets it be.
	gentle = 3
)

// Loop is a run of hasp top.
type Loop struct {
	Model *Model
	Locks Locks
	Term  Terminal
	Keys  <-chan screen.Key

	did      chan func() error // what a goroutine came to, for the loop
	busy     bool              // a list or Inspects are under way
	asked    time.Time         // since when
	took     time.Duration     // what the round's questions did until now
	listed   time.Time         // when the list came
	next     *time.Timer       // that begins it
	ctx      context.Context
	panicked chan string
}

// Run shows the model until q is pressed, the terminal is gone, the store is hopeless,
// or a signal comes, which it returns.
func (l *Loop) Run(signals, changes <-chan os.Signal) (os.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.ctx, l.did, l.panicked = ctx, make(chan func() error), make(chan string)
	l.next = time.NewTimer(time.Hour)
	l.next.Stop()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	l.list()
	for {
		l.draw()
		select {
		case k, ok := <-l.Keys:
			if !ok {
				return nil, ErrGone
			}
			if l.press(k) == Quit {
				return nil, nil
			}
			l.look()
		case finish := <-l.did:
			if err := finish(); err != nil {
				return nil, err
			}
		case <-l.next.C:
			l.list()
		case <-ticker.C:
		case sig := <-signals:
			return sig, nil
		case sig := <-changes:
			l.Term.Changed(sig)
			l.look()
		case stack := <-l.panicked: // after which the terminal is restored
			panic(stack)
		}
	}
}

// ErrGone says that nothing can be read from the terminal any more.
var ErrGone = errors.New("the terminal is gone")

func (l *Loop) draw() {
	width, height := l.Term.Size()
	l.Term.Draw(l.Model.View(width, height, time.Now()))
}

// start runs ask beside the loop, and what it returns within it.
func (l *Loop) start(ask func() func() error) {
	go func() {
		defer l.caught()
		finish := ask()
		select {
		case l.did <- finish:
		case <-l.ctx.Done():
		}
	}()
}

// caught has the loop panic in the place of another goroutine.
func (l *Loop) caught() {
	if p := recover(); p != nil {
		select {
		case l.panicked <- fmt.Sprintf("%v\n%s", p, debug.Stack()):
		case <-l.ctx.Done():
		}
	}
}

// list begins a round: the list, and then what more is to be known of the keys on the
// screen. There is one at a time.
func (l *Loop) list() {
	l.busy, l.asked, l.took = true, time.Now(), 0
	l.start(func() func() error {
		infos, err := l.Locks.List(l.ctx)
		all := Prepare(infos)
		return func() error {
			switch {
			case err == nil:
				l.Model.SetList(all, time.Now())
			case l.Locks.Hopeless(err):
				return err
			default:
				l.Model.SetTrouble(err.Error(), time.Now())
			}
			l.listed = time.Now()
			l.answered()
			return nil
		}
	})
}

// answered asks for what has come onto the screen meanwhile, or lets the store be until the next
// round.
func (l *Loop) answered() {
	l.took += time.Since(l.asked)
	l.busy = false
	if l.look(); !l.busy {
		l.next.Reset(time.Until(l.listed.Add(max(l.Model.Every, gentle*l.took))))
	}
}

// look asks for the keys on the screen, unless the store is being asked already.
func (l *Loop) look() {
	if l.busy {
		return
	}
	keys := l.Model.Wanted(l.Term.Size())
	if len(keys) == 0 {
		return
	}
	l.next.Stop()
	l.busy, l.asked = true, time.Now()
	l.start(func() func() error {
		looks := l.inspect(keys)
		return func() error {
			l.Model.SetLooks(looks)
			l.answered()
			return nil
		}
	})
}

func (l *Loop) inspect(keys []string) map[string]Look {
	looks := make(map[string]Look, len(keys))
	var mu sync.Mutex
	var wg sync.WaitGroup
	todo := make(chan string)
	for range min(atOnce, len(keys)) {
		wg.Go(func() {
			defer l.caught()
			for key := range todo {
				var look Look
				info, err := l.Locks.Inspect(l.ctx, key)
				if look.Info = info; err != nil {
					look.Trouble = err.Error()
				}
				mu.Lock()
				looks[key] = look
				mu.Unlock()
			}
		})
	}
	for _, key := range keys {
		todo <- key
	}
	close(todo)
	wg.Wait()
	return looks
}

// press acts on a key.
func (l *Loop) press(k screen.Key) Act {
	width, height := l.Term.Size()
	act := l.Model.Press(k, width, height)
	if act != Plan && act != Break {
		return act
	}
	target := l.Model.Target()
	t := *target
	l.start(func() func() error {
		var text, trouble string
		var err error
		if act == Plan {
			text, err = l.Locks.Plan(l.ctx, t)
		} else {
			text, err = l.Locks.Break(l.ctx, t)
		}
		if err != nil {
			text, trouble = err.Error(), err.Error()
		}
		return func() error {
			if act == Plan {
				l.Model.Planned(target, text, trouble)
				return nil
			}
			l.Model.Broke(text)
			if !l.busy { // the list is another now
				l.next.Reset(0)
			}
			return nil
		}
	})
	return act
}
