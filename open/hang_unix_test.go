// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package open_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/open"
)

// The context bounds the reading of a file that is never written.
func TestContextBoundsReading(t *testing.T) {
	for name, url := range map[string]string{
		"tls-ca":      "rediss://:hunter2@h?tls-ca=",
		"sslrootcert": "postgres://me:hunter2@h/db?sslmode=verify-full&sslrootcert=",
		"passfile":    "postgres://me@h/db?application_name=hunter2&passfile=",
	} {
		t.Run(name, func(t *testing.T) {
			pipe := filepath.Join(t.TempDir(), "file")
			must(t, syscall.Mkfifo(pipe, 0o600))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := open.Driver(ctx, url+pipe)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not read in time") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("it says %v", err)
			}
			writer, err := syscall.Open(pipe, syscall.O_WRONLY, 0) // the reader goes on until its file ends
			must(t, err)
			must(t, syscall.Close(writer))
		})
	}
}
