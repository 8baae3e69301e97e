// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// appendLine is the job: it reads a file, adds one line and writes a new file. It prints
// the fence when it begins. Two of them at once lose a line, or give two lines the same
// number. The last step is one rename by the direct child of hasp, which dies with hasp,
// so it is atomic. $1 is the file, $2 names the line.
const appendLine = `
echo "$HASP_FENCE"
n=$(tail -n 1 "$1" | cut -d ' ' -f 1)
cp "$1" "$1.$HASP_FENCE"
echo "$((n + 1)) $HASP_FENCE $2 $(date +%s%N)" >>"$1.$HASP_FENCE"
exec mv "$1.$HASP_FENCE" "$1"
`

const (
	loops, each       = 8, 200 // of the long run
	longTTL           = 30 * time.Second
	rounds, perRound  = 20, 20          // of those in which one is killed
	killTTL           = 5 * time.Second // of the locks in those
	slowMachine       = time.Second     // the allowance for a slow machine
	jobTime           = 10 * time.Millisecond
	firstLine, fields = "0 0 start 0\n", 4
)

func realwork(flags *flag.FlagSet) func(*tb) []row {
	url := flags.String("store", "", "sqlite:PATH or redis://...; empty: a SQLite file and a Redis of its own")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of the moments at which one is killed")
	return func(t *tb) []row {
		dir := folder(t)
		hasp := build(t, dir)
		var rows []row
		for _, s := range stores(t, *url, dir) {
			w := &work{t: t, hasp: hasp, store: s, dir: dir, unread: testserver.FullPipe(t), key: fmt.Sprintf("show-%d-%d", os.Getpid(), *seed)}
			rows = append(rows, w.long())
			t.Logf("%s: killing one of %d, seed %d", s.kind, perRound, *seed)
			rows = append(rows, w.kills(rand.New(rand.NewPCG(*seed, 0)))...)
		}
		return rows
	}
}

// work is runs of the command on one key of one store.
type work struct {
	t        *tb
	hasp     string
	store    store
	dir, key string
	unread   *os.File      // standard error of every command: full, so that nothing can be written to it
	perLine  time.Duration // what one line took in the long run
}

// entry is a line that a job wrote.
type entry struct {
	name  string
	fence uint64
	at    time.Time
}

// file makes a fresh file.
func (w *work) file(name string) string {
	path := filepath.Join(w.dir, w.store.kind+"-"+name)
	w.t.must(os.WriteFile(path, []byte(firstLine), 0o600))
	return path
}

// command appends a line to a file under the lock. With talks it prints messages that
// nobody reads; at its end, with the key released, it waits for a reader for a moment.
func (w *work) command(ttl time.Duration, file, name string, talks bool) *exec.Cmd {
	args := []string{"run", "--store", w.store.url, "--ttl", ttl.String()}
	if talks {
		args = append(args, "-v")
	}
	cmd := exec.CommandContext(w.t.ctx, w.hasp, append(args, w.key, "--", "sh", "-c", appendLine, "sh", file, name)...)
	cmd.Stderr = w.unread
	return cmd
}

// long runs 8 loops that append 200 lines each.
func (w *work) long() row {
	file, start := w.file("long"), time.Now()
	var wg sync.WaitGroup
	for l := range loops {
		wg.Go(func() {
			for i := range each {
				cmd := w.command(longTTL, file, fmt.Sprintf("%d.%d", l, i), l%2 == 0) // the others keep the key contended
				if err := cmd.Run(); err != nil {
					w.t.Errorf("%s: line %d of loop %d: %w", w.store.kind, i, l, err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	w.perLine = took / (loops * each)
	lines, err := read(file)
	if err != nil {
		w.t.Errorf("%s: %w", w.store.kind, err)
	}
	missing := loops*each - len(lines)
	for l := range loops {
		for i := range each {
			if _, ok := lines[fmt.Sprintf("%d.%d", l, i)]; !ok {
				w.t.Errorf("%s: line %d.%d is lost", w.store.kind, l, i)
			}
		}
	}
	return judged(missing == 0 && err == nil, w.store.kind+": 8 loops of 200 `hasp run`, stderr unread: lines in the file, fences strictly rising",
		strconv.Itoa(loops*each), "%d in %v, %v a line", len(lines), took.Round(100*time.Millisecond), w.perLine.Round(100*time.Microsecond))
}

// read returns the lines of a file by name. It is an error when they are not
// numbered in order, their fences don't rise, or one is there twice.
func read(file string) (map[string]entry, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := map[string]entry{}
	last := entry{name: "start"}
	for i, s := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(string(text), firstLine), "\n"), "\n") {
		f := strings.Fields(s)
		if len(f) != fields || f[0] != strconv.Itoa(i+1) {
			return lines, fmt.Errorf("line %d is %q", i+1, s)
		}
		fence, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return lines, fmt.Errorf("line %d: %w", i+1, err)
		}
		ns, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return lines, fmt.Errorf("line %d: %w", i+1, err)
		}
		if fence <= last.fence {
			return lines, fmt.Errorf("line %d: fence %d of %s after %d of %s", i+1, fence, f[2], last.fence, last.name)
		}
		if _, twice := lines[f[2]]; twice {
			return lines, fmt.Errorf("line %d: %s is there twice", i+1, f[2])
		}
		last = entry{f[2], fence, time.Unix(0, ns)}
		lines[last.name] = last
	}
	return lines, nil
}
