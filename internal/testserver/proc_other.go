// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package testserver

import (
	"errors"
	"os"
	"syscall"
)

func diesWithParent() *syscall.SysProcAttr { return nil }

func stop(*os.Process) error { return errors.ErrUnsupported }

func cont(*os.Process) error { return errors.ErrUnsupported }
