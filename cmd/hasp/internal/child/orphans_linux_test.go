// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	const rest = " 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0"
	for _, c := range []struct {
		text string
		want procStat
		ok   bool
	}{
		{"12 (sh) S 7 12 3" + rest, procStat{name: "sh", state: 'S', parent: 7, group: 12, start: 987654}, true},
		{"12 (a) Z 1 (b)) R 7 8 3" + rest, procStat{name: "a) Z 1 (b)", state: 'R', parent: 7, group: 8, start: 987654}, true},
		{"12 (sh) Z 7 12 3" + rest, procStat{name: "sh", state: 'Z', parent: 7, group: 12, start: 987654, dead: true}, true},
		{"12 (first thread) Z 7 12 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 987654 0 0", procStat{name: "first thread", state: 'Z', parent: 7, group: 12, start: 987654}, true},
		{"12 (sh) S x 12 3" + rest, procStat{}, false},
		{"12 (sh) S 7", procStat{}, false},
		{"", procStat{}, false},
	} {
		got, ok := parseStat([]byte(c.text))
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %+v, %v; want %+v, %v", c.text, got, ok, c.want, c.ok)
		}
	}
	me, ok := readProcs()[os.Getpid()]
	if !ok || me.parent != os.Getppid() || me.dead || me.start == 0 {
		t.Errorf("this process is read as %+v, %v", me, ok)
	}
}

// Whatever a process calls itself, its line is read without a panic.
func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 7 12 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0"))
	f.Add([]byte("12 () ) ("))
	f.Fuzz(func(_ *testing.T, text []byte) { parseStat(text) })
}
