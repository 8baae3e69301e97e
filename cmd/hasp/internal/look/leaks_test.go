// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
)

var must = expect.Need

// littered is a store with so many leftovers, which then hangs if it is endless.
type littered struct {
	*memdriver.Store
	n       int
	endless bool
	removed int
	remove  error
}

func (s *littered) Operations() operator.Operations {
	return operator.Operations{ListLeftovers: s.ListLeftovers, RemoveLeftover: s.RemoveLeftover}
}

func (s *littered) ListLeftovers(ctx context.Context, _ string, _ func(driver.Info)) iter.Seq2[operator.Leftover, error] {
	return func(yield func(operator.Leftover, error) bool) {
		for i := range s.n {
			if !yield(operator.Leftover{Key: fmt.Sprintf("k%05d", i), Kind: operator.LeftSidecar, Name: "grant"}, nil) {
				return
			}
		}
		if s.endless {
			<-ctx.Done()
			yield(operator.Leftover{}, ctx.Err())
		}
	}
}

func (s *littered) RemoveLeftover(context.Context, operator.Leftover) (time.Duration, error) {
	s.removed++
	return 0, s.remove
}

func (s *littered) locks(t *testing.T) *base.Locks {
	t.Helper()
	u, err := store.Parse("sqlite:/nowhere")
	must(t, err)
	c, err := hasp.New(s, nil)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &base.Locks{Client: c, URL: u, Store: &store.Store{Driver: s}}
}

// The page shows what was found until it stops waiting, and not more than it can show.
func TestLeaksOfThePage(t *testing.T) {
	for name, c := range map[string]struct {
		s     littered
		shown int
		says  string
	}{
		"none":    {littered{}, 0, ""},
		"some":    {littered{n: 3}, 3, ""},
		"endless": {littered{n: 3, endless: true}, 3, "there may be more"},
		"many":    {littered{n: maxOnPage + 1}, maxOnPage, "1001 leaks were found"},
	} {
		c.s.Store = memdriver.New()
		l := c.s.locks(t)
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if c.s.endless {
			ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
		}
		found, err := leaksOf(l, base.StoreFlag{Text: "redis://u:secret@h"}, "")(ctx)
		cancel()
		if said := fmt.Sprint(err); len(found) != c.shown || (err != nil) != (c.says != "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %d found, and %v", name, len(found), err)
		}
		if c.shown > 0 {
			if f := found[0]; f.Key != "k00000" || f.Fix != "hasp leaks --store URL k00000 --fix" || !strings.HasPrefix(f.What, `sidecar: "grant" has no expiry`) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// What cannot be recorded is not removed; what came of the rest is.
func TestRemovalsAreRecorded(t *testing.T) {
	dir := t.TempDir()
	log, err := audit.Open(filepath.Join(dir, "log"))
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "gone"), 0o700)
	}
	must(t, err)
	lost, err := audit.Open(filepath.Join(dir, "gone", "log"))
	if err == nil {
		err = os.RemoveAll(filepath.Join(dir, "gone"))
	}
	must(t, err)
	s := &littered{Store: memdriver.New(), n: 1}
	c := &leaksCommand{remark: base.Note, l: s.locks(t), log: lost}
	found, err := c.find(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := c.removeOne(t.Context(), found[0]); err == nil || !strings.Contains(err.Error(), `sidecar "k00000" was not removed: the audit record cannot be written`) || s.removed != 0 || found[0].removed {
		t.Errorf("without a record: %v, removed: %d", err, s.removed)
	}
	c.log, c.reason = log, "tidying"
	for want, remove := range map[string]error{"done": nil, "not-held": hasp.ErrNotHeld, "unknown": context.DeadlineExceeded} {
		s.remove = remove
		if err := c.removeOne(t.Context(), found[0]); (err != nil) != (want == "unknown") {
			t.Errorf("%s: %v", want, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "log"))
		must(t, err)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) < 2 {
			t.Fatalf("%s: recorded %s", want, text)
		}
		last := lines[len(lines)-2:]
		for i, outcome := range []string{"begun", want} {
			if !strings.Contains(last[i], `"event":"remove","outcome":"`+outcome+`","via":"hasp leaks"`) || !strings.Contains(last[i], `"what":"sidecar","name":"grant","key":"k00000"`) || !strings.Contains(last[i], `"reason":"tidying"`) {
				t.Errorf("%s: recorded %s", want, last[i])
			}
		}
	}
}
