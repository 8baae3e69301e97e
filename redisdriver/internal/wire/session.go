// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// session opens one connection and delivers what comes, until it fails.
func (in *Inbox) session() error {
	conn := in.o.Client.Subscribe(in.life)
	in.mu.Lock()
	in.conn = conn
	in.mu.Unlock()
	defer conn.Close()
	if in.life.Err() != nil {
		return in.life.Err()
	}
	subscribe := conn.Subscribe
	if in.o.Sharded {
		subscribe = conn.SSubscribe
	}
	channels := append([]string{in.o.Own}, in.o.More...)
	if err := subscribe(in.life, channels...); err != nil {
		return err
	}
	for range channels {
		if _, err := conn.ReceiveTimeout(in.life, confirmTime); err != nil {
			return err
		}
	}
	counted, _ := in.probe()
	in.Raise(counted)
	if err := in.guests.arrive(in, conn); err != nil {
		return err
	}
	return in.receive(conn, counted)
}

// receive delivers what comes over a connection until it fails.
func (in *Inbox) receive(conn *redis.PubSub, counted bool) error {
	checked, pinged := time.Now(), false
	for {
		m, err := conn.ReceiveTimeout(in.life, in.pace)
		if name, ok := in.guests.refused(err); ok {
			in.stands(name)
		} else if err != nil && (pinged || !timeout(err)) {
			return in.guests.cause(err)
		}
		switch m := m.(type) {
		case *redis.Message:
			in.o.Receive(m.Channel, m.Payload)
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
				in.stands(m.Channel) // before a user that joins it now hears of it, and has missed nothing
			}
			if !in.guests.confirmed(m) {
				return errUnsubscribed // the hash slot moved to another node
			}
		}
		if pinged = false; time.Since(checked) < in.quiet() {
			continue
		}
		counts, err := in.probe()
		if err == nil && counted && !counts {
			return errElsewhere
		}
		if !counts { // else that message is to come
			if err := conn.Ping(in.life); err != nil {
				return err
			}
		}
		checked, pinged = time.Now(), true
	}
}

// quiet is how long after a check the next one is due.
func (in *Inbox) quiet() time.Duration {
	if in.o.Idle() {
		return 2 * in.pace
	}
	return in.pace
}

func (in *Inbox) stands(channel string) {
	if in.o.Stands != nil { // else no channel comes and goes
		in.o.Stands(channel)
	}
}

var (
	errUnsubscribed = errors.New("redis: the server ended a subscription")
	errElsewhere    = errors.New("redis: the subscription is not on the server that commands go to")
)

func timeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// probe publishes to ourselves, by the way that commands take, and says
// whether the count of receivers includes us: then a count of 0 means that
// this process is gone. Behind a proxy, say, it does not; after a failover the
// subscription may still be on the server that was the master.
func (in *Inbox) probe() (counted bool, err error) {
	publish := in.o.Client.Publish
	if in.o.Sharded {
		publish = in.o.Client.SPublish
	}
	ctx, cancel := context.WithTimeout(in.life, confirmTime)
	defer cancel()
	n, err := Await(ctx, func(ctx context.Context) (int64, error) { return publish(ctx, in.o.Own, "").Result() })
	if in.o.Muted != nil {
		switch in.o.Classify(err) {
		case driver.ClassDenied, driver.ClassMisconfigured:
			in.o.Muted(true)
		default:
			if err == nil {
				in.o.Muted(false)
			}
		}
	}
	return n > 0, err
}
