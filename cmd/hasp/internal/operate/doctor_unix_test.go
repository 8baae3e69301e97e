// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package operate

import (
	"os/signal"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
)

// A signal ends what the doctor does, and is its exit code.
func TestUntilSignal(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		if signal.Ignored(sig) { // these tests run under nohup
			continue
		}
		ctx, stop := base.UntilSignal()
		if end := interruption(ctx); end != nil {
			t.Errorf("before a signal: %v", end)
		}
		must(t, syscall.Kill(syscall.Getpid(), sig))
		<-ctx.Done()
		if end := interruption(ctx); end == nil || end.Code != code || end.Verdict != "interrupted" || end.Interrupted {
			t.Errorf("after %v: %+v", sig, end)
		}
		stop()
	}
	ctx, stop := base.UntilSignal()
	stop()
	if end := interruption(ctx); end != nil {
		t.Errorf("after its end: %v", end)
	}
}
