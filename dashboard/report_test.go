// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
)

// A program has both pages without writing them; the verdict and what is grave stand first, with the commands to run.
func TestReportsOfTheEngine(t *testing.T) {
	w, o := newWorld(t), local()
	for path, want := range map[string]string{"/doctor": "cannot examine a store of this engine", "/leaks": "Nothing was found"} {
		if page := w.get(nil, path); !strings.Contains(page, want) {
			t.Errorf("%s:\n%s", path, page)
		}
	}
	o.Doctor = func(context.Context) ([]Finding, error) {
		return []Finding{{operator.LevelOK, "", "fine", ""}, {operator.LevelFail, "", "bad", "so. Run: redis-cli a b and: hasp c, d <e>, and keep it (ACL SAVE). Or run: hasp f. Run: hasp g; h, run: i"}}, nil
	}
	page := w.get(o, "/doctor")
	for _, want := range []string{">Locks are not granted, or not safe: mend 1 check<", ">bad<", `>redis-cli a b</code>`, `>hasp c</code>`, `>hasp f</code></td>`, ">fine<"} {
		_, rest, ok := strings.Cut(page, want)
		if page = rest; !ok {
			t.Fatalf("%q is missing, or too early; after the last:\n%s", want, page)
		}
	}
}

// A long wait does not come and go with the looks at its key.
func TestLongWaitStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ask("k", driver.Label{})
		w.ask("k", driver.Label{})
		h := New(w.client, local())
		for _, away := range []bool{false, true} {
			time.Sleep(time.Hour)
			w.away.Store(away)
			if _, page, _ := serve(h, request("GET", "/", "")); !strings.Contains(page, "long wait") {
				t.Errorf("no answer: %v:\n%s", away, page)
			}
		}
	})
}

// Leaks are looked for only when somebody opens their page, and once for all who do.
func TestLeaksAreLookedForOnce(t *testing.T) {
	asked, begun, end := 0, make(chan bool, 9), make(chan bool)
	w, o := newWorld(t), local()
	o.Leaks = func(context.Context) ([]Leak, error) {
		asked++ // by one at a time: else -race reports it
		begun <- true
		<-end
		return nil, nil
	}
	h := New(w.client, o)
	if serve(h, request("GET", "/", "")); len(begun) != 0 {
		t.Error("asked before anybody wanted to know")
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if code, text, _ := serve(h, request("GET", "/leaks", "")); code != 200 || !strings.Contains(text, "Nothing was found") {
				t.Errorf("%d: %s", code, text)
			}
		})
	}
	<-begun
	close(end)
	all.Wait()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// A search that takes too long is ended; the page shows what it found, and never that there is nothing.
func TestLeaksOfALargeStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var found []Leak
		w, o := newWorld(t), local()
		o.Leaks = func(ctx context.Context) ([]Leak, error) {
			<-ctx.Done()
			return found, errors.New("there may be more")
		}
		h := New(w.client, o)
		for range 2 {
			_, text, _ := serve(h, request("GET", "/leaks", ""))
			if !strings.Contains(text, "there may be more") || strings.Contains(text, "Nothing was found") || strings.Contains(text, ">k</a>") != (len(found) > 0) {
				t.Errorf("with %d found:\n%s", len(found), text)
			}
			found = []Leak{{Key: "k", What: "held"}}
			time.Sleep(2 * reportAge)
		}
	})
}
