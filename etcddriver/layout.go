// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/hasplock/hasp/driver"
)

// Everything of a lock is below its root, prefix + the key as text + "|":
//
//	root + "c|" + id   a holder that converted
//	root + "r|" + id   a reader: Shared without a Limit
//	root + "s|" + id   an owner that shares with a Limit
//	root + "u|" + id   an unfinished holder: beside that of a live one; alone, the key is abandoned
//	root + "w|" + id   a writer: Exclusive
//	root + "z|" + id   an owner that was released
//
// The letters are in this order so that one range covers all that may keep a request from the
// key at once: c to w is everything, s to w all that a reader cannot be beside without a closer look.
const (
	converted  = 'c'
	reads      = 'r'
	slotted    = 's'
	unfinished = 'u'
	writes     = 'w'
	released   = 'z'

	bar = "|"
)

// names are the names of what etcd has of one owner.
type names struct{ root, id string }

// name is the key in etcd of an owner in a class.
func (n names) name(class byte) string { return n.root + string(class) + bar + n.id }

// from and to bound the range of some classes: from included, to not.
func (n names) from(class byte) string { return n.root + string(class) }
func (n names) to(class byte) string   { return n.root + string(class+1) }

// names are the names of an owner in etcd.
func (d *Driver) names(id driver.ID) names {
	return names{d.root(id.Key), id.Owner + "." + labelled(id.Label)}
}

func (d *Driver) root(key string) string { return d.prefix + escape(key) + bar }

// labelled stands for a label in a name, so that another label is another owner.
func labelled(label string) string {
	sum := sha256.Sum256([]byte(label))
	return base32.StdEncoding.EncodeToString(sum[:10])
}

// idLen is the length of an owner's name.
const idLen = driver.OwnerLen + 1 + 16

// plain reports whether a byte of a key stands for itself. The bar ends a key, so
// that no key's root is a prefix of another's.
func plain(c byte) bool { return c > ' ' && c < 0x7f && c != '|' && c != '%' }

// escape writes each byte of a key by itself, so that a prefix of a key is written as a prefix
// of its text.
func escape(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape is the inverse of escape. ok is false for what escape does not write.
func unescape(text string) (key string, ok bool) {
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '%' {
			b = append(b, c)
			continue
		}
		if i+3 > len(text) {
			return "", false
		}
		n, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b = append(b, byte(n))
		i += 2
	}
	key = string(b)
	return key, key != "" && escape(key) == text
}

// split returns the parts of a key in etcd. ok is false when it is not of a lock.
func (d *Driver) split(name string) (key string, class byte, id string, ok bool) {
	key, rest, ok := d.below(name)
	if !ok || len(rest) < 2 || rest[1] != bar[0] {
		return "", 0, "", false
	}
	return key, rest[0], rest[2:], true
}

// below returns the lock that a key in etcd is below, and what its name has after the root.
func (d *Driver) below(name string) (key, rest string, ok bool) {
	text, found := strings.CutPrefix(name, d.prefix)
	text, rest, bars := strings.Cut(text, bar)
	key, known := unescape(text)
	return key, rest, found && bars && known
}

// The value of an owner's key is text: its state, Limit, slot, how many fences it was granted, the
// revision of its first key when it converted, whether it was granted an abandoned key, and
// its label. The first byte of a holder's is larger than that of a waiter's, so that a
// transaction can tell them apart.
const (
	waits = '0'
	holds = '1'
)

// A mark's value says whether its holder was granted an abandoned key.
const (
	markFresh = "0"
	markTaken = "1"
)

// knownLayout is the layout of what this build writes. The values of the first have no number; those of each later one
// begin with it, as v2.
const knownLayout = 1

// later returns the layout of a value that a newer hasp wrote; 0: none did.
func later(value []byte) int {
	text, ok := strings.CutPrefix(string(value[:min(len(value), 8)]), "v")
	digits, _, _ := strings.Cut(text, " ")
	if n, err := strconv.Atoi(digits); ok && err == nil && n > knownLayout {
		return n
	}
	return 0
}

func quote(s string) string { return strconv.Quote(s) }

// stored is the value of an owner's key.
type stored struct {
	state             byte
	limit, slot, many int
	rev               int64 // of the first key of a holder that converted; else 0
	marked            bool
	label             string
}

func (s stored) String() string {
	marked := 0
	if s.marked {
		marked = 1
	}
	return fmt.Sprintf("%c %d %d %d %d %d %s", s.state, s.limit, s.slot, s.many, s.rev, marked, s.label)
}

func parse(value string) (s stored, ok bool) {
	parts := strings.SplitN(value, " ", 7)
	if len(parts) < 7 || len(parts[0]) != 1 {
		return s, false
	}
	var n [5]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(parts[i+1], 10, 64); err != nil || n[i] < 0 {
			return s, false
		}
	}
	s = stored{state: parts[0][0], limit: int(n[0]), slot: int(n[1]), many: int(n[2]), rev: n[3], marked: n[4] == 1, label: parts[6]}
	return s, s.many > 0 && (s.state == waits || s.state == holds)
}
