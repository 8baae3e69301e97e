// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"encoding/binary"
	"errors"
)

var errShort = errors.New("zk: the server sent a message that this client cannot read")

// encoder writes jute, ZooKeeper's encoding: big-endian numbers, and texts with
// their length before them.
type encoder struct{ b []byte }

func (e *encoder) int(v int32)   { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) long(v int64)  { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) text(s string) { e.int(int32(len(s))); e.b = append(e.b, s...) }
func (e *encoder) data(b []byte) { e.int(int32(len(b))); e.b = append(e.b, b...) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

// message writes a request: its length, its number, its operation, and what body writes.
func (e *encoder) message(xid, op int32, body func(*encoder)) {
	at := len(e.b)
	e.int(0)
	e.int(xid)
	e.int(op)
	if body != nil {
		body(e)
	}
	e.measure(at)
}

// measure writes the length of the message that begins at a place.
func (e *encoder) measure(at int) { binary.BigEndian.PutUint32(e.b[at:], uint32(len(e.b)-at-4)) }

// proof writes a request that gives an identity of ours.
func (e *encoder) proof(a Auth) {
	e.message(xidAuth, opAuth, func(e *encoder) {
		e.int(0)
		e.text(a.Scheme)
		e.data(a.Data)
	})
}

// decoder reads jute. After a message that is too short, every value is zero and
// err is set.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.err = errShort
		d.b = nil
		return nil
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

func (d *decoder) int() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) long() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

// data reads bytes; their length may be -1, for null.
func (d *decoder) data() []byte {
	n := d.int()
	if n < 0 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) text() string { return string(d.data()) }

func (d *decoder) texts() []string {
	n := d.int()
	if n < 0 {
		return nil
	}
	if int(n) > len(d.b)/4 {
		d.err = errShort
		return nil
	}
	all, b := make([]string, n), d.b
	text := string(b) // they share it: a caller that keeps one of them clones that
	for i := range all {
		size := len(d.data())
		end := len(b) - len(d.b)
		all[i] = text[end-size : end]
	}
	return all
}

func (d *decoder) stat() (s Stat) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.long(), d.long(), d.long(), d.long()
	s.Version, s.Cversion, s.Aversion = d.int(), d.int(), d.int()
	s.EphemeralOwner = d.long()
	s.DataLength, s.NumChildren = d.int(), d.int()
	s.Pzxid = d.long()
	return s
}
