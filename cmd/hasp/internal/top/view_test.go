// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/process"
)

var update = flag.Bool("update", false, "write the golden files")

var start = time.Date(2026, 3, 1, 14, 3, 12, 0, time.UTC)

// person is somebody who holds a key, or waits for it, since so long before start.
func person(host string, pid int, ago time.Duration, reason string) hasp.Holder {
	return hasp.Holder{
		Owner: strings.ToUpper(fmt.Sprintf("%-26s", host))[:20] + fmt.Sprintf("%06d", pid),
		Label: driver.Label{Host: host, PID: pid, User: "app", Reason: reason, Since: start.Add(-ago)}.Encode(),
	}
}

// hostile has what a terminal acts on, the end of a line, wide, combining and invalid characters.
const hostile = "k\x1b]0;t\a\u009b31m\x7f\u202e丛e\u0301\n\xff<b>&"

func infos() []hasp.Info {
	reader := person("web-4", 77, time.Hour, "backup")
	reader.Mode = hasp.Shared
	slot := person("gpu-1", 9, 30*time.Hour, "train")
	slot.Mode, slot.Limit = hasp.Shared, 3
	all := []hasp.Info{
		{Key: "gpu", Held: true, Holder: slot, Leases: 2, Fence: 7, Left: 8 * time.Second, Waiters: 12},
		{Key: hostile, Held: true, Holder: person("h\x1b[2J\u202e丛", 1, 5*time.Second, "r\x1b[31m\n"), Leases: 1, Left: 25 * time.Second},
		{Key: "orders/1", Held: true, Holder: person("web-3", 4121, 192*time.Second, "nightly"), Leases: 1, Fence: 812, Left: 28 * time.Second, Waiters: 3},
		{Key: "orders/2", Held: true, Holder: person("web-3", 4122, 41*time.Second, ""), Leases: 1, Fence: 813, Left: 19 * time.Second},
		{Key: "orders/of-a-customer-with-quite-a-long-name/2026/03/01", Held: true, Holder: hasp.Holder{Foreign: true, Label: "some value"}, Leases: 1, Left: -1},
		{Key: "reports", Held: true, Holder: reader, Leases: 4, Left: 3 * time.Second},
		{Key: "waited", Waiters: 1},
	}
	slices.SortFunc(all, func(a, b hasp.Info) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// looked is what Inspect says of a key.
func looked(key string) hasp.Info {
	for _, i := range infos() {
		if i.Key != key {
			continue
		}
		if i.Held {
			i.Holders = []driver.Holding{{Holder: i.Holder, Fence: i.Fence, Left: i.Left}}
		}
		for n := range i.Waiters {
			i.Queue = append(i.Queue, person("web-5", 100+n, time.Duration(90-n)*time.Second, "next"))
		}
		return i
	}
	return hasp.Info{Key: key}
}

func model() *Model {
	m := &Model{Store: "redis://127.0.0.1:6379/0", Every: 2 * time.Second}
	m.SetList(Prepare(infos()), start)
	return m
}

// inspect is what a loop does for the keys on the screen.
func inspect(m *Model, width, height int) {
	looks := map[string]Look{}
	for _, key := range m.Wanted(width, height) {
		looks[key] = Look{Info: looked(key)}
	}
	m.SetLooks(looks)
}

// keys are keys by their names, or text.
func keys(words ...string) (all []Key) {
	named := map[string]Code{"enter": Enter, "esc": Escape, "up": Up, "down": Down, "end": End, "pgdn": PageDown, "bs": Backspace}
	for _, w := range words {
		if code, ok := named[w]; ok {
			all = append(all, Key{Code: code})
			continue
		}
		for _, r := range w {
			all = append(all, Key{Text: string(r)})
		}
	}
	return all
}

func press(m *Model, width, height int, words ...string) (last Act) {
	for _, k := range keys(words...) {
		last = m.Press(k, width, height)
		inspect(m, width, height)
	}
	return last
}

// golden compares a screen with its file. In front of a line stands how it looks: # inverse,
// * bold, ! an alarm.
func golden(t *testing.T, name string, m *Model, width, height int, now time.Time) {
	t.Helper()
	var b strings.Builder
	for _, l := range m.View(width, height, now) {
		b.WriteString(map[Style]string{Inverse: "#", Alarm: "!", Bold: "*"}[l.Style] + "|" + strings.TrimRight(Cut(l.Text, width), " ") + "\n")
	}
	same(t, name+".txt", b.String())
}

func same(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s (%v): got\n%s\nwant\n%s", path, err, got, want)
	}
}

func TestViews(t *testing.T) {
	now := start.Add(time.Second)
	for _, size := range []struct{ width, height int }{{80, 24}, {40, 10}} {
		w, h := size.width, size.height
		for _, c := range []struct {
			name  string
			words []string
		}{
			{"list", nil},
			{"keys", []string{"s"}},
			{"filter", []string{"/", "orders/*"}},
			{"nothing", []string{"/", "nosuch", "enter"}},
			{"one", []string{"/", "orders/1", "enter", "enter"}},
			{"one-hostile", []string{"s", "down", "enter"}},
			{"queue", []string{"enter", "end"}},
			{"help", []string{"?"}},
		} {
			m := model()
			inspect(m, w, h)
			press(m, w, h, c.words...)
			golden(t, fmt.Sprintf("%s-%dx%d", c.name, w, h), m, w, h, now)
		}

		m := model()
		press(m, w, h, "/", "orders/1", "enter")
		if act := press(m, w, h, "b"); act != Plan {
			t.Fatalf("b is act %d", act)
		}
		m.Planned(m.Target(), `this takes "orders/1" from web-3 (pid 4121, user app), who has held it for 3m12s, reason "nightly". Its lease is lost, but it may work on until it notices; the key goes to web-5 (pid 100, user app)`, "")
		press(m, w, h, "stuck since noon")
		golden(t, fmt.Sprintf("reason-%dx%d", w, h), m, w, h, now)
		press(m, w, h, "enter")
		golden(t, fmt.Sprintf("confirm-%dx%d", w, h), m, w, h, now)
		if act := press(m, w, h, "y"); act != Break || m.Target().Reason != "stuck since noon" || m.Target().Owner != person("web-3", 4121, 0, "").Owner {
			t.Errorf("y is act %d on %+v", act, m.Target())
		}
		m.Broke("nothing was done: the audit record cannot be written to /var/log/hasp/audit.log: no space left on device")
		golden(t, fmt.Sprintf("notice-%dx%d", w, h), m, w, h, now)
		press(m, w, h, "b") // is for the notice alone
		m.SetTrouble("the store redis://127.0.0.1:6379/0 does not answer: no answer within 5s", start.Add(7*time.Second))
		golden(t, fmt.Sprintf("trouble-%dx%d", w, h), m, w, h, start.Add(19*time.Second))
	}
	golden(t, "first-80x24", &Model{Store: "sqlite:locks.db"}, 80, 24, now)
}

// The bytes for a terminal, with colours and with NO_COLOR.
func TestFrames(t *testing.T) {
	for name, styled := range map[string]bool{"colours": true, "no-color": false} {
		m := model()
		m.SetTrouble("no answer within 5s", start)
		inspect(m, 60, 8)
		frame := Draw(m.View(60, 8, start.Add(18*time.Second)), 60, 8, styled)
		if got := regexp.MustCompile(`\x1b\[\d*m`).MatchString(frame); got != styled {
			t.Errorf("%s: it has colours: %v", name, got)
		}
		same(t, "frame-"+name+".txt", strings.ReplaceAll(fmt.Sprintf("%q\n", frame), `\n`, "\\n\n"))
	}
}

// What needs a person has a colour, and a mark beside it: where its column has no room, too.
func TestNeeds(t *testing.T) {
	m, later := model(), infos()
	later[2].Left, later[3].Left = 9*time.Second, 7*time.Second // of 28 s, and of 19 s
	host, _ := os.Hostname()
	ended := hasp.Holder{Owner: "ended", Label: driver.Label{Host: host, PID: 1 << 30, Process: process.Self()}.Encode()}
	m.SetList(Prepare(append(later, hasp.Info{Key: "zz", Held: true, Holder: ended, Leases: 1, Left: time.Minute})), start)
	inspect(m, 120, 24)
	second := looked("reports")
	second.Holders = append(second.Holders, driver.Holding{Holder: ended})
	before := looked("orders/1") // it has one holder again
	before.Holders = append(before.Holders, driver.Holding{Holder: ended})
	m.SetLooks(map[string]Look{"reports": {Info: second}, "orders/1": {Info: before}})
	want := map[string]Style{"orders/1 LEFT": Alarm, later[4].Key + " LEFT": Warning}
	if process.Self() != "" { // else a process of this host cannot be told
		want["zz HOLDER"], want["reports HOLDER"] = Alarm, Alarm
	}
	for _, key := range []string{"gpu", "orders/1", "waited"} {
		want[key+" WAITERS"], want[key+" LONGEST"] = Warning, Warning
	}
	for _, e := range m.rows {
		m.chosen = e.Key
		m.arrange()
		for _, c := range columns {
			if got := c.needs(m, e, start); got != want[e.Key+" "+c.title] || e.Key == "gpu" && c.needs(m, e, start.Add(-time.Minute)) != Normal {
				t.Errorf("%s of %s: style %d", c.title, e.Key, got)
			}
		}
		for _, width := range []int{120, 20} {
			row := m.View(width, 24, start)[3+m.pos] // below the head and the titles
			needs := slices.ContainsFunc(columns, func(c column) bool { return c.needs(m, e, start) != Normal })
			if row.Text[:2] != map[bool]string{true: ">!", false: "> "}[needs] || (len(row.Marks) > 0) != needs {
				t.Errorf("%s, %d wide: %q, marked %v", e.Key, width, row.Text, row.Marks)
			}
		}
	}
}

// fits checks that a screen is no larger than the terminal, and that a terminal acts on nothing in it.
func fits(t *testing.T, m *Model, width, height int) {
	t.Helper()
	lines := m.View(width, height, start)
	if len(lines) > height {
		t.Fatalf("%d by %d: %d lines", width, height, len(lines))
	}
	for _, l := range lines {
		if i := strings.IndexFunc(l.Text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Fatalf("%d by %d: %q", width, height, l.Text)
		}
		if got := Cut(l.Text, width); Width(got) > width {
			t.Fatalf("%d by %d: %d columns: %q", width, height, Width(got), got)
		}
	}
}

// Whatever is pressed at whatever size, and whatever the store says in between.
func TestAnyKeys(t *testing.T) {
	all := infos()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := model()
		if seed == 0 {
			m = &Model{}
		}
		for range 60 {
			width, height := 1+r.IntN(90), 1+r.IntN(30)
			switch r.IntN(6) {
			case 0:
				m.SetList(Prepare(slices.DeleteFunc(slices.Clone(all), func(hasp.Info) bool { return r.IntN(3) == 0 })), start)
			case 1:
				m.SetTrouble("gone", start)
			case 2:
				inspect(m, width, height)
			case 3:
				if t := m.Target(); t != nil {
					m.Planned(t, "plan", []string{"", "no"}[r.IntN(2)])
				}
			case 4:
				m.Broke(strings.Repeat("long ", r.IntN(40)))
			default:
				const typed = "qbs?/rjkgGyn o*"
				m.Press(Key{Code: Code(r.IntN(int(End) + 1)), Text: string(typed[r.IntN(len(typed))])}, width, height)
			}
			fits(t, m, width, height)
		}
	}
}

// The cursor stays on its key when others come and go, or else on its row.
func TestCursor(t *testing.T) {
	m := model()
	press(m, 80, 24, "down", "down")
	chosen := m.chosen
	m.SetList(Prepare(append([]hasp.Info{{Key: "a", Waiters: 1}}, infos()...)), start)
	if m.chosen != chosen || m.pos != 3 {
		t.Errorf("it is on %q, row %d; want %q", m.chosen, m.pos, chosen)
	}
	m.SetList(Prepare(slices.DeleteFunc(infos(), func(i hasp.Info) bool { return i.Key == chosen })), start)
	if m.pos != 3 || m.chosen != m.rows[3].Key {
		t.Errorf("it is on %q, row %d", m.chosen, m.pos)
	}
	m.SetList(Prepare(nil), start)
	if m.chosen != "" || press(m, 80, 24, "enter", "b", "enter", "down") != Nothing || m.page != list {
		t.Errorf("it is on %q of nothing, page %d", m.chosen, m.page)
	}
}

func TestSorts(t *testing.T) {
	first := map[string]string{"KEY": "gpu", "HOLDER": "orders/of-a-customer-with-quite-a-long-name/2026/03/01", "HELD": "gpu", "LEFT": "reports", "WAITERS": "gpu"}
	m := model()
	for range first {
		name := columns[orders[m.sort]].title
		if got := m.rows[0].Key; got != first[name] {
			t.Errorf("by %s the first is %q", name, got)
		}
		if name == "HOLDER" && m.rows[len(m.rows)-1].Key != "waited" {
			t.Errorf("by %s the last is %q", name, m.rows[len(m.rows)-1].Key)
		}
		last := m.rows[len(m.rows)-1]
		if press(m, 80, 24, "r"); m.rows[0] != last {
			t.Errorf("by %s, reversed, the first is %q", name, m.rows[0].Key)
		}
		press(m, 80, 24, "rs")
	}
	if m.sort != 0 {
		t.Errorf("it is sorted by %s in the end", columns[orders[m.sort]].title)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, text string
		want         bool
	}{
		{"", "x", true}, {"RDER", "orders/1", true}, {"orders/*", "orders/1/2", true}, {"orders/*", "my orders/1", false}, {"*/?", "orders/1", true},
		{"*/?", "orders/12", false}, {"*", "", true}, {"?", "丛", true}, {"a*b*c", "axxbxbyc", true}, {"a*b*c", "axxc", false}, {"**", "x", true}, {"*x", "", false},
		{strings.Repeat("*a", 200), strings.Repeat("a", 500) + "b", false},
	} {
		if got := matcher(c.filter)(c.text); got != c.want {
			t.Errorf("matcher(%.20q)(%.20q) is %v", c.filter, c.text, got)
		}
	}
}

// Nothing is broken by what was pasted, by Enter, in a read-only top, or of another program.
func TestNoBreak(t *testing.T) {
	m := model()
	for _, k := range []Key{{Code: Paste, Text: "b"}, {Code: Paste, Text: "by"}} {
		if act := m.Press(k, 80, 24); act != Nothing || m.Target() != nil {
			t.Errorf("a paste is act %d", act)
		}
	}
	press(m, 80, 24, "/", "orders/1", "enter", "b")
	m.Planned(m.Target(), "plan", "")
	press(m, 80, 24, "because", "enter")
	for _, word := range []string{"enter", "n", "esc", "Z"} {
		if act := press(m, 80, 24, word); act != Nothing || m.Target() != nil || m.status != "nothing was broken" {
			t.Errorf("%s is act %d, and says %q", word, act, m.status)
		}
		press(m, 80, 24, "b")
		m.Planned(m.Target(), "plan", "")
		press(m, 80, 24, "enter")
	}
	if act := m.Press(Key{Code: Paste, Text: "y"}, 80, 24); act != Nothing {
		t.Errorf("a pasted y is act %d", act)
	}
	late := m.Target()
	press(m, 80, 24, "b")
	old := m.Target()
	press(m, 80, 24, "esc")
	if m.Planned(old, "plan", ""); m.page != list || m.field != none || late == old {
		t.Error("an answer that comes too late asks for a reason")
	}
	m.ReadOnly = true
	if act := press(m, 80, 24, "b"); act != Nothing || !strings.Contains(m.status, "read-only") {
		t.Errorf("read-only: b is act %d, and says %q", act, m.status)
	}
	m = model()
	press(m, 80, 24, "/", "customer", "enter")
	if act := press(m, 80, 24, "b"); act != Nothing || !strings.Contains(m.status, "another program") {
		t.Errorf("of another program b is act %d, and says %q", act, m.status)
	}
	m = model()
	press(m, 80, 24, "/", "reports", "enter", "b")
	if m.page != one || m.Target() != nil {
		t.Errorf("of several, b is about %+v on page %d", m.Target(), m.page)
	}
}
