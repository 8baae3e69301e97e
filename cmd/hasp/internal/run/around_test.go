// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

func TestBarred(t *testing.T) {
	lease := func(owner string, mode hasp.Mode, limit int) driver.Holding {
		return driver.Holding{Holder: hasp.Holder{Owner: owner, Mode: mode, Limit: limit}}
	}
	around := []string{"A", "B"}
	writer, reader := []hasp.Holder{{Owner: "W"}}, []hasp.Holder{{Owner: "R", Mode: hasp.Shared}}
	for _, c := range []struct {
		name    string
		holders []driver.Holding
		line    []hasp.Holder
		shared  bool
		limit   int
		want    bool
	}{
		{name: "another's", holders: []driver.Holding{lease("C", hasp.Exclusive, 0)}},
		{name: "free, with a queue", line: writer, shared: true},
		{name: "exclusive", holders: []driver.Holding{lease("B", hasp.Exclusive, 0)}, want: true},
		{name: "read within exclusive", holders: []driver.Holding{lease("A", hasp.Exclusive, 0)}, shared: true, want: true},
		{name: "write within shared", holders: []driver.Holding{lease("C", hasp.Shared, 0), lease("A", hasp.Shared, 0)}, want: true},
		{name: "read behind a writer", holders: []driver.Holding{lease("A", hasp.Shared, 0)}, line: writer, shared: true, want: true},
		{name: "read behind readers", holders: []driver.Holding{lease("A", hasp.Shared, 0)}, line: reader, shared: true},
		{name: "a slot that another has", holders: []driver.Holding{lease("A", hasp.Shared, 2), lease("C", hasp.Shared, 2)}, shared: true, limit: 2},
		{name: "all slots are around us", holders: []driver.Holding{lease("A", hasp.Shared, 2), lease("B", hasp.Shared, 2)}, shared: true, limit: 2, want: true},
		{name: "a smaller limit around us", holders: []driver.Holding{lease("A", hasp.Shared, 1)}, shared: true, limit: 3, want: true},
	} {
		if _, got := barred(hasp.Info{Holders: c.holders, Queue: c.line}, around, c.shared, c.limit); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
