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
)

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
