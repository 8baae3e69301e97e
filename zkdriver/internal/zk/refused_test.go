// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"errors"
	"testing"
	"time"
)

// A transaction that was refused because the session is over proves nothing, although its header has no error.
func TestRefusedMultiProvesNothing(t *testing.T) {
	t.Parallel()
	var answer encoder
	answer.int(-1)
	answer.bool(false)
	answer.int(int32(ErrSessionExpired))
	answer.int(int32(ErrSessionExpired))
	answer.int(-1)
	answer.bool(true)
	answer.int(-1)
	now := time.Now()
	s := &Session{timeout: time.Minute}
	s.note(touch{sent: now.Add(-time.Minute / 2), answered: now.Add(-time.Minute / 2)})
	l := &link{s: s}
	call, b := Multi(Delete("/a")), &batch{left: 1, done: make(chan struct{})}
	l.pending = []pending{{1, call, b, now}}
	if !l.reply(1, 0, &decoder{b: answer.b}) || !errors.Is(call.Err, ErrSessionExpired) {
		t.Fatalf("the answer is %v", call.Err)
	}
	if until := s.Assured(); !until.IsZero() {
		t.Errorf("the session is assured for %v", until.Sub(now))
	}
}
