// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	long = flag.Bool("long", false, "run the long form of all tests")
	into = flag.String("into", "", "write the tables into this `file`, between the marks that are there")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := run(m)
	os.Exit(code)
}

func run(m *testing.M) int {
	var err error
	if binaries, err = os.MkdirTemp("", "hasp-clients-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binaries)
	code := m.Run()
	if code == 0 && *into != "" {
		if err := results.write(*into); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// pick is the value of the form that runs.
func pick[T any](inLong, inShort T) T {
	if *long {
		return inLong
	}
	return inShort
}

// Rule: whoever of the two holds the lock, the other is refused, and has it once it is unlocked, or its holder was killed or stopped for
// longer than its TTL; a late unlock takes nothing from the next holder; and no addition to a number under the lock is lost.
func pairs(t *testing.T, p *program) {
	x := newTrial(t, p)
	x.wake(pick(30, 5))
	x.killed()
	x.stopped()
	x.count(pick(5*time.Second, time.Second))
	results.pairs(x)
}

func TestGo(t *testing.T)       { pairs(t, goPeer) }
func TestPython(t *testing.T)   { pairs(t, python) }
func TestNode(t *testing.T)     { pairs(t, node) }
func TestRedisson(t *testing.T) { pairs(t, java) }
