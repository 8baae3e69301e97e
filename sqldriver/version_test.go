// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

// firstVersion is what a program of version 1 leaves in an empty file, but for
// the rows of hasp_lease.
const firstVersion = `
CREATE TABLE hasp_meta (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	version INTEGER NOT NULL,
	boot    TEXT    NOT NULL,
	before  TEXT    NOT NULL,
	clock   INTEGER NOT NULL,
	fence   INTEGER NOT NULL
) STRICT;
CREATE TABLE hasp_lease (
	key     BLOB    NOT NULL,
	owner   TEXT    NOT NULL,
	label   TEXT    NOT NULL,
	kind    TEXT    NOT NULL CHECK (kind IN ('held', 'queue', 'gone')),
	seq     INTEGER,
	fence   INTEGER NOT NULL,
	since   INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	PRIMARY KEY (key, owner)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX hasp_lease_queue ON hasp_lease (key, kind, seq);
CREATE INDEX hasp_lease_over ON hasp_lease (kind, expires);
INSERT INTO hasp_meta VALUES (1, 1, '%s', '', 0, %d);
INSERT INTO hasp_lease VALUES
	(CAST('k' AS BLOB), '%s', '%s', 'held', 0, %[2]d, %[5]d, %[5]d + 3600000000000),
	(CAST('k' AS BLOB), '%s', '%[4]s', 'queue', 1, 0, %[5]d, %[5]d + 3600000000000),
	(CAST('k' AS BLOB), 'RRRRRRRRRRRRRRRRRRRRRRRRRR', '%[4]s', 'gone', NULL, 7, 7, %[5]d + 3600000000000);
`

// secondVersion is what a program of version 2 makes of that, and the row of a key
// that remembers a fence.
const secondVersion = `
ALTER TABLE hasp_meta ADD COLUMN old INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hasp_meta ADD COLUMN mid INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hasp_meta ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hasp_meta ADD COLUMN node TEXT NOT NULL DEFAULT '';
UPDATE hasp_meta SET version = 2, old = fence, mid = fence, node = 'two';
INSERT INTO hasp_lease VALUES (CAST('remembers' AS BLOB), '', '', 'gone', %[1]d, %[1]d, 0, %[2]d + 3600000000000);
`

// older is a file of an earlier version.
type older struct {
	made          int
	path          string
	fence         uint64 // ahead of the wall clock
	holder, waits contend.Owner
}

func newOlder(t *testing.T, version int, now reading) older {
	t.Helper()
	o := older{made: version, path: newFile(t), fence: uint64(time.Now().Add(time.Hour).UnixMicro()),
		holder: request("k"), waits: queued(request("k"))}
	db, err := sql.Open("sqlite3", walDSN(o.path))
	must(t, err)
	_, err = db.Exec(fmt.Sprintf(firstVersion, now.boot, o.fence, o.holder.Owner, o.holder.Label, int64(now.At), o.waits.Owner))
	must(t, err)
	if version >= 2 {
		_, err = db.Exec(fmt.Sprintf(secondVersion, o.fence, int64(now.At)))
		must(t, err)
	}
	for i, later := range []string{sqliteModes, sqliteClock} {
		if version > i+2 {
			_, err = db.Exec(later)
			must(t, err)
		}
	}
	must(t, db.Close())
	return o
}

func (o older) version(t *testing.T) (v int) {
	t.Helper()
	must(t, openFile(t, o.path).QueryRow("SELECT version FROM hasp_meta").Scan(&v))
	return v
}

// check fails unless the file still has its contents, and is of this version.
func (o older) check(t *testing.T, d *Driver) {
	t.Helper()
	res := refused(t, d, queued(request("k")))
	failIf(t, res.Ahead != 1 || res.Holder.Owner != o.holder.Owner || res.Node == "", "%+v", res)
	refused(t, d, contend.Owner{Key: "k", Owner: strings.Repeat("R", driver.OwnerLen), Label: o.holder.Label, TTL: time.Second})
	renewed(t, d, o.holder)
	if again := granted(t, d, o.holder); again.Fence != o.fence {
		t.Errorf("the holder has the fence %d, and had %d", again.Fence, o.fence)
	}
	must(t, contend.Release(t.Context(), d, o.holder))
	if next := granted(t, d, o.waits); next.Fence <= o.fence {
		t.Errorf("the fence %d after %d", next.Fence, o.fence)
	}
	granted(t, d, converting(o.waits, 0))
	if o.made >= 2 {
		reader := restored(proposal("remembers", o.fence-1))
		reader.Mode = driver.Shared
		refusedFence(t, d, reader, o.fence)
	}
	if info := inspect(t, d, "k"); info.Holder.Owner != o.waits.Owner || info.Holder.Mode != driver.Shared {
		t.Errorf("%+v", info)
	}
	if v := o.version(t); v != schemaVersion {
		t.Errorf("the file is of version %d", v)
	}
}

// eachOlder runs a test with a file of each earlier version.
func eachOlder(t *testing.T, now reading, test func(t *testing.T, o older)) {
	for version := 1; version < schemaVersion; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) { test(t, newOlder(t, version, now)) })
	}
}

// Rule: a file of an earlier version can be looked at as it is, and becomes one of
// this version with the first write. What is in it stands, and every key's fences
// rise.
func TestUpgrade(t *testing.T) {
	now, err := system()
	must(t, err)
	eachOlder(t, now, func(t *testing.T, o older) {
		d := openDriver(t, o.path)
		info := inspect(t, d, "k")
		failIf(t, info.Holder.Owner != o.holder.Owner || info.Holds != 1 || info.Waiters != 1, "Inspect: %+v", info)
		for info, err := range d.List(t.Context(), "") {
			failIf(t, err != nil || !info.Held || info.Holds != 1 || info.Waiters != 1, "List: %+v, %v", info, err)
		}
		if v := o.version(t); v != o.made {
			t.Fatalf("the file is of version %d after a look at it", v)
		}
		refusedFence(t, d, proposal("forgotten", o.fence), o.fence)
		grantAndRelease(t, d, proposal("forgotten", o.fence+1))
		o.check(t, openDriver(t, o.path))
	})
}

// Rule: the fences of keys that an earlier version has forgotten count.
func TestUpgradeSoonAfterBoot(t *testing.T) {
	m := newMachine("one")
	m.up = time.Second
	eachOlder(t, reading{boot: m.boot, Now: rules.Now{At: m.up}}, func(t *testing.T, o older) {
		d := m.open(t, o.path)
		refusedFence(t, d, proposal("forgotten", o.fence), o.fence)
		grantAndRelease(t, d, proposal("forgotten", o.fence+1))
	})
}

// Rule: any number of processes may meet a file of an earlier version.
func TestProcessesUpgradeAtOnce(t *testing.T) {
	t.Parallel()
	now, err := system()
	must(t, err)
	eachOlder(t, now, func(t *testing.T, o older) {
		all := ready(t, 6, func(i int) *process { return start(t, "first", o.path, fmt.Sprintf("key %d", i)) })
		beginAll(all)
		for _, p := range all {
			p.says("granted true")
		}
		o.check(t, openDriver(t, o.path))
	})
}

// Rule: a process that is killed while it changes the tables leaves them as
// they were.
func TestKilledUpgrade(t *testing.T) {
	now, err := system()
	must(t, err)
	eachOlder(t, now, func(t *testing.T, o older) {
		p := start(t, "write", o.path, strings.Join(sqliteUpgrades[o.made-1:], ""))
		p.says("writing")
		must(t, p.Process.Kill())
		_ = p.Wait()
		if v := o.version(t); v != o.made {
			t.Fatalf("the file is of version %d", v)
		}
		o.check(t, openDriver(t, o.path))
	})
}
