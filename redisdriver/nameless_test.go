// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/redis/go-redis/v9"
)

// otherInfo has scripts see another answer to INFO, as from a server that is
// only compatible. The server never learns the scripts' own names, so each is
// sent as text.
func otherInfo(info string) edit {
	return func(cmd redis.Cmder) {
		if args := cmd.Args(); args[0] == "eval" {
			text := args[1].(string)
			for _, call := range []string{"redis.call('INFO', 'server')", "call('INFO', 'server')"} {
				text = strings.ReplaceAll(text, call, info)
			}
			args[1] = text
		}
	}
}

// A server whose run has no name, or none that a record can carry, cannot be a
// node: a restart would not be noticed. Every caller gets that error at once, and
// nothing is written.
func TestServerWithoutRunID(t *testing.T) {
	for name, info := range map[string]string{
		"none":  `'# Server\r\nredis_version:7.2.4\r\n'`,
		"short": `'# Server\r\nrun_id:0123456789abcdef\r\ntcp_port:1\r\n'`,
		"long":  `'# Server\r\nrun_id:' .. string.rep('0', 41) .. '\r\n'`,
		"text":  `'# Server\r\nrun_id:' .. string.rep('.', 40) .. '\r\n'`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			rdb := w.client(nil)
			rdb.AddHook(otherInfo(info))
			d := w.nodeOver(rdb, nodeMaxTTL)
			if _, err := (&Node{d}).Record(w.ctx); d.Classify(err) != driver.ClassImpossible || !strings.Contains(err.Error(), "run_id") {
				t.Errorf("Record says %v (%v)", err, d.Classify(err))
			}
			if err := (&Node{d}).Admit(w.ctx, voting.Record{Text: "wait 0 x"}, nodeMaxTTL); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Admit says %v", err)
			}
			w.do("SET", recordKey, "wait 0 x")
			if err := (&Node{d}).Admit(w.ctx, voting.Record{Text: "wait 0 x"}, nodeMaxTTL); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Admit of a record that another server left says %v", err)
			}
			w.do("DEL", recordKey)
			if res := w.refuse(d, ask("k")); res.Why != voting.NotVoting {
				t.Errorf("Try says %+v", res)
			}
			if errs := w.renew(d, ask("k")); !errors.Is(errs[0], voting.ErrNotVoting) {
				t.Errorf("Renew says %v", errs)
			}
			locks, err := hasp.New(seen(d), &hasp.Options{StateDir: t.TempDir()})
			must(t, err)
			defer locks.Close()
			_, err = locks.Mutex("k", &hasp.LockOptions{TTL: time.Second}).Lock(w.ctx)
			var e *hasp.Error
			failIf(t, !errors.As(err, &e) || e.Class != driver.ClassImpossible, "Lock says %v", err)
			if keys := w.keys(); len(keys) != 0 {
				t.Errorf("it left %q", keys)
			}
		})
	}
}
