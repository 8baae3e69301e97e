// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package browser tries the dashboard in a real browser. It is skipped unless
// HASP_TEST_CHROMIUM names one: make browser.
package browser

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/dashboard"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/process"
	"github.com/hasplock/hasp/memdriver"
)

// hostile is a key that would be seen to act if it were not text.
const hostile = "<img src=x onerror=\"console.error('owned')\">\x1b[31m\n\u202e\xff"

// stage is the store behind the page. The script asks it to change something.
type stage struct {
	store *memdriver.Store
	mu    sync.Mutex
	lines map[string][]driver.Claim // who holds a key, and who waits for it
}

func (s *stage) ask(key, host, reason string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := driver.Label{Host: host, PID: 4211, User: "app", Reason: reason, Since: since}
	if host == "" { // a process of this host that has ended
		l.Host, _ = os.Hostname()
		l.PID, l.Process = 1<<30, process.Self()
	}
	c := driver.Claim{Key: key, Owner: rand.Text(), Label: l.Encode()}
	s.lines[key] = append(s.lines[key], c)
	s.try(c)
}

func (s *stage) try(c driver.Claim) {
	_, _ = s.store.Try(context.Background(), driver.TryRequest{Claim: c, TTL: time.Hour, Queue: true, Patience: time.Hour})
}

// handOn has the holder release the key, and the next claim it.
func (s *stage) handOn(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.lines[key]
	_ = s.store.Release(context.Background(), driver.ReleaseRequest{Claim: line[0], TTL: time.Hour, Settled: true})
	if s.lines[key] = line[1:]; len(line) > 1 {
		s.try(line[1])
	}
}

// claim has those who were handed a key after a break claim it.
func (s *stage) claim(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.lines[key][1:] {
		s.try(c)
	}
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch r.URL.Path {
	case "/ask":
		s.ask(q.Get("key"), q.Get("host"), "nightly", time.Now())
	case "/handon":
		s.handOn(q.Get("key"))
	case "/claim":
		s.claim(q.Get("key"))
	case "/churn":
		for i := range 20 {
			key := fmt.Sprintf("churn/%d", i)
			s.ask(key, "web-9", "churn", time.Now())
			s.handOn(key)
		}
		s.handOn("orders/7")
		s.ask("orders/7", fmt.Sprintf("web-%d", time.Now().UnixMilli()), "churn", time.Now())
		s.claim("orders/7")
	default:
		http.NotFound(w, r)
	}
}

func TestBrowser(t *testing.T) {
	chromium := os.Getenv("HASP_TEST_CHROMIUM")
	if chromium == "" {
		t.Skip("HASP_TEST_CHROMIUM names no browser: make browser")
	}
	s := &stage{store: memdriver.New(), lines: map[string][]driver.Claim{}}
	c, err := hasp.New(s.store, nil)
	must(t, err)
	defer c.Close()
	now := time.Now()
	for i := range 60 {
		s.ask(fmt.Sprintf("orders/%d", i), fmt.Sprintf("web-%d", i%4), []string{"nightly export", "cron", "", "rebuild of the index"}[i%4], now.Add(-time.Duration(i*i)*time.Minute/7))
	}
	for i := range 3 {
		s.ask("orders/7", fmt.Sprintf("worker-%d", i), "waits for the export", now.Add(-time.Duration(30-i)*time.Second))
	}
	s.ask("orders/12", "worker-3", "cron", now)
	s.ask("nightly-report", "", "the figures for the web", now)
	s.ask("nightly-report", "worker-5", "waits for the report", now)
	s.ask(hostile, hostile, hostile, now)
	s.ask(hostile, "worker-4", hostile, now)

	var mu sync.Mutex
	var records []dashboard.Record
	page := httptest.NewServer(http.StripPrefix("/some/path", dashboard.New(c, &dashboard.Options{
		Title: "redis, production", Identify: dashboard.Local(true), Every: 100 * time.Millisecond,
		Audit: func(r dashboard.Record) error {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, r)
			return nil
		},
		Doctor: func(context.Context) ([]dashboard.Finding, error) {
			return []dashboard.Finding{
				{Level: operator.LevelOK, Node: "redis-1:6379", Check: "answers", Text: "it answers in 0.4ms"},
				{Level: operator.LevelWarn, Node: "redis-1:6379", Check: "persistence", Text: "a restart loses locks: set max-ttl= in the URL"},
				{Level: operator.LevelFail, Check: "eviction", Text: "maxmemory-policy is volatile-lru: locks may be evicted. Run: redis-cli -h redis-1 CONFIG SET maxmemory-policy noeviction, and keep it"},
			}, nil
		},
		Leaks: func(context.Context) ([]dashboard.Leak, error) {
			return []dashboard.Leak{{Key: "orders/59", What: "held for 8 hours, far longer than others of its class", Fix: "hasp break orders/59 --owner " + rand.Text()},
				{Key: hostile, What: "a queue in which nobody shows a sign of life"}}, nil
		},
	})))
	defer page.Close()
	control := httptest.NewServer(s)
	defer control.Close()
	cmd := exec.CommandContext(t.Context(), "node", "drive.mjs")
	cmd.Env = append(os.Environ(), "PAGE="+page.URL+"/some/path/", "CONTROL="+control.URL+"/", "CHROMIUM="+chromium, "HOSTILE="+driver.Printable(hostile))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	must(t, cmd.Run())
	mu.Lock()
	defer mu.Unlock()
	if len(records) != 4 || records[1].Outcome != "broken" || records[1].Reason != "it hangs" || records[3].Outcome != "not held" {
		b, _ := json.MarshalIndent(records, "", " ")
		t.Errorf("recorded:\n%s", b)
	}
}
