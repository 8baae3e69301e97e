// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// longest leaves room for sums with a duration.
const longest = 100 * 365 * 24 * time.Hour

var errOutOfRange = errors.New("out of range: more than 100 years")

// duration is a flag's value: seconds as flock takes them, fractions too, or a
// duration of Go such as 1m30s. Never negative.
type duration struct {
	d   time.Duration
	set bool
}

func (v *duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if sec, numErr := strconv.ParseFloat(s, 64); numErr == nil {
		if math.IsNaN(sec) || math.Abs(sec) > longest.Seconds() {
			return errOutOfRange
		}
		d, err = time.Duration(sec*1e9), nil
	}
	switch {
	case err != nil:
		return errors.New("neither seconds, such as 30 or 0.5, nor a duration, such as 1m30s")
	case d > longest:
		return errOutOfRange
	}
	if d < 0 || math.Signbit(float64(d)) {
		return errors.New("negative")
	}
	v.d, v.set = d, true
	return nil
}

func (v *duration) String() string {
	if !v.set {
		return ""
	}
	return v.d.String()
}

func (v *duration) Type() string { return "DURATION" }

// exitCode is a flag's value from 0 to 255: the system cuts off the rest.
type exitCode struct{ code int }

func (v *exitCode) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 255 {
		return errors.New("an exit code is a number from 0 to 255")
	}
	v.code = n
	return nil
}

func (v *exitCode) String() string { return strconv.Itoa(v.code) }

func (v *exitCode) Type() string { return "CODE" }

// slots is a flag's value: how many may hold a key at once. 0: not given.
type slots struct{ n int }

func (v *slots) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return errors.New("a number of slots is at least 1")
	}
	v.n = int(n)
	return nil
}

func (v *slots) String() string {
	if v.n == 0 {
		return ""
	}
	return strconv.Itoa(v.n)
}

func (v *slots) Type() string { return "N" }

// choice is a flag's value out of a few words.
type choice struct {
	word  string
	among []string
}

func (v *choice) Set(s string) error {
	if !slices.Contains(v.among, s) {
		return fmt.Errorf("it is one of %s", strings.Join(v.among, ", "))
	}
	v.word = s
	return nil
}

func (v *choice) String() string { return v.word }

func (v *choice) Type() string { return strings.Join(v.among, "|") }
