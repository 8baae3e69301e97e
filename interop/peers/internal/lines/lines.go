// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package lines is the protocol between the tests of interop/clients and the programs that they drive. The peers in Java, Python and
// JavaScript speak it, too. A program is started with its TTL in milliseconds and one or more deployments of Redis, each
// "127.0.0.1:6379" or "cluster:127.0.0.1:7000,127.0.0.1:7001". It says "- ready". From then on each line of its input is an order,
// of a thread, and is answered by one line that begins with the name of the thread:
//
//	T lock KIND KEY WAIT [LEASE]  in milliseconds. WAIT 0: try once; -1: without a bound. "locked AT FENCE" or "timeout"
//	T unlock KIND KEY             "unlocked AT", or "lost" when the client says that it was not the holder any more
//	T held KIND KEY               what the client says of itself: "held", "lost", or "unknown" when it cannot say
//	T count KIND KEY N MS NUMBER  adds 1 to a number, by GET and SET, each time under the lock. "counted N"
//	T write KIND KEY N            sets KEY.a and KEY.b to a new number, one after the other, N times under the lock. "wrote N"
//	T read KIND KEY N             gets both, N times under the lock. "read N torn M": M times they differed
//
// AT is the wall clock in microseconds: when the lock was granted, and just before the unlock was sent. count ends after N times or MS
// milliseconds, and also appends each fence to the list NUMBER.fences. Orders of one thread are carried out in turn, and those of several
// threads side by side. What goes wrong is "failed: ...". A program ends with its input.
package lines

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrTimeout: another client held the lock all the time.
	ErrTimeout = errors.New("timeout")
	// ErrLost: the client says that it does not hold the lock any more.
	ErrLost = errors.New("lost")
	// ErrUnknown: the client cannot say whether it holds the lock.
	ErrUnknown = errors.New("unknown")
)

// Held is a lock that a thread holds.
type Held struct {
	Fence  uint64       // 0: none
	Unlock func() error // ErrLost: it did not hold it
	Held   func() error // nil, ErrLost or ErrUnknown
}

// Request is a lock that a thread asks for.
type Request struct {
	Kind, Key string
	Wait      time.Duration // 0: try once; negative: no bound
	Lease     time.Duration // 0: the TTL of the program, renewed if the client renews
	Number    string        // that count adds to
}

// Program is what a peer knows from its arguments.
type Program struct {
	TTL   time.Duration
	Redis []redis.UniversalClient // one for each deployment

	lock func(ctx context.Context, r Request) (*Held, error)
	say  sync.Mutex
}

// Serve runs a program that locks with the function that open returns.
func Serve(open func(p *Program) (func(ctx context.Context, r Request) (*Held, error), error)) {
	p := &Program{}
	err := p.serve(open)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *Program) serve(open func(p *Program) (func(ctx context.Context, r Request) (*Held, error), error)) error {
	if len(os.Args) < 3 {
		return errors.New("usage: PROGRAM TTL DEPLOYMENT [DEPLOYMENT …]")
	}
	ms, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	p.TTL = time.Duration(ms) * time.Millisecond
	for _, d := range os.Args[2:] {
		nodes, cluster := strings.CutPrefix(d, "cluster:")
		rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(nodes, ","), IsClusterMode: cluster})
		if err := rdb.Ping(context.Background()).Err(); err != nil {
			return err
		}
		p.Redis = append(p.Redis, rdb)
	}
	if p.lock, err = open(p); err != nil {
		return err
	}
	p.answer("-", "ready")
	threads := make(map[string]chan []string)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		order := strings.Fields(in.Text())
		if len(order) < 4 {
			return fmt.Errorf("not an order: %q", in.Text())
		}
		name := order[0]
		if threads[name] == nil {
			threads[name] = make(chan []string, 100)
			t := &thread{p: p, held: make(map[string]*Held)}
			go t.run(name, threads[name])
		}
		threads[name] <- order[1:]
	}
	return nil // what is held stays held, as when a program crashes
}

func (p *Program) answer(thread, text string) {
	p.say.Lock()
	defer p.say.Unlock()
	fmt.Println(thread, text)
}

// thread carries out orders in turn.
type thread struct {
	p    *Program
	held map[string]*Held
}

func (t *thread) run(name string, orders <-chan []string) {
	for o := range orders {
		text, err := t.carryOut(context.Background(), o)
		switch {
		case errors.Is(err, ErrTimeout), errors.Is(err, ErrLost), errors.Is(err, ErrUnknown):
			text = err.Error()
		case err != nil:
			text = "failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		t.p.answer(name, text)
	}
}

// carryOut returns what an order came to.
func (t *thread) carryOut(ctx context.Context, o []string) (string, error) {
	r := Request{Kind: o[1], Key: o[2], Wait: -1}
	var numbers []int
	if o[0] == "count" && len(o) == 6 {
		r.Number, o = o[5], o[:5]
	}
	for _, text := range o[3:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		numbers = append(numbers, n)
	}
	h := t.held[r.Kind+" "+r.Key]
	switch {
	case o[0] == "lock" && len(numbers) > 0:
		r.Wait = time.Duration(numbers[0]) * time.Millisecond
		if len(numbers) > 1 {
			r.Lease = time.Duration(numbers[1]) * time.Millisecond
		}
		h, err := t.p.lock(ctx, r)
		if err != nil {
			return "", err
		}
		t.held[r.Kind+" "+r.Key] = h
		return fmt.Sprintf("locked %d %d", time.Now().UnixMicro(), h.Fence), nil
	case o[0] == "unlock" && h != nil:
		at := time.Now().UnixMicro()
		delete(t.held, r.Kind+" "+r.Key)
		return fmt.Sprintf("unlocked %d", at), h.Unlock()
	case o[0] == "held" && h != nil:
		return "held", h.Held()
	case o[0] == "count" && len(numbers) == 2:
		return t.count(ctx, r, numbers[0], time.Duration(numbers[1])*time.Millisecond)
	case o[0] == "write" && len(numbers) == 1:
		return t.write(ctx, r, numbers[0])
	case o[0] == "read" && len(numbers) == 1:
		return t.read(ctx, r, numbers[0])
	}
	return "", fmt.Errorf("not an order: %q", o)
}

// under runs f while the lock is held.
func (t *thread) under(ctx context.Context, r Request, f func(rdb redis.UniversalClient, fence uint64) error) error {
	h, err := t.p.lock(ctx, r)
	if err != nil {
		return err
	}
	return errors.Join(f(t.p.Redis[0], h.Fence), h.Unlock())
}

func (t *thread) count(ctx context.Context, r Request, most int, limit time.Duration) (string, error) {
	n := 0
	for end := time.Now().Add(limit); n < most && time.Now().Before(end); n++ {
		err := t.under(ctx, r, func(rdb redis.UniversalClient, fence uint64) error {
			now, err := rdb.Get(ctx, r.Number).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			if fence != 0 {
				if err := rdb.RPush(ctx, r.Number+".fences", fence).Err(); err != nil {
					return err
				}
			}
			return rdb.Set(ctx, r.Number, now+1, 0).Err()
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("counted %d", n), nil
}

func (t *thread) write(ctx context.Context, r Request, n int) (string, error) {
	for range n {
		err := t.under(ctx, r, func(rdb redis.UniversalClient, _ uint64) error {
			now := time.Now().UnixNano()
			if err := rdb.Set(ctx, r.Key+".a", now, 0).Err(); err != nil {
				return err
			}
			return rdb.Set(ctx, r.Key+".b", now, 0).Err()
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("wrote %d", n), nil
}

func (t *thread) read(ctx context.Context, r Request, n int) (string, error) {
	torn := 0
	for range n {
		err := t.under(ctx, r, func(rdb redis.UniversalClient, _ uint64) error {
			a, errA := rdb.Get(ctx, r.Key+".a").Result()
			b, errB := rdb.Get(ctx, r.Key+".b").Result()
			if a != b {
				torn++
			}
			return errors.Join(except(errA), except(errB))
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("read %d torn %d", n, torn), nil
}

// except is err, but for that of a key that does not exist.
func except(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
