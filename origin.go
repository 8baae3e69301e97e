// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// origin is the calls that took a lease, innermost first.
type origin [24]uintptr

// origin notes where a lease is taken, when that was asked for.
func (c *core) origin() *origin {
	if !c.recordTaken {
		return nil
	}
	o := new(origin)
	runtime.Callers(2, o[:])
	return o
}

// String lists the calls outside this package, one a line.
func (o *origin) String() string {
	if o == nil {
		return ""
	}
	var b strings.Builder
	calls := o[:]
	if n := slices.Index(calls, 0); n >= 0 {
		calls = calls[:n]
	}
	frames := runtime.CallersFrames(calls)
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function != "" && f.Function != "runtime.goexit" && !strings.HasPrefix(f.Function, "github.com/hasplock/hasp.") {
			fmt.Fprintf(&b, "%s (%s:%d)\n", f.Function, f.File, f.Line)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
