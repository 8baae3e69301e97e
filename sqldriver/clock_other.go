// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin && !windows

package sqldriver

import (
	"errors"
	"runtime"
)

func system() (reading, error) {
	return reading{}, errors.New("there is no clock here that counts since boot (" + runtime.GOOS + ")")
}
