// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

// The operations, by their numbers in the protocol.
const (
	opCreate          = 1 // in the answer to a Multi
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opSync            = 9
	opPing            = 11
	opGetChildren     = 12
	opCheck           = 13
	opMulti           = 14
	opCreate2         = 15
	opCreateContainer = 19
	opAuth            = 100
	opCloseSession    = -11
)

// The answers that belong to no request.
const (
	xidWatch = -1
	xidPing  = -2
	xidAuth  = -4
)

// Stat is what a server knows of a node.
type Stat struct {
	Czxid, Mzxid, Ctime, Mtime  int64
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
	Pzxid                       int64
}

// ACL is one entry of a node's access control list: which client (scheme and id) may do what
// (bits of Perms).
type ACL struct {
	Perms      int32
	Scheme, ID string
}

// Kind is the kind of a node that is created.
type Kind int32

// The kinds. A container is deleted by the server some time after its last child.
const (
	Persistent          Kind = 0
	Ephemeral           Kind = 1
	EphemeralSequential Kind = 3
	Container           Kind = 4
)

// A Call is one operation and, once a Do that had it returned nil, its answer: Err, nil or a
// [Code], and what the operation returns.
type Call struct {
	op     int32
	encode func(e *encoder)
	watch  *Watch
	parts  []*Call // of a Multi

	Err      error
	Path     string // of a created node
	Data     []byte
	Children []string
	Stat     Stat
}

// A Watch has Fire called once: when the node that a call named was deleted, or children of it came or
// went, and when the connection is lost that would have said so.
type Watch struct {
	path string
	Fire func()
}

// Create creates a node.
func Create(path string, data []byte, acl []ACL, kind Kind) *Call {
	op := int32(opCreate2)
	if kind == Container {
		op = opCreateContainer
	}
	return &Call{op: op, encode: func(e *encoder) {
		e.text(path)
		e.data(data)
		e.int(int32(len(acl)))
		for _, a := range acl {
			e.int(a.Perms)
			e.text(a.Scheme)
			e.text(a.ID)
		}
		e.int(int32(kind))
	}}
}

// Delete deletes a node of any version.
func Delete(path string) *Call { return DeleteVersion(path, -1) }

// DeleteVersion deletes a node if its data has this version.
func DeleteVersion(path string, version int32) *Call {
	return &Call{op: opDelete, encode: func(e *encoder) { e.text(path); e.int(version) }}
}

// Exists asks for a node's Stat.
func Exists(path string) *Call {
	return &Call{op: opExists, encode: func(e *encoder) { e.text(path); e.bool(false) }}
}

// Get asks for a node's data and Stat.
func Get(path string) *Call {
	return &Call{op: opGetData, encode: func(e *encoder) { e.text(path); e.bool(false) }}
}

// Set replaces a node's data, whatever its version.
func Set(path string, data []byte) *Call { return SetVersion(path, data, -1) }

// SetVersion replaces the data of a node that has this version.
func SetVersion(path string, data []byte, version int32) *Call {
	return &Call{op: opSetData, encode: func(e *encoder) { e.text(path); e.data(data); e.int(version) }}
}

// Check succeeds when a node exists, within a Multi.
func Check(path string) *Call {
	return &Call{op: opCheck, encode: func(e *encoder) { e.text(path); e.int(-1) }}
}

// Children asks for the names of a node's children and its Stat. With a watch, and when the
// node exists, the watch is fired by the next change.
func Children(path string, w *Watch) *Call {
	if w != nil {
		w.path = path
	}
	return &Call{op: opGetChildren, watch: w, encode: func(e *encoder) { e.text(path); e.bool(w != nil) }}
}

// Sync has the server catch up with the leader, so that what is read after it is no older than
// when it was asked.
func Sync(path string) *Call {
	return &Call{op: opSync, encode: func(e *encoder) { e.text(path) }}
}

// Multi carries out all of its parts (Create, Delete, SetVersion, Check), or none. Err is that of the
// part that failed.
func Multi(parts ...*Call) *Call {
	return &Call{op: opMulti, parts: parts, encode: func(e *encoder) {
		for _, p := range parts {
			e.int(p.op)
			e.bool(false)
			e.int(-1)
			p.encode(e)
		}
		e.int(-1)
		e.bool(true)
		e.int(-1)
	}}
}

// writes reports whether the operation is answered through the leader and a majority.
func (c *Call) writes() bool {
	switch c.op {
	case opCreate2, opCreateContainer, opDelete, opSetData, opMulti:
		return true
	}
	return false
}

// answer takes what the server says.
func (c *Call) answer(code Code, d *decoder) {
	if c.op == opMulti {
		c.answerMulti(code, d)
		return
	}
	if code != 0 {
		c.Err = code
		return
	}
	c.read(c.op, d)
}

func (c *Call) read(op int32, d *decoder) {
	switch op {
	case opCreate:
		c.Path = d.text()
	case opCreate2, opCreateContainer:
		c.Path, c.Stat = d.text(), d.stat()
	case opExists, opSetData:
		c.Stat = d.stat()
	case opGetData:
		c.Data, c.Stat = append([]byte(nil), d.data()...), d.stat()
	case opGetChildren:
		c.Children, c.Stat = d.texts(), d.stat()
	case opSync:
		c.Path = d.text()
	}
}

// answerMulti reads one answer for each part; those beside a failed part say 0 before it and
// "runtime inconsistency" after it.
func (c *Call) answerMulti(code Code, d *decoder) {
	if code != 0 {
		c.Err = code
	}
	for i := 0; len(d.b) > 0 && d.err == nil; i++ {
		op, done := d.int(), d.bool()
		if d.int(); done {
			return
		}
		if i >= len(c.parts) {
			d.err = errShort
			return
		}
		p := c.parts[i]
		if op != -1 {
			p.read(op, d)
			continue
		}
		part := Code(d.int())
		if part != 0 {
			p.Err = part
		}
		if part != 0 && part != runtimeInconsistency {
			c.Err = part
		}
	}
}
