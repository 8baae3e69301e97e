// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/redis/go-redis/v9"
)

// parseRedlock reads what follows "redlock:" or "redlocks:". It is a URL of Redis
// with several hosts; all else in it is the same for each of them.
func parseRedlock(scheme, text string) (*URL, error) {
	rest, ok := strings.CutPrefix(text, "//")
	if !ok {
		return nil, fmt.Errorf("after %s: come // and the hosts: %s://HOST1,HOST2,HOST3", scheme, scheme)
	}
	hosts, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, tail = rest[:i], rest[i:]
	}
	user := ""
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	var u *URL
	var r *redisServers
	var nodes []*redis.Options
	for i, host := range strings.Split(hosts, ",") {
		if host == "" {
			return nil, fmt.Errorf("host %d in the store's URL is empty", i+1)
		}
		one, err := parseRedis(strings.Replace(scheme, "redlock", "redis", 1), "//"+user+host+tail)
		if err != nil {
			return nil, err
		}
		u, r = one, one.place.(*redisServers) //nolint:forcetypeassert // parseRedis made it
		r.seen.scheme = scheme
		node := r.nodes[0]
		if slices.ContainsFunc(nodes, func(o *redis.Options) bool { return o.Addr == node.Addr }) {
			return nil, fmt.Errorf("the store's URL names %s twice, which would give it two votes", node.Addr)
		}
		nodes = append(nodes, node)
	}
	if r.redisson {
		return nil, errRedlockLayout
	}
	r.nodes, r.majority = nodes, true
	if r.maxTTL == 0 {
		r.maxTTL = hasp.DefaultTTL
	}
	switch n := len(nodes); {
	case n < 3 || n > 7:
		return nil, fmt.Errorf("the number of hosts in the store's URL is %d: a lock that is held on a majority takes 3, 5 or 7 of them", n)
	case n%2 == 0:
		return nil, fmt.Errorf("the number of hosts in the store's URL is %d: %d survive as many failures as %d, and one more can fail; name %d or %d",
			n, n, n-1, n-1, n+1)
	}
	return u, r.checkTTL(u.TTL)
}
