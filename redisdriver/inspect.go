// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// maxLine is how many waiters Inspect names.
const maxLine = 1000

// Inspect says who holds a key and who waits for it. Of a line of more than
// 10,000 places it counts those.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := d.checkKey(key); err != nil {
		return driver.Info{}, err
	}
	info, err := d.look(ctx, key, maxLine)
	if err == nil {
		info.ByHand = byHand(d.names(key))
	}
	return info, err
}

// look asks for a key and the first n of its line.
func (d *Driver) look(ctx context.Context, key string, n int) (driver.Info, error) {
	names := d.names(key)
	v, err := d.send.do(ctx, &call{
		script: inspectScript, keys: []any{names.lock, names.grant, names.line, names.places}, args: []any{n},
	})
	if err != nil {
		return driver.Info{}, err
	}
	r := newReply(v)
	info := driver.Info{Key: key}
	kind, text, left := next[string](r), next[string](r), next[int64](r)
	g := parseGrant(next[string](r))
	info.Waiters = int(next[int64](r))
	for !r.bad && len(r.fields) > 0 {
		info.Line = append(info.Line, holderOf(next[string](r)))
	}
	switch {
	case r.bad:
		return driver.Info{}, errReply
	case kind == "string":
		describe(&info, text, span(left), g)
	case kind != "none":
		return driver.Info{}, &TypeError{Key: names.lock, Type: kind}
	}
	return info, nil
}

// byHand are redis-cli statements about a key, in the order in which a person
// would ask.
func byHand(n names) []string {
	return []string{
		"GET " + quote(n.lock),
		"PTTL " + quote(n.lock),
		"GET " + quote(n.grant),
		"ZRANGE " + quote(n.line) + " 0 -1",
		"HGETALL " + quote(n.places),
	}
}

// quote writes s as redis-cli reads it, in one printable line.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// What PTTL says of a key without an expiry and of one that is not there;
// other values are milliseconds.
const (
	forever time.Duration = -1
	free    time.Duration = -2
)

// span reads PTTL's number.
func span(pttl int64) time.Duration {
	if pttl < 0 {
		return time.Duration(pttl)
	}
	return time.Duration(pttl) * time.Millisecond
}

// describe fills in who holds a key, from its value, what PTTL says of it and
// its grant record.
func describe(info *driver.Info, text string, left time.Duration, g grant) {
	info.Held = true
	info.Holder = g.holder(text)
	if !info.Holder.Since.IsZero() {
		info.Fence = g.fence
	}
	info.Left = left
}
