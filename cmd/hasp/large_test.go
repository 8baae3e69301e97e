// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// The doctor names a link that passes small requests and loses large ones, on every engine with servers: make test asks Redis, whose
// client gives up soonest.
func TestDoctorNamesLostLargeRequests(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (addr string, url func(addr string) string){
		"redis": func(t *testing.T) (string, func(string) string) {
			return testserver.Redis(t).Addr(), func(addr string) string { return "redis://" + addr }
		},
		"etcd": func(t *testing.T) (string, func(string) string) {
			return testserver.Etcd(t).Addr(), func(addr string) string { return "etcd://" + addr }
		},
		"zookeeper": func(t *testing.T) (string, func(string) string) {
			return testserver.ZooKeeper(t).Addr(), func(addr string) string { return "zk://" + addr }
		},
		"postgres": func(t *testing.T) (string, func(string) string) {
			return testserver.Postgres(t).Addr(), func(addr string) string { return "postgres://postgres@" + addr + "/postgres?sslmode=disable" }
		},
		"mariadb": func(t *testing.T) (string, func(string) string) {
			addr := testserver.MariaDB(t).Addr()
			on(t, "mysql", "root@tcp("+addr+")/")("CREATE DATABASE d")
			return addr, func(addr string) string { return "mysql://root@" + addr + "/d" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "redis" {
				testserver.Variant(t, name)
			}
			addr, url := start(t)
			link := faultproxy.New(t, addr)
			s := newSandbox(t, url(link.Addr()))
			if name == "postgres" || name == "mariadb" {
				s.exits(0, "init")
			}
			for lossy, code := range []int{0, 78} {
				if lossy == 1 {
					link.Hook(faultproxy.LosesLarge(1400))
				}
				p := s.hasp("doctor", "-o", "json")
				p.ends(code)
				if said := p.out.String() + p.err.String(); strings.Contains(said, `"check":"mtu"`) != (lossy == 1) || strings.Contains(said, "one of 8 KiB is not") != (lossy == 1) {
					t.Errorf("large requests are lost: %v. The doctor says\n%s", lossy == 1, said)
				}
			}
		})
	}
}
