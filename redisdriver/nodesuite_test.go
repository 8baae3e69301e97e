// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/redis/go-redis/v9"
)

var _ quorum.Async = (*Node)(nil)

// TestNodeSuite holds a node to the specification.
func TestNodeSuite(t *testing.T) {
	t.Parallel()
	h := drivertest.Harness{New: func(t testing.TB) drivertest.Store {
		server := testserver.Redis(t)
		dump := filepath.Join(server.Dir(), "dump.rdb")
		admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = admin.Close() })
		flush := func() {
			must(t, admin.FlushAll(t.Context()).Err())
		}
		return drivertest.Store{
			Open: func() driver.Driver {
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
				t.Cleanup(func() { _ = rdb.Close() })
				return &Node{unhurried(NewNode(rdb, 2*time.Hour, nil).Driver)}
			},
			Leftovers: func() []string {
				return slices.DeleteFunc(permanent(t, admin), func(key string) bool { return key == recordKey })
			},
			Names:   func() []string { return everything(t, admin) },
			Persist: func(key string) bool { return persist(t, admin, DefaultPrefix+key) },
			Flush:   flush,
			Reload: func() {
				must(t, admin.Save(t.Context()).Err())
				server.Restart()
			},
			Restart: func() {
				if err := os.Remove(dump); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
				server.Restart()
			},
		}
	}}
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			h := h
			if strings.HasPrefix(c.Name, "HeldBack") {
				h.TTL = 5 * time.Second // a lease must outlast a restart
			}
			c.Run(t, h)
		})
	}
}
