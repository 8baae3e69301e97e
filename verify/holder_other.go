// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package verify

// HolderMain does nothing: without signals there are no holder processes.
func HolderMain() {}
