// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	ClientMain()
	logging.Disable()
	room = make(chan struct{}, 8) // each has a dozen processes that are judged by the clock
	os.Exit(m.Run())
}
