// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package sqldriver

import (
	"math"
	"os"
)

// links: Windows does not say in a FileInfo how many names a file has.
func links(os.FileInfo) uint64 { return 1 }

func maxFile() int64 { return math.MaxInt64 }
