// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/people"
)

var must = expect.Need

// audit remembers records, and can refuse them.
type audit struct {
	mu      sync.Mutex
	records []Record
	fail    string // the outcome that cannot be recorded
}

func (a *audit) record(r Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Outcome == a.fail {
		return errTest
	}
	a.records = append(a.records, r)
	return nil
}

func (a *audit) outcomes() (all []string) {
	for _, r := range a.records {
		all = append(all, r.Outcome)
	}
	return all
}

type answer struct {
	Broken         bool
	Error, Warning string
	Now            *struct {
		Holder *struct{ Owner string }
	}
}

func (w *world) brk(h http.Handler, key, body string, headers ...string) (code int, a answer) {
	w.Helper()
	code, text, _ := serve(h, request("POST", "/api/v1/locks/"+encodeKey(key)+"/break", body, append([]string{"Content-Type", "application/json; charset=utf-8"}, headers...)...))
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		w.Fatalf("%s: %v", text, err)
	}
	return code, a
}

func asBody(owner, reason string) string {
	return string(encodeJSON(map[string]string{"owner": owner, "reason": reason}))
}

func (w *world) holder(key string) string {
	w.Helper()
	info, err := w.client.Operator().Inspect(w.Context(), key)
	if err != nil {
		w.Fatal(err)
	}
	return info.Holder.Owner
}

// A break takes the key from exactly the owner that was shown, and says when that one no
// longer has it. Each is recorded, before and after.
func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a handoff waits for its claim
		w := newWorld(t)
		for _, key := range hostileKeys {
			a, o := &audit{}, local()
			o.Audit = a.record
			h := New(w.client, o)
			first, second := w.ask(key, label("web-1")), w.ask(key, label("web-2"))
			fence := func() uint64 { i, _ := w.client.Operator().Inspect(t.Context(), key); return i.Fence }()
			code, got := w.brk(h, key, asBody(first, "  it hangs "))
			if code != 200 || !got.Broken || got.Now.Holder.Owner != second || w.holder(key) != second {
				t.Fatalf("%q: %d, %+v", key, code, got)
			}
			want := Record{Actor: "loopback", Action: "break", Key: key, Owner: first, Fence: fence, Reason: "it hangs", Outcome: "attempt"}
			if len(a.records) != 2 || a.records[0].Time.IsZero() || a.records[0].ID == "" || a.records[0].ID != a.records[1].ID {
				t.Fatalf("recorded: %+v", a.records)
			}
			for i, outcome := range []string{"attempt", "broken"} {
				r := a.records[i]
				if want.Outcome = outcome; r.Time.Before(time.Now().Add(-time.Hour)) {
					t.Errorf("record %d is of %v", i, r.Time)
				}
				if r.Time, r.ID = (time.Time{}), ""; r != want {
					t.Errorf("record %d is %+v, want %+v", i, r, want)
				}
			}
			// It has changed hands: nobody else is broken.
			if code, got := w.brk(h, key, asBody(first, "again")); code != 409 || got.Now.Holder.Owner != second || w.holder(key) != second {
				t.Errorf("%q, too late: %d, %+v", key, code, got)
			}
			if got := strings.Join(a.outcomes(), ","); got != "attempt,broken,attempt,not held" {
				t.Errorf("recorded: %s", got)
			}
		}
	})
}

func TestBreakOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a handoff waits for its claim
		w := newWorld(t)
		a, o := &audit{}, local()
		o.Audit = a.record
		first, second := w.ask("k", label("web-1")), w.ask("k", label("web-2"))
		if code, got := w.brk(New(w.client, o), "k", asBody(second, "test")); code != 200 || got.Now.Holder.Owner != first {
			t.Errorf("%d, %+v", code, got)
		}
		if info, _ := w.client.Operator().Inspect(t.Context(), "k"); info.Waiters != 0 || a.records[1].Fence != 0 {
			t.Errorf("it still waits: %+v; recorded: %+v", info, a.records)
		}
	})
}

// What cannot be recorded is not done.
func TestBreakThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a handoff waits for its claim
		w := newWorld(t)
		a, o := &audit{fail: "attempt"}, local()
		o.Audit = a.record
		owner := w.ask("k", label("web-1"))
		if code, got := w.brk(New(w.client, o), "k", asBody(owner, "test")); code != 500 || w.holder("k") != owner {
			t.Errorf("%d, %+v, and %s holds it", code, got, w.holder("k"))
		}
		a.fail = "broken"
		if code, got := w.brk(New(w.client, o), "k", asBody(owner, "test")); code != 200 || got.Warning == "" || w.holder("k") != "" {
			t.Errorf("%d, %+v, and %s holds it", code, got, w.holder("k"))
		}
		a.fail, o.Identify = "", Local(false)
		if code, _ := w.brk(New(w.client, o), "k", asBody(owner, "test")); code != 403 || a.records[len(a.records)-1].Outcome != "denied" {
			t.Errorf("%d, recorded: %v", code, a.outcomes())
		}
		w.store.SetUnreachable(true)
		if code, _ := w.brk(New(w.client, local()), "k", asBody(owner, "test")); code != 502 {
			t.Errorf("of a store that is away: %d", code)
		}
	})
}

func TestBreakThatIsWrong(t *testing.T) {
	w := newWorld(t)
	owner := w.ask("k", label("web-1"))
	release := w.store.Hold("foreign", time.Hour, label("web-1"))
	defer release()
	a, o := &audit{}, local()
	o.Audit = a.record
	h := New(w.client, o)
	for name, body := range map[string]string{
		"nothing": "", "no object": "[]", "no JSON": "owner=" + owner, "no owner": `{"reason":"x"}`, "no reason": asBody(owner, ""), "a blank reason": asBody(owner, " \n"),
		"half an owner": asBody(owner[:25], "x"), "another field": `{"owner":"` + owner + `","reason":"x","force":true}`, "two objects": asBody(owner, "x") + "{}",
		"a long reason": asBody(owner, strings.Repeat("x", 257)), "a long body": asBody(owner, strings.Repeat(" ", 9000)+"x"), "small letters": asBody(strings.ToLower(owner), "x"),
	} {
		if code, got := w.brk(h, "k", body); code != 400 || got.Error == "" {
			t.Errorf("%s: %d, %+v", name, code, got)
		}
	}
	if w.holder("k") != owner || len(a.records) != 0 {
		t.Errorf("%s holds it; recorded: %v", w.holder("k"), a.records)
	}
}

// The file says what there is, and nothing else.
func TestOpenAPI(t *testing.T) {
	b, err := os.ReadFile("openapi.json")
	must(t, err)
	var file struct {
		OpenAPI string
		Paths   map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(b, &file); err != nil || !strings.HasPrefix(file.OpenAPI, "3.1.") {
		t.Fatalf("%s, %v", file.OpenAPI, err)
	}
	w := newWorld(t)
	owner := w.ask("k", label("web-1"))
	if page := w.get(nil, "/api/v1/openapi.json"); page != string(b) {
		t.Error("another file is served")
	}
	n := 0
	for path, methods := range file.Paths {
		for method, raw := range methods {
			if method == "parameters" {
				continue
			}
			n++
			var op struct{ Responses map[string]any }
			if err := json.Unmarshal(raw, &op); err != nil || op.Responses["200"] == nil || op.Responses["401"] == nil || op.Responses["400"] == nil {
				t.Errorf("%s %s: %v, %v", method, path, op.Responses, err)
			}
			r := request(strings.ToUpper(method), strings.ReplaceAll(path, "{id}", encodeKey("k")), asBody(owner, "test"), "Content-Type", "application/json")
			if code, answer, header := serve(New(w.client, local()), r); code != 200 || header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: %d %s", method, path, code, answer)
			}
		}
	}
	if n != 3 {
		t.Errorf("%d operations", n)
	}
}

func TestAPI(t *testing.T) {
	w := newWorld(t)
	owner := w.ask("k", label("web-1"))
	w.ask("k", label("web-2"))
	var list struct {
		Keys, Found, Waiters, Pages int
		Locks                       []struct {
			ID, Key string
			Fence   uint64
			Left    float64 `json:"left_seconds"`
			Holder  struct{ Owner, Host, Reason, Mode string }
			Holders []any
		}
	}
	must(t, json.Unmarshal([]byte(w.get(nil, "/api/v1/locks?state=waited")), &list))
	if l := list.Locks; list.Keys != 1 || list.Found != 1 || list.Waiters != 1 || list.Pages != 1 || len(l) != 1 || l[0].ID != encodeKey("k") || l[0].Key != "k" ||
		l[0].Fence == 0 || l[0].Left <= 0 || l[0].Holder.Owner != owner || l[0].Holder.Host != "web-1" || l[0].Holder.Reason != "nightly" || l[0].Holder.Mode != "exclusive" || l[0].Holders != nil {
		t.Errorf("%+v", list)
	}
	if got := w.get(nil, "/api/v1/locks?q=other"); !strings.Contains(got, `"locks":[]`) {
		t.Errorf("none are %s", got)
	}
	if people.Waiting(driver.Holder{Label: `{"since":"+292277026596-12-04T15:30:08Z"}`}).Since != nil {
		t.Error("a year that JSON cannot carry is carried")
	}
}

// Programs are answered with JSON, whatever they ask.
func TestAPIAnswersInJSON(t *testing.T) {
	w := newWorld(t)
	for r, want := range map[*http.Request]int{
		request("GET", "/api/v2", ""):                                     404,
		request("DELETE", "/api/v1/locks", ""):                            405,
		request("PUT", "/api/v1/locks/aw", ""):                            405,
		request("GET", "/api/v1/locks/aw/break", ""):                      405,
		request("GET", "/api/v1/locks", "", "Host", "evil.example"):       403,
		request("GET", "/api/v1/locks", "", "X-Forwarded-For", "1.2.3.4"): 401,
		request("GET", "/api/v1/locks/a", ""):                             400,
	} {
		code, text, header := serve(New(w.client, nil), r)
		var p problem
		if err := json.Unmarshal([]byte(text), &p); code != want || err != nil || p.Error == "" || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %s", r.Method, r.URL, code, text)
		}
		if code == 405 && header.Get("Allow") == "" {
			t.Errorf("%s %s: without saying what is allowed", r.Method, r.URL)
		}
	}
}

func TestInventory(t *testing.T) {
	w := newWorld(t)
	w.ask(hostileKeys[0], label("web-1"))
	w.ask(hostileKeys[0], label("web-2"))
	w.ask("k", label("web-1"))
	got := w.get(nil, "/metrics")
	for _, want := range []string{"\nhasp_inventory_held_keys 2\n", "\nhasp_inventory_waited_keys 1\n", "\nhasp_inventory_foreign_keys 0\n", "\nhasp_inventory_endless_keys 0\n", "\nhasp_inventory_waiters 1\n", "\nhasp_inventory_up 1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "script") || regexp.MustCompile(`(?m)^hasp\S* .*[a-z+]`).MatchString(got) {
		t.Errorf("it says:\n%s", got)
	}
	w.store.SetUnreachable(true)
	if got := w.get(nil, "/metrics"); !strings.Contains(got, "\nhasp_inventory_up 0\n") || strings.Contains(got, "_keys ") {
		t.Errorf("of a store that is away:\n%s", got)
	}
	o := local()
	o.Metrics = http.NotFoundHandler()
	if code, _, _ := serve(New(w.client, o), request("GET", "/metrics", "")); code != 404 {
		t.Errorf("other metrics: %d", code)
	}
}
