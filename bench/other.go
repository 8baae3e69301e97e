// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import (
	"errors"
	"os"
	"time"
)

func processCPU() time.Duration { return 0 }

func checkLimits() error { return nil }

func flock(*os.File, bool) error { return errors.ErrUnsupported }
