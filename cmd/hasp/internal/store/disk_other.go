// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin && !freebsd

package store

// sharedDisk: not known here.
func sharedDisk(string) string { return "" }

func layered(string) bool { return false }
