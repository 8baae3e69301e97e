// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: a server that refuses writes carries out all of a script or nothing, and
// takes writes again afterwards.
func TestRefusals(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	_, err := testserver.Perform(t.Context(), func(p *testserver.Program) any {
		n := newNode(p, KeepNothing, false, nil)
		rdb := direct(n.server)
		defer rdb.Close()
		get := func(key string) string {
			return rdb.Get(p.Context(), key).Val()
		}
		for _, how := range refusals {
			p.Must(n.do(n.server, []any{"mset", "a", "before", "b", "before"}))
			n.refuse(how)
			for script, whole := range map[string]bool{
				"redis.call('SET', 'b', 'after') redis.call('DEL', 'a')": false,
				"redis.call('DEL', 'a') redis.call('SET', 'b', 'after')": how == "OOM", // its first write takes no memory
			} {
				err := n.do(n.server, []any{"eval", script, 0})
				if (err == nil) != whole || err != nil && !strings.Contains(err.Error(), how) {
					t.Errorf("%s: %s: %v", how, script, err)
				}
				a, b := "before", "before"
				if whole {
					a, b = "", "after"
				}
				if get("a") != a || get("b") != b {
					t.Errorf("%s: %s leaves a=%q, b=%q", how, script, get("a"), get("b"))
				}
				n.accept(how)
				p.Must(n.do(n.server, []any{"mset", "a", "before", "b", "before"}))
				n.refuse(how)
			}
			n.accept(how)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
