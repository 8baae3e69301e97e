// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// kind is what a node of a key's directory asks for, in the order of two with one number.
type kind uint8

const (
	kindLock  kind = iota // Curator's InterProcessMutex
	kindWrite             // the write lock of its InterProcessReadWriteLock
	kindRead              // the read lock
	kindSlot              // a lease of InterProcessSemaphoreV2
	kindFull              // its mutex, held by one of ours that has all leases
	kindWait              // its mutex, held or waited for
)

// markers are the ends of names, before the number, in the directory of a mutex or a read-write lock.
var markers = [...]string{kindLock: "lock-", kindWrite: "__WRIT__", kindRead: "__READ__"}

// node is one child of a key's directory: a place in the queue, or a hold.
type node struct {
	name string
	kind kind
	seq  int32
	// Of hasp's own: its owner, a digest of its label, and the session that it lasts for.
	owner, label, sess string
	newer              int // the layout of a hasp that is newer than this one; the node is another program's, then
	// Of a semaphore's.
	want
	slot int
}

// want is how a node of a semaphore holds the key, or wants to. brief: it is gone as soon as it is refused.
type want struct {
	exclusive, brief bool
	limit            int
}

func (n node) mode() driver.Mode {
	switch n.kind {
	case kindRead, kindSlot:
		return driver.Shared
	case kindWait:
		if !n.exclusive && !n.foreign() {
			return driver.Shared
		}
	}
	return driver.Exclusive
}

func (n node) foreign() bool { return n.owner == "" }

func (n node) is(id mark) bool { return !n.foreign() && n.owner == id.owner && n.label == id.label }

// mark is what of a driver.ID, without the key, is in a node's name.
type mark struct{ owner, label string }

var base = base32.StdEncoding.WithPadding(base32.NoPadding)

// digest is 130 bits of a text, in 26 characters, like an owner.
func digest(texts ...string) string {
	h := sha256.New()
	for _, s := range texts {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return base.EncodeToString(h.Sum(nil))[:driver.OwnerLen]
}

func markOf(c driver.Claim) mark { return mark{c.Owner, digest(c.Label)} }

// protected begins the names of Curator's nodes, and ours: after it comes the node's maker, so that the node is
// found again when the answer to its create was lost.
const protected = "_c_"

// sessionLen is the length of a session in a name.
const sessionLen = 16

// nameOf is the name of a node without its number.
func nameOf(m mark, sess int64, marker string) string {
	return fmt.Sprintf("%s%s-%s-%016x-%s", protected, m.owner, m.label, uint64(sess), marker)
}

// numbered is the name of a node with a number, as servers write it.
func numbered(prefix string, seq int32) string { return fmt.Sprintf("%s%010d", prefix, seq) }

// parse understands a name. ok is false for what is no place in the queue.
func parse(name string) (n node, ok bool) {
	at := -1
	for k, marker := range markers {
		if i := strings.LastIndex(name, marker); i > at {
			at, n = i, node{name: name, kind: kind(k)}
		}
	}
	if at < 0 {
		return node{}, false
	}
	seq, err := strconv.ParseInt(name[at+len(markers[n.kind]):], 10, 32)
	if err != nil {
		return node{}, false
	}
	n.seq = int32(seq)
	if field, ok := n.made(name[:at]); !ok || field != "" {
		n.owner, n.label, n.sess, n.newer = "", "", "", newer(field)
	}
	return n, true
}

// made understands the part of a name about the node's maker; field is what else is there. ok is false for another program's.
func (n *node) made(by string) (field string, ok bool) {
	const l, all = driver.OwnerLen, 2*driver.OwnerLen + sessionLen + 2
	who, found := strings.CutPrefix(by, protected)
	if !found || len(who) <= all || who[l] != '-' || who[2*l+1] != '-' || who[all] != '-' || who[len(who)-1] != '-' ||
		!driver.ValidOwner(who[:l]) || !driver.ValidOwner(who[l+1:2*l+1]) {
		return "", false
	}
	n.owner, n.label, n.sess = who[:l], who[l+1:2*l+1], who[2*l+2:all]
	if len(who) > all+1 {
		field = who[all+1 : len(who)-1]
	}
	return field, true
}

// queue is the nodes of a key in order: those that hold it, and those that wait.
type queue []node

func parseAll(children []string) queue {
	q := make(queue, 0, len(children))
	for _, name := range children {
		if n, ok := parse(name); ok {
			q = append(q, n)
		}
	}
	return q.sorted()
}

func (q queue) sorted() queue {
	slices.SortFunc(q, func(a, b node) int {
		// The number is an int32 that wraps: those of nodes that are there at one time are near each other.
		seq, kind := cmp.Compare(a.seq-b.seq, 0), cmp.Compare(a.kind, b.kind)
		if a.kind >= kindSlot { // leases, and places before them, are numbered separately
			return cmp.Or(kind, seq, cmp.Compare(a.name, b.name))
		}
		return cmp.Or(seq, kind, cmp.Compare(a.name, b.name))
	})
	return q
}

func (q queue) named(name string) int {
	return slices.IndexFunc(q, func(n node) bool { return n.name == name })
}

func (q queue) of(id mark) int {
	return slices.IndexFunc(q, func(n node) bool { return n.is(id) })
}

// holders is how many hold the key: the first that writes, or all that read before the first that writes.
func (q queue) holders() int {
	if len(q) == 0 {
		return 0
	}
	if q[0].kind >= kindSlot {
		n := slices.IndexFunc(q, func(n node) bool { return n.kind == kindWait })
		return (n + len(q) + 1) % (len(q) + 1) // -1 is all
	}
	if n := slices.IndexFunc(q, func(n node) bool { return n.kind != kindRead }); n > 0 {
		return n
	} else if n < 0 {
		return len(q)
	}
	return 1
}

// blocker is the node that the node at i of a kind waits for, -1 when it holds the key.
func (q queue) blocker(i int, k kind) int {
	if k != kindRead {
		return i - 1
	}
	for i--; i >= 0 && q[i].kind == kindRead; i-- {
		continue
	}
	return i
}

// holds reports whether the node at i holds the key.
func (q queue) holds(i int) bool {
	if q[i].kind >= kindSlot {
		return q[i].kind != kindWait
	}
	return q.blocker(i, q[i].kind) < 0
}

// ahead is how many places are before the one at i, without holders.
func (q queue) ahead(i int) int { return max(i-q.holders(), 0) }

// layout is the version of what a hasp writes here. Names of a later one have a field v2, v3 … as the last one before the marker, and data
// begins with hasp/2, hasp/3 …: a key with such a name is refused, and such data is never written over or deleted. Curator's rules
// hold for them all.
const layout = 1

// newer is the layout that a text says, when it is later than this one; else 0.
func newer(field string) int {
	v, ok := strings.CutPrefix(field, "v")
	if n, err := strconv.Atoi(v); ok && err == nil && n > layout {
		return n
	}
	return 0
}

// newer is the error of a key that a newer hasp uses; nil when none does.
func (q queue) newer(dir string) error {
	for _, n := range q {
		if n.newer > 0 {
			return newerError(dir+"/"+n.name, n.newer)
		}
	}
	return nil
}

func newerError(path string, version int) error {
	return &configError{fmt.Sprintf("the node %q was written by a newer hasp (layout %d, this build knows %d): upgrade this program", path, version, layout)}
}

// alien is a node of another program that does not exclude nodes of a kind: Curator's mutex does not see
// read-write locks, nor they it.
func (q queue) alien(k kind) (node, bool) {
	i := slices.IndexFunc(q, func(n node) bool { return n.foreign() && (n.kind == kindLock) != (k == kindLock) })
	if i < 0 {
		return node{}, false
	}
	return q[i], true
}

// content is the data of one of our nodes. Java's programs see a text.
type content struct {
	ttl   time.Duration // that its owner asked for
	fence uint64        // 0: that of the node's own zxid
	label string
	newer int // the layout, when it is newer than this one: nothing else is known, then
}

const magic = "hasp/1 "

func (c content) encode() []byte {
	return fmt.Appendf(nil, "%sttl=%d fence=%d\n%s", magic, c.ttl, c.fence, c.label)
}

// decode reads the data of one of our nodes; what is damaged is zero.
func decode(data []byte) (c content) {
	if first, _, _ := strings.Cut(string(data), " "); strings.HasPrefix(first, "hasp/") {
		if v := newer("v" + first[len("hasp/"):]); v > 0 {
			return content{newer: v, label: fmt.Sprintf("(a newer hasp, layout %d)", v)}
		}
	}
	head, label, ok := strings.Cut(string(data), "\n")
	if !ok || !strings.HasPrefix(head, magic) {
		return content{label: string(data)}
	}
	c.label = label
	if _, err := fmt.Sscanf(head[len(magic):], "ttl=%d fence=%d", &c.ttl, &c.fence); err != nil {
		return content{label: label}
	}
	return c
}

// turns is how many fences each grant has, however many are asked for.
const turns = 64

// fenceOf is the last fence of a grant to the node that was created with a zxid. A store orders all of its
// writes by them, and gives none twice.
func fenceOf(zxid int64) uint64 { return uint64(zxid)*turns + turns - 1 }

// encodeKey is the name of a key's directory: bytes that are not plain are %XX. A name that begins with
// a dot is ours.
func encodeKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_:@=+,~", c) >= 0, c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// decodeKey is the key of a directory. ok is false for a name that encodeKey does not make.
func decodeKey(name string) (key string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+3 > len(name) {
			return "", false
		}
		c, err := strconv.ParseUint(name[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	key = b.String()
	return key, driver.CheckKey(key) == nil && encodeKey(key) == name
}
