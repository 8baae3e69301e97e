// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Layout says which of Curator's recipes a key is for.
type Layout uint8

// The layouts, by the recipe that has them.
const (
	ReadWrite Layout = iota // InterProcessReadWriteLock
	Mutex                   // InterProcessMutex
	Semaphore               // InterProcessSemaphoreV2
)

// The folders of a semaphore. The nodes of other layouts are in the key's directory itself.
const (
	Locks  = "locks"
	Leases = "leases"
)

// Folders are where the nodes of a key are, below its directory. The waiters are in the first.
func (l Layout) Folders() []string {
	if l == Semaphore {
		return both
	}
	return flat
}

var both, flat = []string{Locks, Leases}, []string{""}

// Kind is what a node asks for, in the order of two with one number.
type Kind uint8

// The kinds. A place of the first three holds the key once nothing is in its way; in a semaphore a Wait has to become a Slot or Full.
const (
	Lock  Kind = iota // Curator's InterProcessMutex
	Write             // the write lock of its InterProcessReadWriteLock
	Read              // the read lock
	Slot              // a lease of InterProcessSemaphoreV2
	Full              // its mutex, held by one of ours that has all leases
	Wait              // its mutex, held or waited for
)

// forms say where the nodes of a kind are, and how their names end before the number.
var forms = [...]struct {
	folder, marker string
	kind           Kind
}{{"", "lock-", Lock}, {"", "__WRIT__", Write}, {"", "__READ__", Read}, {Leases, "lease-", Slot}, {Locks, "lock-", Full}, {Locks, "lock-", Wait}}

// Node is one child of a key's directory, or of a folder in it: a place in the queue, or a hold.
type Node struct {
	Name string // below the key's directory
	Kind Kind
	Seq  int32
	// Of hasp's own: its owner, and the session that it lasts for.
	Mark
	Session string
	Newer   int // the layout of a hasp that is newer than this one; the node is another program's, then
	// Of a semaphore's: how the node holds the key, or wants to. Brief: it goes as soon as it is refused.
	Exclusive, Brief bool
	Limit, Slot      int
}

// Wants is the node that asks for a key in a mode.
func (l Layout) Wants(m driver.Mode, limit int, brief bool) Node {
	switch {
	case l == Semaphore:
		return Node{Kind: Wait, Exclusive: m == driver.Exclusive, Limit: limit, Brief: brief}
	case m == driver.Shared:
		return Node{Kind: Read}
	case l == Mutex:
		return Node{Kind: Lock}
	}
	return Node{Kind: Write}
}

// Mode is how the node holds the key, or wants to.
func (n Node) Mode() driver.Mode {
	if n.Kind == Read || n.Kind == Slot || n.Kind == Wait && !n.Exclusive && !n.Foreign() {
		return driver.Shared
	}
	return driver.Exclusive
}

// Mark is what of a driver.ID, without the key, is in a node's name.
type Mark struct{ Owner, Label string }

// MarkOf is the mark of an owner.
func MarkOf(c driver.Claim) Mark { return Mark{c.Owner, Digest(c.Label)} }

// Foreign: the node is another program's.
func (m Mark) Foreign() bool { return m.Owner == "" }

// is reports whether the node is of an owner.
func (n Node) is(m Mark) bool { return !m.Foreign() && n.Mark == m }

var base = base32.StdEncoding.WithPadding(base32.NoPadding)

// Digest is 130 bits of a text, in 26 characters, like an owner.
func Digest(texts ...string) string {
	var all []byte
	for _, s := range texts {
		all = append(strconv.AppendInt(all, int64(len(s)), 10), ':')
		all = append(all, s...)
	}
	sum := sha256.Sum256(all)
	var text [(sha256.Size*8 + 4) / 5]byte
	base.Encode(text[:], sum[:])
	return string(text[:driver.OwnerLen])
}

// protected begins the names of Curator's nodes, and ours: after it comes the node's maker, so that the node is
// found again when the answer to its create was lost.
const protected = "_c_"

// sessionLen is the length of a session in a name.
const sessionLen = 16

// SessionName is a session in a name.
func SessionName(id int64) string { return fmt.Sprintf("%016x", uint64(id)) }

// Prefix is the name, without its number, that a node of this kind has for an owner and a session.
func (n Node) Prefix(m Mark, session int64) string {
	f := forms[n.Kind]
	if f.folder != "" {
		f.folder += "/"
	}
	return fmt.Sprintf("%s%s%s-%s-%016x-%s%s", f.folder, protected, m.Owner, m.Label, uint64(session), n.field(), f.marker)
}

// Numbered is the name of a node with a number, as servers write it.
func Numbered(prefix string, seq int32) string { return fmt.Sprintf("%s%010d", prefix, seq) }

// For is the node of the same number and kind for an owner and a session.
func (n Node) For(m Mark, session int64) Node {
	n.Name, n.Mark, n.Session = Numbered(n.Prefix(m, session), n.Seq), m, SessionName(session)
	return n
}

// What of a name in the folder of locks says how its owner wants the key; a number is a limit.
const (
	fieldFull           = "X"
	fieldExclusive      = "x"
	fieldExclusiveBrief = "y"
	fieldShared         = "s"
	fieldSharedBrief    = "t"
)

// field is what else a name says of its node, before the marker.
func (n Node) field() string {
	switch {
	case n.Kind == Slot:
		return fmt.Sprintf("%d.%d-", n.Slot, n.Limit)
	case n.Kind == Full:
		return fieldFull + "-"
	case n.Kind != Wait:
		return ""
	case n.Exclusive && n.Brief:
		return fieldExclusiveBrief + "-"
	case n.Exclusive:
		return fieldExclusive + "-"
	case n.Brief:
		return fmt.Sprintf("%s%d-", fieldSharedBrief, n.Limit)
	}
	return fmt.Sprintf("%s%d-", fieldShared, n.Limit)
}

// understand takes the field of a name. It is false for a field that is not ours.
func (n *Node) understand(field string) bool {
	var err error
	switch {
	case n.Kind < Slot:
		return field == ""
	case n.Kind == Slot:
		slot, limit, _ := strings.Cut(field, ".")
		if n.Slot, err = strconv.Atoi(slot); err == nil {
			n.Limit, err = strconv.Atoi(limit)
		}
		return err == nil
	case field == fieldFull:
		n.Kind = Full
	case field == fieldExclusive, field == fieldExclusiveBrief:
	case strings.HasPrefix(field, fieldShared), strings.HasPrefix(field, fieldSharedBrief):
		n.Limit, err = strconv.Atoi(field[1:])
		n.Brief = field[:1] == fieldSharedBrief
		return err == nil
	default:
		return false
	}
	n.Exclusive, n.Brief = true, field == fieldExclusiveBrief
	return true
}

// Parse understands the name of a node below a key's directory. ok is false for what is no place in the queue.
func Parse(path string) (n Node, ok bool) {
	slash := strings.LastIndexByte(path, '/')
	folder, name := path[:max(slash, 0)], path[slash+1:]
	rest, at := strings.TrimRight(name, "0123456789"), -1
	for _, unsigned := range [...]string{rest, strings.TrimSuffix(rest, "-")} {
		for _, f := range forms {
			if f.folder == folder && strings.HasSuffix(unsigned, f.marker) {
				rest, at, n = unsigned, len(unsigned)-len(f.marker), Node{Name: path, Kind: f.kind}
			}
		}
	}
	seq, err := strconv.ParseInt(name[len(rest):], 10, 32)
	if at < 0 || err != nil {
		return Node{}, false
	}
	n.Seq = int32(seq)
	foreign := n
	if field, ok := n.made(name[:at]); !ok || !n.understand(field) {
		n, n.Newer = foreign, newer(field)
	}
	return n, true
}

// made understands the part of a name about the node's maker; field is what else is there. ok is false for another program's.
func (n *Node) made(by string) (field string, ok bool) {
	const l, all = driver.OwnerLen, 2*driver.OwnerLen + sessionLen + 2
	maker, found := strings.CutPrefix(by, protected)
	if !found || len(maker) <= all || maker[l] != '-' || maker[2*l+1] != '-' || maker[all] != '-' || maker[len(maker)-1] != '-' ||
		!driver.ValidOwner(maker[:l]) || !driver.ValidOwner(maker[l+1:2*l+1]) {
		return "", false
	}
	n.Mark, n.Session = Mark{maker[:l], maker[l+1 : 2*l+1]}, maker[2*l+2:all]
	return strings.TrimSuffix(maker[all+1:], "-"), true
}

// Version is the layout of what a hasp writes here. Names of a later one have a field v2, v3 … as the last one before the marker, and data
// begins with hasp/2, hasp/3 …: a key with such a name is refused, and such data is never written over or deleted. Curator's rules
// hold for them all.
const Version = 1

// newer is the layout that a text says, when it is later than this one; else 0.
func newer(field string) int {
	v, ok := strings.CutPrefix(field, "v")
	if n, err := strconv.Atoi(v); ok && err == nil && n > Version {
		return n
	}
	return 0
}

// Content is the data of one of our nodes. Java's programs see a text.
type Content struct {
	TTL   time.Duration // that its owner asked for
	Fence uint64        // 0: that of the node's own zxid
	Label string
	Newer int // the layout, when it is newer than this one: nothing else is known, then
}

// Magic begins the data of our nodes.
const Magic = "hasp/1 "

// Encode is the content as data.
func (c Content) Encode() []byte {
	return fmt.Appendf(nil, "%sttl=%d fence=%d\n%s", Magic, c.TTL, c.Fence, c.Label)
}

// Decode reads the data of one of our nodes; what is damaged is zero.
func Decode(data []byte) (c Content) {
	if first, _, _ := strings.Cut(string(data), " "); strings.HasPrefix(first, "hasp/") {
		if v := newer("v" + first[len("hasp/"):]); v > 0 {
			return Content{Newer: v, Label: fmt.Sprintf("(a newer hasp, layout %d)", v)}
		}
	}
	head, label, ok := strings.Cut(string(data), "\n")
	if !ok || !strings.HasPrefix(head, Magic) {
		return Content{Label: string(data)}
	}
	ttl, rest, _ := strings.Cut(strings.TrimPrefix(head[len(Magic):], "ttl="), " fence=")
	fence, _, _ := strings.Cut(rest, " ")
	n, errTTL := strconv.ParseInt(ttl, 10, 64)
	f, errFence := strconv.ParseUint(fence, 10, 64)
	if errTTL != nil || errFence != nil {
		return Content{Label: label}
	}
	return Content{TTL: time.Duration(n), Fence: f, Label: label}
}

// Fences is how many fences each grant has, however many are asked for.
const Fences = 64

// FenceOf is the last fence of a grant to the node that was created with a zxid. A store orders all of its
// writes by them, and gives none twice.
func FenceOf(zxid int64) uint64 { return uint64(zxid)*Fences + Fences - 1 }

// EncodeKey is the name of a key's directory: bytes that are not plain are %XX. A name that begins with
// a dot is ours.
func EncodeKey(key string) string {
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

// DecodeKey is the key of a directory. ok is false for a name that EncodeKey does not make.
func DecodeKey(name string) (key string, ok bool) {
	key, err := url.PathUnescape(name)
	return key, err == nil && driver.CheckKey(key) == nil && EncodeKey(key) == name
}
