// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package sqldriver

import "os"

// Windows deletes no file that a process has open, and does not say in a
// FileInfo how many names it has.

func links(os.FileInfo) uint64 { return 1 }

func keep(string) (*os.File, error) { return nil, nil }

func isOpen(os.FileInfo) bool { return false }

func openPlain(path string) (*os.File, error) { return os.OpenFile(path, os.O_WRONLY, 0) }
