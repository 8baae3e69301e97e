// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/conform/adapter"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/rogpeppe/go-internal/testscript"
)

var commands = map[string]func(){"hasp": patient, "counter": counter, "terms": terms, "adapter": adapt}

// The test binary is hasp, or a helper, when it is called so.
func TestMain(m *testing.M) {
	// With -race every hasp would sleep for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	if commands[filepath.Base(os.Args[0])] == nil {
		heed(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
		flag.Parse()
		testserver.SideBySide(12) // most of them wait
	}
	store.MachineFile = "/there is none" // whatever this machine has
	testscript.Main(m, commands)
}

// heed catches those of the signals that are ignored: under nohup SIGHUP is, and in
// the background of a script SIGINT and SIGQUIT. What the tests start would inherit
// that, but does not inherit that it is caught.
func heed(signals ...os.Signal) {
	for _, sig := range signals {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// patient is hasp for a machine that is busy with other tests. A try gives up
// after a little more.
func patient() {
	store.NodeTimeout = 2 * time.Second
	main()
}

// adapt is an adapter of package pipe's client, for hasp verify --client.
func adapt() {
	agent, err := net.Dial("unix", strings.TrimPrefix(os.Getenv("HASP_AGENT"), "unix:"))
	if err == nil {
		err = adapter.Serve(struct {
			io.Reader
			io.WriteCloser
		}{os.Stdin, os.Stdout}, agent)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// terms says that it is ready, and each TERM that it gets; it ends a little after the first.
func terms() {
	told := make(chan os.Signal, 9)
	signal.Notify(told, syscall.SIGTERM)
	fmt.Println("ready")
	for end := (<-chan time.Time)(nil); ; {
		select {
		case <-told:
			fmt.Println("TERM")
			if end == nil {
				end = time.After(100 * time.Millisecond)
			}
		case <-end:
			fmt.Println("over")
			os.Exit(0)
		}
	}
}

// counter prints numbers until there is a file named stop, and exits with 6. It
// starts no processes: a shell that does may be stopped within vfork, where
// nobody sees that it is.
func counter() {
	for i := 1; ; i++ {
		fmt.Println("count", i)
		if _, err := os.Stat("stop"); err == nil {
			os.Exit(6)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
