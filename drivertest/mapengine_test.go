// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
)

// The walk "a new engine" of CONTRIBUTING, followed once: a map behind a TCP port, in which
// requests and answers are lines of quoted words. It has no queue and shares nothing.

// mapServer is the store.
type mapServer struct {
	mu     sync.Mutex
	keys   map[string]*mapKey
	gone   map[driver.ID]bool // owners that were released
	newest uint64             // the largest fence
}

// mapKey is what is known of a key.
type mapKey struct {
	held         bool
	id           driver.ID
	fence        uint64
	since, until time.Time
	marked       bool // its holder was granted an abandoned key
	abandoned    bool // the next one is
}

// newMapServer returns the address of an empty store.
func newMapServer(t testing.TB) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mapServer{keys: map[string]*mapKey{}, gone: map[driver.ID]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() }) // its clients close their connections
	return l.Addr().String()
}

func (s *mapServer) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := conn.Write([]byte(s.answer(words(text)))); err != nil {
			return
		}
	}
}

func (s *mapServer) answer(w []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch w[0] {
	case "list":
		var all strings.Builder
		for key := range s.keys {
			if k := s.key(key, now); k.held && strings.HasPrefix(key, w[1]) {
				all.WriteString(k.info(now))
			}
		}
		return all.String() + line("end")
	case "inspect":
		if k := s.key(w[1], now); k.held {
			return k.info(now)
		}
		return line("free")
	}
	id := driver.ID{Key: w[1], Owner: w[2], Label: w[3]}
	k, until := s.key(id.Key, now), now.Add(time.Duration(number(w[4])))
	mine := k.held && k.id == id
	switch {
	case w[0] == "try":
		return s.try(k, id, now, until, number(w[5]))
	case w[0] == "renew" && mine:
		k.last(until)
		return line("granted", k.fence, k.until.Sub(now), k.marked)
	case w[0] == "release":
		return s.release(k, id, w)
	}
	return line("not held")
}

// key returns a key as it is now.
func (s *mapServer) key(key string, now time.Time) *mapKey {
	k := s.keys[key]
	if k == nil {
		k = &mapKey{}
		s.keys[key] = k
	}
	if k.held && !k.until.After(now) {
		k.held, k.abandoned = false, true
	}
	return k
}

func (s *mapServer) try(k *mapKey, id driver.ID, now, until time.Time, fences int64) string {
	n := int64(1)
	switch {
	case s.gone[id]:
		return line("released")
	case k.held && k.id != id:
		return k.info(now)
	case !k.held:
		n = max(fences, 1)
		s.newest = max(s.newest+1, uint64(now.UnixMicro())) + uint64(n-1)
		*k = mapKey{held: true, id: id, fence: s.newest, since: now, marked: k.abandoned}
	}
	k.last(until)
	return line("granted", k.fence, k.until.Sub(now), k.marked, n)
}

// last moves the end of a lease, never to an earlier moment.
func (k *mapKey) last(until time.Time) {
	if until.After(k.until) {
		k.until = until
	}
}

func (s *mapServer) release(k *mapKey, id driver.ID, w []string) string {
	if settled := w[6] == "true"; !settled {
		s.gone[id] = true
		time.AfterFunc(10*time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.gone, id)
		})
	}
	if !k.held || k.id != id {
		return line("not held")
	}
	end := driver.End(number(w[5]))
	*k = mapKey{abandoned: end == driver.Unfinished || end == driver.Unused && k.marked}
	return line("ok")
}

func (k *mapKey) info(now time.Time) string {
	return line("held", k.id.Key, k.id.Owner, k.id.Label, k.fence, k.since.UnixNano(), k.until.Sub(now).Nanoseconds())
}

func line(fields ...any) string {
	quoted := make([]string, len(fields))
	for i, f := range fields {
		if d, ok := f.(time.Duration); ok {
			f = int64(d)
		}
		quoted[i] = strconv.Quote(fmt.Sprint(f))
	}
	return strings.Join(quoted, " ") + "\n"
}

func words(text string) (all []string) {
	for {
		text = strings.TrimSpace(text)
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return append(all, "", "", "", "", "", "", "") // missing words are empty
		}
		word, _ := strconv.Unquote(quoted)
		all, text = append(all, word), text[len(quoted):]
	}
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// mapDriver is the engine.
type mapDriver struct {
	addr string
	idle chan net.Conn
}

var _ driver.Driver = (*mapDriver)(nil)

func openMap(addr string) *mapDriver { return &mapDriver{addr: addr, idle: make(chan net.Conn, 8)} }

func (d *mapDriver) Traits() driver.Traits {
	return driver.Traits{Engine: "map", Fencing: true, Abandons: true, AbandonedOnce: true, MinTTL: 50 * time.Millisecond}
}

func (d *mapDriver) Close() error {
	for {
		select {
		case conn := <-d.idle:
			_ = conn.Close()
		default:
			return nil
		}
	}
}

// connect returns a connection that nobody else uses.
func (d *mapDriver) connect(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case conn := <-d.idle:
		return conn, nil
	default:
		return (&net.Dialer{}).DialContext(ctx, "tcp", d.addr)
	}
}

// ask sends some requests, and reads the lines of each answer until more is false.
func (d *mapDriver) ask(ctx context.Context, requests []string, answer func(i int, w []string) (more bool)) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return driver.NotSent(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte(strings.Join(requests, "")))
		sent <- err
	}()
	in := bufio.NewReader(conn)
	for i := 0; i < len(requests) && err == nil; {
		var text string
		if text, err = in.ReadString('\n'); err == nil && !answer(i, words(text)) {
			i++
		}
	}
	if err != nil {
		_ = conn.Close()
	}
	if err = cmp.Or(err, <-sent); err == nil && stop() {
		select {
		case d.idle <- conn:
			return nil
		default:
		}
	}
	_ = conn.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (d *mapDriver) one(ctx context.Context, fields ...any) (w []string, err error) {
	err = d.ask(ctx, []string{line(fields...)}, func(_ int, got []string) bool { w = got; return false })
	return w, err
}

func (d *mapDriver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	switch err := r.Check(); {
	case err != nil:
		return driver.Result{}, err
	case r.Mode != driver.Exclusive:
		return driver.Result{}, fmt.Errorf("a map shares no keys: %w", driver.ErrUnsupported)
	}
	w, err := d.one(ctx, "try", r.Key, r.Owner, r.Label, r.TTL, r.Fences)
	if err != nil {
		return driver.Result{}, err
	}
	switch w[0] {
	case "granted":
		return driver.Result{Granted: true, Fence: uint64(number(w[1])), TTL: time.Duration(number(w[2])),
			Abandoned: w[3] == "true", Fences: int(number(w[4]))}, nil
	case "held":
		info := infoOf(w)
		return driver.Result{Holder: info.Holder, Left: info.Left, RetryIn: max(min(info.Left, 20*time.Millisecond), 1)}, nil
	case "released":
		return driver.Result{Why: driver.Released, RetryIn: time.Second}, nil
	}
	return driver.Result{}, errAnswer
}

func (d *mapDriver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	requests := make([]string, len(rs))
	for i, r := range rs {
		requests[i] = line("renew", r.Key, r.Owner, r.Label, r.TTL)
	}
	answered := 0
	err := d.ask(ctx, requests, func(i int, w []string) bool {
		switch answered++; {
		case w[0] == "granted" && !rs[i].Queue:
			done(i, driver.Renewal{TTL: time.Duration(number(w[2]))})
		default: // there are no places
			done(i, driver.Renewal{Err: driver.ErrNotHeld})
		}
		return false
	})
	for i := answered; i < len(rs); i++ {
		done(i, driver.Renewal{Err: err})
	}
}

func (d *mapDriver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	w, err := d.one(ctx, "release", r.Key, r.Owner, r.Label, r.TTL, int(r.End), r.Settled)
	if err == nil && w[0] != "ok" {
		err = driver.ErrNotHeld
	}
	return err
}

// Watch has no hints to give.
func (d *mapDriver) Watch(ctx context.Context, _ driver.Claim) (<-chan struct{}, error) {
	return nil, ctx.Err()
}

func (d *mapDriver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := driver.CheckKey(key); err != nil {
		return driver.Info{}, err
	}
	w, err := d.one(ctx, "inspect", key)
	if err != nil || w[0] != "held" {
		return driver.Info{Key: key}, err
	}
	info := infoOf(w)
	info.Holders = []driver.Lease{{Holder: info.Holder, Fence: info.Fence, Left: info.Left}}
	return info, nil
}

func infoOf(w []string) driver.Info {
	return driver.Info{Key: w[1], Held: true, Holds: 1, Fence: uint64(number(w[4])), Left: time.Duration(number(w[6])),
		Holder: driver.Holder{Owner: w[2], Label: w[3], Since: time.Unix(0, number(w[5]))}}
}

func (d *mapDriver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		var all []driver.Info
		err := d.ask(ctx, []string{line("list", prefix)}, func(_ int, w []string) (more bool) {
			if more = w[0] == "held"; more {
				all = append(all, infoOf(w))
			}
			return more
		})
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

var errAnswer = errors.New("the store gave an unknown answer")

func (d *mapDriver) Classify(err error) driver.Class {
	var away net.Error
	switch {
	case errors.As(err, &away), errors.Is(err, net.ErrClosed):
		return driver.ClassUnreachable
	case errors.Is(err, driver.ErrUnsupported):
		return driver.ClassImpossible
	}
	return driver.ClassUnknown
}

// An engine that follows CONTRIBUTING passes the suite, which runs as many cases at once as
// it is told to.
func TestMapEngine(t *testing.T) {
	const atOnce = 6
	var mu sync.Mutex
	cases, most := map[string]bool{}, 0
	drivertest.Run(t, drivertest.Harness{Parallel: true, AtOnce: atOnce, New: func(t testing.TB) drivertest.Store {
		mu.Lock()
		defer mu.Unlock()
		cases[t.Name()] = true
		most = max(most, len(cases))
		t.Cleanup(func() {
			mu.Lock()
			defer mu.Unlock()
			delete(cases, t.Name())
		})
		addr := newMapServer(t)
		return drivertest.Store{Open: func() driver.Driver { return openMap(addr) }}
	}})
	if most < 2 || most > atOnce {
		t.Errorf("%d cases ran at once, want %d", most, atOnce)
	}
}
