// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"

	"github.com/hasplock/hasp/internal/testserver"
)

// tb lets a show use the servers and links that were written for tests.
type tb struct {
	*testserver.Program
	ctx context.Context
}

// perform runs f, and ends what it started, also when it is interrupted.
func perform[T any](ctx context.Context, f func(*tb) T) (T, error) {
	return testserver.Perform(ctx, func(p *testserver.Program) T { return f(&tb{p, ctx}) })
}

func (t *tb) err() error { return t.Err() }

// must ends the show when err is not nil.
func (t *tb) must(err error) { t.Must(err) }
