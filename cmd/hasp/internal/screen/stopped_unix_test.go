// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package screen

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Who stood still for longer than the timer hears of it all the same; who was not stopped does not wait for good.
func TestStopped(t *testing.T) {
	for after, want := range map[time.Duration]bool{0: true, patience + patience/2: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			goOn := make(chan os.Signal, 1)
			timer := time.AfterFunc(after, func() { goOn <- syscall.SIGCONT })
			defer timer.Stop()
			if got := stopped(goOn); got != want {
				t.Errorf("SIGCONT after %v: %v, want %v", after, got, want)
			}
		})
	}
}
