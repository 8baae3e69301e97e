// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// results are what the tests that ran have measured, for docs/results/interop.md.
var results page

type page struct {
	trials []*trial
	handed []handed
	totals []total
}

func (p *page) pairs(x *trial) { p.trials = append(p.trials, x) }

// sections are the names of the marks in the page.
var sections = []string{"interop turns", "interop faults", "interop handoffs", "interop sums", "interop versions"}

// write puts what was measured into a page; a section of which nothing was measured stays as it is.
func (p *page) write(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(b)
	for i, lines := range [][]string{p.turns(), p.faults(), p.handoffs(), p.sums(), versions()} {
		if len(lines) == 0 {
			continue
		}
		begin, end := "<!-- "+sections[i]+" -->\n", "<!-- /"+sections[i]+" -->\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return fmt.Errorf("%s lacks the lines %q and %q", file, begin, end)
		}
		text = before + begin + strings.Join(lines, "\n") + "\n" + end + after
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func ms(d time.Duration) string {
	if d >= 100*time.Millisecond {
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
}

// wakes is the median and the longest.
func wakes(all []time.Duration) string { return ms(median(all)) + ", " + ms(slices.Max(all)) }

// turns is the table of those for whom nothing goes wrong.
func (p *page) turns() (lines []string) {
	for _, x := range p.trials {
		for _, r := range x.rows {
			o, counted := x.outcome(r), ""
			if c := o.counted; c != [2]int64{} {
				counted = fmt.Sprintf("exact: %d + %d", c[0], c[1])
			}
			lines = append(lines, fmt.Sprintf("| %s | %s | both | %s | %s | %s |", r.client, r.lock, wakes(o.wakes[0]), wakes(o.wakes[1]), counted))
		}
	}
	return heading(lines, "client", "lock", "refused", "it after hasp: median, longest", "hasp after it: median, longest", "sum: hasp's + its")
}

// faults is the table of holders that were killed or stopped.
func (p *page) faults() (lines []string) {
	for _, x := range p.trials {
		for _, r := range x.rows {
			o := x.outcome(r)
			lines = append(lines, fmt.Sprintf("| %s | %s | %.1f s, %.1f s | %.1f s, %.1f s | %s, %s | nothing | %s, %s |", r.client, r.lock,
				o.killed[0].Seconds(), o.killed[1].Seconds(), o.stopped[0].Seconds(), o.stopped[1].Seconds(),
				o.believed[0], o.believed[1], told(o.late[0]), told(o.late[1])))
		}
	}
	return heading(lines, "client", "lock", "killed: hasp, it", "stopped: hasp, it", "then asked: hasp, it",
		"a late unlock takes", "and says so: hasp, it")
}

// told says whether a client tells its caller that an unlock came too late.
func told(late string) string {
	if late == "lost" {
		return "yes"
	}
	return "no"
}

// handoffs is the table of medians, one row for each kind and deployment.
func (p *page) handoffs() (lines []string) {
	cells := make(map[string][]string)
	var order []string
	for _, h := range p.handed {
		name := h.deployment + " | " + h.lock
		if cells[name] == nil {
			order = append(order, name)
		}
		cells[name] = append(cells[name], h.took)
	}
	for _, name := range order {
		lines = append(lines, fmt.Sprintf("| %s | %s |", name, strings.Join(cells[name], " | ")))
	}
	return heading(lines, "deployment", "lock", "hasp to hasp", "hasp to Redisson", "Redisson to hasp", "Redisson to Redisson")
}

// sums is the table of the numbers that many add to.
func (p *page) sums() (lines []string) {
	for _, s := range p.totals {
		lines = append(lines, fmt.Sprintf("| %s | %d of %[2]d | %.0f s |", s.lock, s.n, s.took.Seconds()))
	}
	return heading(lines, "lock", "sum", "in")
}

// heading is a table with its first lines; none without rows.
func heading(lines []string, columns ...string) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"| " + strings.Join(columns, " | ") + " |", "|" + strings.Repeat("---|", len(columns))}, lines...)
}

// pinned is where the version of each client stands.
var pinned = []struct{ name, file, at string }{
	{"Redisson", "redisson/pom.xml", `<artifactId>redisson</artifactId>\s*<version>(.*)</version>`},
	{"redis-py", "python/requirements.txt", `(?m)^redis==(.*)$`},
	{"pottery", "python/requirements.txt", `(?m)^pottery==(.*)$`},
	{"redlock-py", "python/requirements.txt", `(?m)^redlock-py==(.*)$`},
	{"node-redlock", "node/package.json", `"redlock": "(.*)"`},
	{"ioredis", "node/package.json", `"ioredis": "(.*)"`},
	{"redsync", "../go.mod", `redsync/v4 v(\S*)`},
	{"redislock", "../go.mod", `redislock v(\S*)`},
	{"rueidislock", "../go.mod", `rueidis v(\S*)`},
}

// versions is one line that names what was tested.
func versions() []string {
	var all []string
	for _, p := range pinned {
		b, _ := os.ReadFile(p.file)
		if m := regexp.MustCompile(p.at).FindSubmatch(b); m != nil {
			all = append(all, p.name+" "+string(m[1]))
		}
	}
	if out, err := exec.Command("redis-server", "--version").Output(); err == nil {
		if m := regexp.MustCompile(`v=(\S+)`).FindSubmatch(out); m != nil {
			all = append(all, "Redis "+string(m[1]))
		}
	}
	return []string{"Tested with " + strings.Join(all, ", ") + "."}
}

// The page has a place for each table, and what pins the clients' versions names them.
func TestPageHasPlaces(t *testing.T) {
	b, err := os.ReadFile("../../docs/results/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sections {
		for _, mark := range []string{"<!-- " + name + " -->\n", "<!-- /" + name + " -->\n"} {
			if strings.Count(string(b), mark) != 1 {
				t.Errorf("docs/results/interop.md does not have the line %q once", mark)
			}
		}
	}
	if got := versions()[0]; strings.Count(got, ",") < len(pinned)-1 {
		t.Errorf("a version is not where it is looked for: %s", got)
	}
}
