// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sleep is time.Sleep, but to a few microseconds: an idle Go program waits for its timers in whole milliseconds.
func sleep(d time.Duration) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err == nil {
		f := os.NewFile(uintptr(fd), "timer")
		defer f.Close()
		if err = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil); err == nil {
			_, err = f.Read(make([]byte, 8))
		}
	}
	if err != nil {
		time.Sleep(d)
	}
}
