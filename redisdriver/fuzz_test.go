// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// Sidecars lie in the lock's slot, name their lock, and no other.
func FuzzNames(f *testing.F) {
	for _, key := range hostile {
		f.Add(key, "{k}")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			t.Skip()
		}
		side := wire.Beside(a)
		if wire.HashSlot(wire.Sidecars+"queue:"+side) != wire.HashSlot(a) {
			t.Errorf("%q of %q is in another slot", side, a)
		}
		if lock, ok := wire.LockOf(side); !ok || lock != a {
			t.Errorf("%q of %q is read as %q, %v", side, a, lock, ok)
		}
		failIf(t, a != b && side == wire.Beside(b), "%q and %q share %q", a, b, side)
		if lock, ok := wire.LockOf(a); ok && wire.Beside(lock) != a {
			t.Errorf("%q is read as the side of %q", a, lock)
		}
	})
}

// A value is ours exactly when we could have written it.
func FuzzHolder(f *testing.F) {
	f.Add(value(ask("k").Claim()))
	f.Add(strings.Repeat("A", 26))
	f.Add(strings.Repeat("A", 26) + " " + strings.Repeat("x", 600))
	f.Add("\x00\xff")
	f.Fuzz(func(t *testing.T, v string) {
		h := holderOf(v)
		if !h.Foreign {
			r := contend.Owner{Owner: h.Owner, Label: h.Label}
			if !driver.ValidOwner(h.Owner) || len(h.Label) > driver.MaxLabel || value(r.Claim()) != v {
				t.Errorf("%q is read as %+v", v, h)
			}
		} else if h.Owner != "" || !strings.HasPrefix(v, h.Label) || len(h.Label) > driver.MaxLabel {
			t.Errorf("%q is read as %+v", v, h)
		}
	})
}

// A hint names a holder of ours and a key under our prefix, or is none.
func FuzzHint(f *testing.F) {
	v := value(ask("k").Claim())
	f.Add(fmt.Sprintf("%03d%slock:k", len(v), v))
	f.Add(fmt.Sprintf("=1763719200123456 1763719200123457 500! 0123456789abcdef %03d%slock:k", len(v), v))
	f.Add("")
	f.Add("000lock:k")
	f.Add("999")
	f.Add("-01x")
	d := New(nil, nil)
	f.Fuzz(func(t *testing.T, s string) {
		m, ok := d.parseHint(s)
		if !ok {
			return
		}
		if c := m.Claim; c.Key == "" || !driver.ValidOwner(c.Owner) || !strings.HasSuffix(s, value(c)+d.prefix+c.Key) {
			t.Errorf("%q is read as %+v", s, c)
		}
	})
}

func FuzzGrant(f *testing.F) {
	f.Add(strings.Repeat("A", 26) + " 1763719200123456 1763719200123 h")
	f.Add(strings.Repeat("A", 26) + " -763719200123456 +763719200123 c")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		g := parseGrant(s)
		if g == (grant{}) {
			return
		}
		if !strings.HasPrefix(s, g.owner+" ") || !strings.Contains("hmcHMC", string(g.state)) || g.since.UnixMilli() < 0 {
			t.Errorf("%q is read as %+v", s, g)
		}
	})
}

// Whatever a script, or something that answers in its place, says: an answer
// or an error, and no panic.
func FuzzTryReply(f *testing.F) {
	f.Add(int64(0), "v", int64(5), int64(1), "g", uint8(6))
	f.Add(int64(1), "1763719200123456", int64(0), int64(0), "", uint8(4))
	f.Add(int64(-1), "hash", int64(0), int64(0), "", uint8(2))
	f.Fuzz(func(t *testing.T, code int64, text string, a, b int64, more string, n uint8) {
		fields := []any{code, text, a, b, more, int64(1), "", nil}
		grant := []any{code, text, a, b, int64(n)}
		for _, v := range []any{nil, text, code, grant, fields, fields[:int(n)%len(fields)]} {
			got, err := parseTry(v)
			if err != nil {
				continue
			}
			if got.Granted && got.Fence == 0 && strings.Trim(text, "0") != "" {
				t.Errorf("%v grants without a fence", v)
			}
			if !got.Granted {
				got.refuse(true)
				got.refuse(false)
			}
		}
	})
}

// What quote writes is one printable line, and names every byte.
func FuzzQuote(f *testing.F) {
	f.Add("k\x00\"\\\n\xff'")
	f.Fuzz(func(t *testing.T, s string) {
		q := wire.Quote(s)
		if strings.ContainsFunc(q, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is not printable", q)
		}
		if back, err := strconv.Unquote(q); err != nil || back != s {
			t.Errorf("%q is read as %q, %v", q, back, err)
		}
	})
}
