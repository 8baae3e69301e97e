// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

var (
	errDenied = errors.New("denied")
	errFull   = errors.New("full")
)

// Nodes with the same trouble are named together, once.
func TestVoteErrorNamesEachTroubleOnce(t *testing.T) {
	x, y := errors.New("x"), errors.New("y")
	e := &VoteError{Votes: 2, Need: 3, Nodes: 5, Names: []string{"a", "b", "c"}, Errs: []error{x, y, x}}
	if got, want := e.Error(), "too few nodes vote (2 of 5, and it takes 3): a, c: x; b: y"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What kind of trouble it is that too few nodes vote: the one that enough of them have,
// whatever the others say; otherwise they may vote when they are asked again.
func TestClassOfTooFewNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		for _, s := range all {
			s.class = func(err error) driver.Class {
				switch {
				case errors.Is(err, errDenied):
					return driver.ClassDenied
				case errors.Is(err, errFull):
					return driver.ClassFull
				case errors.Is(err, errGone):
					return driver.ClassUnreachable
				}
				return driver.ClassUnknown
			}
		}
		long := &tooLong{time.Second, time.Minute}
		for name, c := range map[string]struct {
			errs [3]error
			want driver.Class
		}{
			"all":                      {[3]error{errDenied, errDenied, errDenied}, driver.ClassDenied},
			"a majority":               {[3]error{errDenied, nil, errDenied}, driver.ClassDenied},
			"one":                      {[3]error{errDenied, errGone, nil}, driver.ClassUnreachable},
			"each another":             {[3]error{errDenied, errFull, errGone}, driver.ClassUnreachable},
			"unreachable":              {[3]error{errGone, errGone, nil}, driver.ClassUnreachable},
			"not known":                {[3]error{errors.New("x"), errors.New("y"), nil}, driver.ClassUnreachable},
			"admitted for less":        {[3]error{long, long, nil}, driver.ClassImpossible},
			"one is admitted for less": {[3]error{long, errDenied, nil}, driver.ClassUnreachable},
		} {
			var errs [maxNodes]error
			copy(errs[:], c.errs[:])
			got := d.Classify(d.tooFew(errs))
			failIf(t, got != c.want, "%s: class %v, want %v", name, got, c.want)
		}
	})
}

// The end of a request to a node is not that of the caller's context, who would take it for
// its own doing.
func TestSilenceIsNotTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		err := d.tooFew([maxNodes]error{context.DeadlineExceeded, fmt.Errorf("dial: %w", context.Canceled), nil})
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || !errors.Is(err, errSilent) {
			t.Error(err)
		}
		var e *VoteError
		failIf(t, !errors.As(err, &e) || e.Votes != 1 || !slices.Equal(e.Names, []string{"node 1", "node 2"}), "%+v", e)
	})
}

func TestClassify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		for err, want := range map[error]driver.Class{
			errors.New("x"):       driver.ClassUnknown,
			voting.ErrNotVoting:   driver.ClassUnreachable,
			driver.ErrUnsupported: driver.ClassImpossible,
			&twinError{"a", "b"}:  driver.ClassMisconfigured,
		} {
			got := d.Classify(err)
			failIf(t, got != want, "%v: class %v, want %v", err, got, want)
		}
	})
	got := New(nil, nil).Classify(errors.New("x"))
	failIf(t, got != driver.ClassMisconfigured, "without nodes: class %v", got)
}

// It is waited for the last of them.
func TestWaitsOfAllNodesAreKnownSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		errs := [maxNodes]error{heldFor(0), heldFor(0)}
		for i, err := range errs[:2] {
			d.nodes[i].setOut(err)
		}
		d.nodes[1].wait = wait{time.Minute, time.Now()}
		time.AfterFunc(minTimeout/10, func() {
			d.nodes[0].mu.Lock()
			defer d.nodes[0].mu.Unlock()
			d.nodes[0].wait = wait{time.Hour, time.Now()}
		})
		d.waitsKnown(t.Context(), &errs)
		if leftOf(errs[0]) < 59*time.Minute || leftOf(errs[1]) < 59*time.Second {
			t.Errorf("%v, want an hour and a minute", errs)
		}
	})
}

// An error of nodes that are held back says for how long, if that is found out soon.
func TestWaitsAreKnownSoon(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		probed func(n *node) // a while later
		left   time.Duration
		soon   bool // it does not wait
		sooner bool // it does not wait to the end
	}{
		"not held back":        {errGone, nil, 0, true, true},
		"known from the start": {heldFor(time.Second), nil, time.Second, true, true},
		"known soon":           {heldFor(0), func(n *node) { n.wait = wait{time.Minute, time.Now()} }, time.Minute, false, true},
		"never known":          {heldFor(0), nil, 0, false, false},
		"it serves again":      {heldFor(0), func(n *node) { n.out = nil }, 0, false, false},
		"it is away":           {heldFor(0), func(n *node) { n.out = errGone }, 0, false, true},
	} {
		bubbled(t, name, func(t *testing.T) {
			d, _ := stubs(t)
			n := d.nodes[1]
			n.setOut(c.err)
			errs := [maxNodes]error{1: c.err}
			if c.probed != nil {
				time.AfterFunc(minTimeout/10, func() {
					n.mu.Lock()
					defer n.mu.Unlock()
					c.probed(n)
				})
			}
			begun := time.Now()
			d.waitsKnown(t.Context(), &errs)
			took := time.Since(begun)
			if (took == 0) != c.soon || (took < minTimeout/2) != c.sooner || took > 10*minTimeout/10 {
				t.Errorf("it took %v", took)
			}
			if left := leftOf(errs[1]); left > c.left || left < c.left-minTimeout {
				t.Errorf("%v left, want %v", left, c.left)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			begun = time.Now()
			if errs[1] = heldFor(0); true {
				d.waitsKnown(ended, &errs)
			}
			failIf(t, time.Since(begun) > 0, "it waits for a caller who does not")
		})
	}
}
