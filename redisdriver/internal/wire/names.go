// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Sidecars begins the name of everything of hasp's in Redis but the locks themselves; no lock's does.
const Sidecars = "hasp."

// Beside returns the end of a sidecar's name. It lies in the lock key's slot
// and tells the three forms apart, so that no two locks share a sidecar:
// "={tag}rest" for a key with a hash tag, "{key}" for a key without a }, and
// "#{tag of the slot}key" for the others.
func Beside(lock string) string {
	if _, tagged := Hashed(lock); tagged {
		return "=" + lock
	}
	if !strings.Contains(lock, "}") {
		return "{" + lock + "}"
	}
	return "#{" + TagOf(HashSlot(lock)) + "}" + lock
}

// LockOf undoes Beside.
func LockOf(side string) (lock string, ok bool) {
	switch {
	case strings.HasPrefix(side, "="):
		lock = side[1:]
	case strings.HasPrefix(side, "{"):
		lock = strings.TrimSuffix(side[1:], "}")
	case strings.HasPrefix(side, "#{"):
		_, lock, _ = strings.Cut(side, "}")
	}
	return lock, lock != "" && Beside(lock) == side
}

// Glob escapes what SCAN's MATCH would read as a pattern.
func Glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// Millis counts whole milliseconds, rounded up: the store keeps a lease at
// least as long as was asked.
func Millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Quote writes s as redis-cli reads it, in one printable line.
func Quote(s string) string {
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

// What PTTL says of a key without an expiry, and of an absent key;
// other values are milliseconds.
const (
	Forever time.Duration = -1
	Free    time.Duration = -2
)

// maxMillis is the longest Span, to which a millisecond may be added. A TTL rounded up may be longer.
const maxMillis = int64(math.MaxInt64/time.Millisecond) - 1

// Span reads PTTL's number.
func Span(pttl int64) time.Duration {
	if pttl < 0 {
		return time.Duration(pttl)
	}
	return time.Duration(min(pttl, maxMillis)) * time.Millisecond
}

const slots = 16384

// Hashed returns the part of a key that decides its cluster slot: what stands
// between the first { and the first } after it, if anything, else all.
func Hashed(key string) (part string, tagged bool) {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag, true
		}
	}
	return key, false
}

// HashSlot is the cluster slot of a key: CRC-16/XMODEM of its hashed part.
func HashSlot(key string) int {
	part, _ := Hashed(key)
	var crc uint16
	for i := range len(part) {
		crc ^= uint16(part[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// TagOf returns a hash tag that lies in a slot, always the same one: the first
// number, written in base 36, that does.
func TagOf(s int) string { return tags()[s] }

var tags = sync.OnceValue(func() *[slots]string {
	var t [slots]string
	for n, found := int64(0), 0; found < slots; n++ {
		tag := strconv.FormatInt(n, 36)
		if s := HashSlot(tag); t[s] == "" {
			t[s] = tag
			found++
		}
	}
	return &t
})
