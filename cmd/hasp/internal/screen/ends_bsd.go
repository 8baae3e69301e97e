// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package screen

import "os"

// kernelEnds changes nothing here: Go has no call for it, so its own handler ends the process.
func kernelEnds([]os.Signal) (restore func()) { return func() {} }
