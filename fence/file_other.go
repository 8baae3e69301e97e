// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package fence

import (
	"errors"
	"os"
)

func lock(*os.File, bool) error { return errors.ErrUnsupported }
