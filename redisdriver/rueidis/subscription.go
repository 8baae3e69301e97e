// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rueidis

import (
	"cmp"
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/rueidis"
)

// subscription is a connection for messages. Its commands are sent one after the other, by a goroutine that waits for
// the answer of each, as rueidis does not only write.
type subscription struct {
	c    *client
	came chan struct{} // there may be news

	mu     sync.Mutex
	todo   []func(rueidis.DedicatedClient) rueidis.Completed
	works  bool // a goroutine sends
	conn   rueidis.DedicatedClient
	closed bool
	news   []news
}

// news is what Receive returns.
type news struct {
	m   wire.Message
	err error
}

func (c *client) Subscription(context.Context) wire.Subscription {
	return &subscription{c: c, came: make(chan struct{}, 1)}
}

func (s *subscription) Send(_ context.Context, command string, channels ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.ErrClosed
	}
	s.todo = append(s.todo, func(c rueidis.DedicatedClient) rueidis.Completed {
		switch command {
		case "subscribe":
			return c.B().Subscribe().Channel(channels...).Build()
		case "ssubscribe":
			return c.B().Ssubscribe().Channel(channels...).Build()
		case "unsubscribe":
			return c.B().Unsubscribe().Channel(channels...).Build()
		case "sunsubscribe":
			return c.B().Sunsubscribe().Channel(channels...).Build()
		}
		return c.B().Ping().Build()
	})
	if !s.works {
		s.works = true
		go s.work()
	}
	return nil
}

// next returns the oldest command, and is false when there is none.
func (s *subscription) next() (f func(rueidis.DedicatedClient) rueidis.Completed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.works = len(s.todo) > 0 && !s.closed; !s.works {
		return nil, false
	}
	f, s.todo = s.todo[0], s.todo[1:]
	return f, true
}

// work sends what there is to send. The answers to SUBSCRIBE come by the hook; PING's is a message without a kind.
func (s *subscription) work() {
	for f, ok := s.next(); ok; f, ok = s.next() {
		conn := s.connect()
		if conn == nil {
			return
		}
		command := f(conn)
		ping := command.Commands()[0] == "PING"
		if err := conn.Do(context.Background(), command).Error(); err != nil || ping {
			s.put(wire.Message{}, s.c.explain(err))
		}
	}
}

// connect returns the connection, or nil once it is closed.
func (s *subscription) connect() rueidis.DedicatedClient {
	if s.conn != nil { // it is set below only
		return s.conn
	}
	select {
	case s.c.connect <- struct{}{}:
	default:
		s.put(wire.Message{}, wire.ErrPoolTimeout)
		return nil
	}
	conn, _ := s.c.Dedicate()
	<-s.c.connect
	ended := conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) {
			s.put(wire.Message{Kind: "message", Channel: m.Channel, Payload: m.Message}, nil)
		},
		OnSubscription: func(m rueidis.PubSubSubscription) { s.put(wire.Message{Kind: m.Kind, Channel: m.Channel}, nil) },
	})
	go s.end(ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go conn.Close()
		return nil
	}
	s.conn = conn
	return conn
}

// end says why the connection ended.
func (s *subscription) end(ended <-chan error) {
	err := cmp.Or(<-ended, io.EOF)
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if !closed {
		s.put(wire.Message{}, s.c.explain(err))
	}
}

func (s *subscription) put(m wire.Message, err error) {
	s.mu.Lock()
	s.news = append(s.news, news{m, err})
	s.mu.Unlock()
	select {
	case s.came <- struct{}{}:
	default:
	}
}

func (s *subscription) Receive(ctx context.Context, timeout time.Duration) (wire.Message, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		s.mu.Lock()
		var first news
		closed, some := s.closed, len(s.news) > 0
		if some {
			first, s.news = s.news[0], s.news[1:]
		}
		s.mu.Unlock()
		switch {
		case closed:
			return wire.Message{}, wire.ErrClosed
		case some:
			return first.m, first.err
		}
		select {
		case <-s.came:
		case <-timer.C:
			return wire.Message{}, os.ErrDeadlineExceeded
		case <-ctx.Done():
			return wire.Message{}, ctx.Err()
		}
	}
}

func (s *subscription) Close() error {
	s.mu.Lock()
	conn, closed := s.conn, s.closed
	s.closed = true
	s.mu.Unlock()
	if conn != nil && !closed {
		conn.Close()
	}
	s.put(wire.Message{}, nil) // ends a Receive
	return nil
}
