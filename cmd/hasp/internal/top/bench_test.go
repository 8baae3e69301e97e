// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp"
)

func tenThousand() []hasp.Info {
	all := make([]hasp.Info, 10_000)
	for i := range all {
		all[i] = hasp.Info{Key: fmt.Sprintf("tenants/%06d", i), Held: true, Holder: person(fmt.Sprintf("web-%d", i%50), i, time.Duration(i*7919%10_000)*time.Second, "job"), Leases: 1, Left: time.Duration(i)}
	}
	return all
}

// A list of 10,000 keys is taken in, sorted by how long they are held.
func BenchmarkSetList(b *testing.B) {
	all, m := tenThousand(), &Model{sort: 3}
	b.ReportAllocs()
	for b.Loop() {
		m.SetList(Prepare(all), start)
	}
}

// A key is pressed, and the screen drawn.
func BenchmarkPress(b *testing.B) {
	m := &Model{}
	m.SetList(Prepare(tenThousand()), start)
	for b.Loop() {
		for _, k := range keys("s", "down") {
			m.Press(k, 120, 50)
			Draw(m.View(120, 50, start), 120, 50, true)
		}
	}
}
