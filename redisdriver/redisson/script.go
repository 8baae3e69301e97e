// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"embed"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

//go:embed lua/*.lua
var sources embed.FS

var (
	lockTry     = load("common", "lock_try")
	lockRelease = load("common", "lock_release")
	extend      = load("common", "extend")
	fairTry     = load("common", "fair", "fair_try")
	fairKeep    = load("common", "fair", "fair_keep")
	fairRelease = load("common", "fair", "fair_release")
	rwTry       = load("common", "rw", "rw_try")
	rwRelease   = load("common", "rw", "rw_release")
	rwExtend    = load("common", "rw", "rw_extend")
	bear        = load("common", "bear")
	inspect     = load("common", "rw", "inspect")

	semaphore = load("common", "count", "semaphore")
	expirable = load("common", "count", "expirable")
	latch     = load("common", "count", "latch")
)

func load(parts ...string) *wire.Script { return wire.Load(sources, parts...) }
