// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package starter is what hasp runs as between its fork and the command that it becomes. It
// imports nothing that is initialized after os (not strings, fmt or unix): so it is initialized before nearly
// all of hasp's packages, by the order of their paths, and a command begins earlier.
package starter

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/hasplock/hasp/internal/clock"
)

const (
	name  = "hasp-start" // its argv[0]
	fixed = 6            // its own arguments: name, pipe, Wall, Boot, left, path
)

// The answers: that it is about to become the command, after which the number of an
// error may follow, or that it is too late for that.
const Begins, Late = "+", "late"

// init comes before the packages that take longer to be initialized.
func init() {
	if len(os.Args) > fixed && os.Args[0] == name {
		become(os.Args)
	}
}

// Argv are the arguments with which this program becomes another, unless left is over since asked; it
// answers into pipe.
func Argv(pipe int, asked clock.Instant, left time.Duration, path string, argv []string) []string {
	return append([]string{name, strconv.Itoa(pipe), number(asked.Wall), number(asked.Boot), number(left), path}, argv...)
}

func number(d time.Duration) string { return strconv.FormatInt(int64(d), 10) }

// become makes this process the command, unless its time is over.
func become(args []string) {
	pipe, err := strconv.Atoi(args[1])
	var numbers [3]int64
	for i := range numbers {
		if err == nil {
			numbers[i], err = strconv.ParseInt(args[2+i], 10, 64)
		}
	}
	if err != nil || pipe < 3 {
		_, _ = os.Stderr.WriteString("hasp: " + name + " is for hasp itself\n")
		os.Exit(125)
	}
	syscall.CloseOnExec(pipe)
	asked := clock.Instant{Wall: time.Duration(numbers[0]), Boot: time.Duration(numbers[1])}
	now := clock.System()
	now.Mono = 0 // it counts from the start of each process
	answer := Late
	if now.Sub(asked) < time.Duration(numbers[2]) {
		if _, err := syscall.Write(pipe, []byte(Begins)); err != nil { // hasp is gone
			os.Exit(125)
		}
		err := syscall.Exec(args[fixed-1], args[fixed:], environ())
		var errno syscall.Errno
		_ = errors.As(err, &errno) // Exec returns no other
		answer = strconv.Itoa(int(errno))
	}
	_, _ = syscall.Write(pipe, []byte(answer)) // on an error hasp is gone, and so are we
	os.Exit(125)
}

// environ returns the environment, where what systemd said to hasp's process is said to
// the command's: descriptors that were passed, and a watchdog.
func environ() []string {
	env, parent := os.Environ(), strconv.Itoa(os.Getppid())
	for i, v := range env {
		for _, name := range []string{"LISTEN_PID=", "WATCHDOG_PID="} {
			if v == name+parent {
				env[i] = name + strconv.Itoa(os.Getpid())
			}
		}
	}
	return env
}
