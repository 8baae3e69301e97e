// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"strconv"
)

// exitCode is a flag's value from 0 to 255: the system cuts off the rest.
type exitCode struct{ Code int }

func (v *exitCode) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 255 {
		return errors.New("an exit code is a number from 0 to 255")
	}
	v.Code = n
	return nil
}

func (v *exitCode) String() string { return strconv.Itoa(v.Code) }

func (v *exitCode) Type() string { return "CODE" }

// slots is a flag's value: how many may hold a key at once. 0: not given.
type slots struct{ N int }

func (v *slots) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return errors.New("a number of slots is at least 1")
	}
	v.N = int(n)
	return nil
}

func (v *slots) String() string {
	if v.N == 0 {
		return ""
	}
	return strconv.Itoa(v.N)
}

func (v *slots) Type() string { return "N" }
