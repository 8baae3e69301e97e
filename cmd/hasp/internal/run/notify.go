// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net"
	"os"
	"time"
)

// extension is for how much longer systemd is asked to wait for the start of a unit.
const extension = time.Minute

// extendStart keeps systemd from ending a unit of Type=notify while hasp waits, until
// stop is called: the unit has started when its command says so.
func extendStart() (stop func()) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return func() {}
	}
	c, err := net.Dial("unixgram", name)
	if err != nil { // it is not for us
		return func() {}
	}
	stopped := make(chan struct{})
	go func() {
		defer c.Close()
		again := time.NewTicker(extension / 3)
		defer again.Stop()
		for {
			_, _ = fmt.Fprintf(c, "EXTEND_TIMEOUT_USEC=%d", extension.Microseconds()) // systemd may have gone
			select {
			case <-stopped:
				return
			case <-again.C:
			}
		}
	}()
	return func() { close(stopped) }
}
