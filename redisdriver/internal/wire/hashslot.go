// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"
	"sync"
)

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
