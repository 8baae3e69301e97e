// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package store

import "os"

// Windows keeps a user's folders from others by itself.

func foreign(os.FileInfo) string { return "" }

func othersWrite(os.FileInfo) bool { return false }

func limitNewFiles(os.FileMode) (undo func()) { return func() {} }
