// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// names are the Redis keys and channels of one lock. Redisson's have its names; hasp's sidecars begin with "hasp.".
type names struct {
	lock, queue, timeouts, token string
	channel                      string // of the kind's messages; of a fair lock's, what they begin with
	reader                       string // what the key of a reader's hold begins with
	side                         string
}

func (d *Driver) names(key string) names {
	lock := d.prefix + key
	n := names{
		lock:     lock,
		queue:    prefixName("redisson_lock_queue", lock),
		timeouts: prefixName("redisson_lock_timeout", lock),
		token:    prefixName("redisson_lock_token", lock),
		channel:  prefixName("redisson_lock__channel", lock),
		reader:   suffixName(lock, ""),
		side:     wire.Beside(lock),
	}
	if d.kind == ReadWrite {
		n.channel = prefixName("redisson_rwlock", lock)
	}
	return n
}

func (n names) about() string               { return wire.Sidecars + "redisson:" + n.side }
func (n names) waiters() string             { return wire.Sidecars + "redisson.waiters:" + n.side }
func (n names) gone(owner string) string    { return wire.Sidecars + "gone:" + owner + ":" + n.side }
func (n names) timeout(field string) string { return n.reader + field + ":rwlock_timeout:1" }

// prefixName and suffixName are Redisson's, which put a name into braces unless it has one.
func prefixName(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

func suffixName(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// tagged are the names that have all of Redisson's keys in one hash slot.
const tagged = "choose a name without braces, or with one tag {like this}"

// oneSlot returns nil if all of a lock's names are in one hash slot.
func (n names) oneSlot() error { return oneSlot("lock", tagged, n.lock, n.queue, n.channel, n.reader) }

// oneSlot returns nil if the names that belong to a lock, or to a semaphore, are in its hash slot.
func oneSlot(what, advice, key string, others ...string) error {
	slot := wire.HashSlot(key)
	for _, name := range others {
		if wire.HashSlot(name) != slot {
			return &wire.ConfigError{Why: fmt.Sprintf("of the %s %q, Redisson's names are in two hash slots of a cluster (%q is one), since its braces are no hash tag: %s",
				what, key, name, advice)}
		}
	}
	return nil
}

// An owner is a field of Redisson's: its first 128 bits are the UUID of a client, and the other two a thread number that no
// thread of Java's has.
const firstThread = 1 << 62

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // base32

func fieldOf(owner string) string {
	var all [17]byte // 130 bits, and zeros
	for i := range driver.OwnerLen {
		v := uint16(strings.IndexByte(alphabet, owner[i])) << 11 >> (i * 5 % 8) // its five bits in two bytes
		all[i*5/8] |= byte(v >> 8)
		if i*5/8+1 < len(all) {
			all[i*5/8+1] |= byte(v)
		}
	}
	h := hex.EncodeToString(all[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + ":" + strconv.FormatInt(firstThread+int64(all[16]>>6), 10)
}

var field = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12}):(\d{1,19})$`)
})

// ownerOf undoes fieldOf; ok is false for a field of Java's.
func ownerOf(text string) (owner string, ok bool) {
	m := field().FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	n, err := strconv.ParseInt(m[6], 10, 64)
	if err != nil || n < firstThread || n > firstThread+3 {
		return "", false
	}
	b, err := hex.DecodeString(strings.Join(m[1:6], ""))
	if err != nil {
		return "", false
	}
	return base32.StdEncoding.EncodeToString(append(b, byte(n-firstThread)<<6))[:driver.OwnerLen], true
}
