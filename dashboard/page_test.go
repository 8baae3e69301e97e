// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
)

func label(host string) driver.Label {
	return driver.Label{Host: host, PID: 42, User: "app", Reason: "nightly", Since: time.Now()}
}

// hostileKeys act on a page, on a terminal, or on a line; or are no text at all.
var hostileKeys = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'; alert(1); '`, `</title><script>x</script>`, "javascript:alert(1)", `&lt;b&gt;`,
	"\x1b]0;title\a\x1b[31mred", "two\nlines", "\r\nSet-Cookie: a=b", "tab\tnul\x00", "\u202eright to left\u2066", "\u009b31m", "\xff\xfe\x80", "\ufffd",
	"data: x\n\nevent: list\n\n", "{{.}}", "`${alert(1)}`", "\u2028\u2029", "../../etc/passwd", "%2e%2e%2f", "#frag?query=1", strings.Repeat("<b>", 170),
}

// The pages are what html/template makes of the same files, whatever is in them.
func TestPagesAreAsHTMLTemplateMakesThem(t *testing.T) {
	judge := template.Must(template.New("").Funcs(pageFuncs()).ParseFS(templateFiles, "templates/*.html"))
	for name, data := range map[string]any{
		"locks.html": &locksPage{}, "lock.html": &lockPage{}, "leaks.html": &reportPage[leak]{}, "doctor.html": &reportPage[Finding]{},
	} {
		for _, yes := range []bool{false, true} {
			for _, text := range append(hostileKeys, "") {
				v := reflect.ValueOf(data).Elem()
				stuff(v, "", text, yes)
				var want, got bytes.Buffer
				if err := judge.ExecuteTemplate(&want, name, v.Interface()); err != nil {
					t.Fatal(err)
				}
				pages().fill(&got, name, v.Interface())
				if want := strings.ReplaceAll(want.String(), "&#43;", "+"); got.String() != want {
					t.Fatalf("%s, of %q:\n%s\nwant\n%s", name, text, got.String(), want)
				}
			}
		}
	}
}

// stuff fills a value with a text, but for what is a part of a link, which this package makes itself.
func stuff(v reflect.Value, name, text string, yes bool) {
	switch v.Kind() {
	case reflect.String:
		switch name {
		case "ID", "Link", "Previous", "Next":
			text = "a-Z_9"
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(yes)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(len(text) % 3))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		stuff(v.Elem(), name, text, yes)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			stuff(v.Index(i), "", text, yes)
		}
	case reflect.Struct:
		for i, f := range reflect.VisibleFields(v.Type()) {
			if at := v.FieldByIndex(f.Index); len(f.Index) == 1 && (f.IsExported() || f.Anonymous) && f.Type != reflect.TypeFor[time.Time]() {
				stuff(at, v.Type().Field(f.Index[0]).Name, text, yes && i%2 == 0)
			}
		}
	}
}

// harmless fails the test where a page has a key as something else than text.
func harmless(t *testing.T, what, page string) {
	t.Helper()
	for _, bad := range []string{"<img", "<b>", "alert(1)</script", "<script>", "href=\"javascript:", "\x1b", "\u202e", "\u2066", "\u009b", "\x00", "\u2028"} {
		if strings.Contains(page, bad) {
			t.Errorf("%s has %q in it", what, bad)
		}
	}
	if i := strings.IndexFunc(page, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%s has %.20q in it", what, page[i:])
	}
	if !utf8.ValidString(page) {
		t.Errorf("%s is no UTF-8", what)
	}
	// Scripts and styles come from files, since the policy allows no others.
	if m := regexp.MustCompile(`(?i)<script(?: |>)[^>]*>[^<]|<style| style=| on[a-z]+=|https?://`).FindString(strings.ReplaceAll(page, "onerror=", "")); m != "" {
		t.Errorf("%s has %q in it", what, m)
	}
}

func TestHostileKeysAreText(t *testing.T) {
	w := newWorld(t)
	for _, key := range hostileKeys {
		l := driver.Label{Host: key, PID: 1, User: key, Reason: key, Since: time.Now()}
		w.ask(key, l)
		w.ask(key, l) // waits
	}
	o := local()
	o.Title, o.Doctor = hostileKeys[0], func(context.Context) ([]Finding, error) {
		return []Finding{{operator.LevelWarn, hostileKeys[1], hostileKeys[0], strings.Join(hostileKeys, " ")}}, nil
	}
	o.Leaks = func(context.Context) (all []Leak, err error) {
		for _, key := range hostileKeys {
			all = append(all, Leak{key, key, key})
		}
		return all, nil
	}
	list := w.get(o, "/?size=200")
	harmless(t, "the list", list)
	for _, page := range []string{"/doctor", "/leaks", "/?q=" + strings.ReplaceAll(encodeQuery(hostileKeys[1]), " ", "+")} {
		harmless(t, page, w.get(o, page))
	}
	for _, key := range hostileKeys {
		if !strings.Contains(list, `href="lock?key=`+encodeKey(key)+`"`) {
			t.Errorf("the list has no link to %q", key)
		}
		if key == "\xff\xfe\x80" && !strings.Contains(list, `>\xff\xfe\x80<`) {
			t.Errorf("the list does not show %q", key)
		}
		harmless(t, fmt.Sprintf("the page of %q", key), w.get(o, "/lock?key="+encodeKey(key)))
		api := w.get(o, "/api/v1/locks/"+encodeKey(key))
		if i := strings.IndexFunc(strings.TrimSpace(api), func(r rune) bool { return !unicode.IsPrint(r) || r == '<' }); i >= 0 {
			t.Errorf("the API says of %q: %.20q", key, api[i:])
		}
		var k struct {
			Key            string
			Bytes          []byte `json:"key_base64"`
			Holders, Queue []any
		}
		must(t, json.Unmarshal([]byte(api), &k))
		got := k.Key
		if k.Bytes != nil {
			got = string(k.Bytes)
		}
		if got != key || len(k.Queue) != 1 || len(k.Holders) != 1 {
			t.Errorf("of %q the API says %+v", key, k)
		}
		// A line of an event ends nowhere but at its end.
		if strings.ContainsAny(string(encodeJSON(toRow(newEntry(driver.Info{Key: key, Held: true}, time.Now())))), "\r\n") {
			t.Errorf("a row of %q has several lines", key)
		}
	}
}

func encodeQuery(s string) string {
	return query{Text: s, Size: defaultSize, Page: 1}.link(1)[len("?q="):]
}

// A list is sent by the page, sorted and filtered by the server.
func TestPagesOfTheList(t *testing.T) {
	w := newWorld(t)
	for i := range 120 {
		w.ask(fmt.Sprintf("orders/%03d", i), label(fmt.Sprintf("web-%d", i%3)))
	}
	for range 5 {
		w.ask("orders/077", label("later"))
	}
	w.ask("orders/033", label("later"))
	first := regexp.MustCompile(`data-id="([^"]+)"`)
	keys := func(path string) (keys []string) {
		for _, m := range first.FindAllStringSubmatch(w.get(local(), path), -1) {
			if key, err := decodeKey(m[1]); err == nil {
				keys = append(keys, key)
			}
		}
		return keys
	}
	for path, want := range map[string]struct {
		n     int
		first string
	}{
		"/":                       {50, "orders/000"},
		"/?page=3":                {20, "orders/100"},
		"/?page=4":                {0, ""},
		"/?page=2&size=7":         {7, "orders/007"},
		"/?sort=waiters":          {50, "orders/077"},
		"/?sort=held":             {50, "orders/000"},
		"/?state=waited":          {2, "orders/033"},
		"/?state=foreign":         {0, ""},
		"/?q=orders/01":           {10, "orders/010"},
		"/?q=WEB-1":               {40, "orders/001"},
		"/?q=nightly&size=200":    {120, "orders/000"},
		"/?q=nothing+of+the+sort": {0, ""},
	} {
		got := keys(path)
		if len(got) != want.n || want.n > 0 && got[0] != want.first {
			t.Errorf("%s shows %d keys, %q, want %d from %s", path, len(got), got, want.n, want.first)
		}
	}
	for _, path := range []string{"/?page=0", "/?page=x", "/?size=201", "/?sort=reason", "/?state=held", "/?page=-1", "/?page=99999999999999999999"} {
		if code, _, _ := serve(New(w.client, nil), request("GET", path, "")); code != 400 {
			t.Errorf("%s: %d", path, code)
		}
	}
	if page := w.get(nil, "/?state=waited&page=1"); !strings.Contains(page, "2</span> of <span id=\"keys\">120</span> keys") || !strings.Contains(page, `id="waiting">6<`) {
		t.Errorf("the summary is missing in:\n%s", page)
	}
}

// Below a prefix nothing else is shown, nor broken.
func TestPrefix(t *testing.T) {
	w := newWorld(t)
	w.ask("a/1", label("web-1"))
	owner := w.ask("b/1", label("web-2"))
	o := local()
	o.Prefix = "a/"
	if page := w.get(o, "/"); !strings.Contains(page, "a/1") || strings.Contains(page, "b/1") {
		t.Errorf("the list:\n%s", page)
	}
	h := New(w.client, o)
	for _, r := range []struct{ method, path string }{{"GET", "/lock?key="}, {"GET", "/api/v1/locks/"}, {"GET", "/events/lock?key="}, {"POST", "/api/v1/locks/"}} {
		path, body := r.path+encodeKey("b/1"), ""
		if r.method == "POST" {
			path, body = path+"/break", `{"owner":"`+owner+`","reason":"test"}`
		}
		if code, _, _ := serve(h, request(r.method, path, body, "Content-Type", "application/json")); code != 404 {
			t.Errorf("%s %s: %d", r.method, path, code)
		}
	}
}

func TestStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		owner := w.ask("k", label("web-1"))
		o := local()
		h := New(w.client, o)
		o.Explain = func(err error) string { return "explained: " + err.Error() }
		explains := New(w.client, o)
		for _, h := range []http.Handler{h, explains} {
			if code, page, _ := serve(h, request("GET", "/", "")); code != 200 || !strings.Contains(page, "web-1") || !strings.Contains(page, "problems</dt><dd>0<") {
				t.Fatalf("%d: %s", code, page)
			}
		}
		w.store.SetUnreachable(true)
		time.Sleep(time.Minute)
		for path, want := range map[string]int{"/": 200, "/lock?key=" + encodeKey("k"): 200, "/healthz": 200, "/api/v1/locks/" + encodeKey("k"): 502} {
			code, page, _ := serve(h, request("GET", path, ""))
			if code != want || path != "/healthz" && !strings.Contains(page, "unreachable") && !strings.Contains(page, "cut off") {
				t.Errorf("%s: %d:\n%s", path, code, page)
			}
		}
		// What was known stays to be seen, and says so: the store is a problem.
		if _, page, _ := serve(h, request("GET", "/", "")); !strings.Contains(page, "web-1") || !strings.Contains(page, "problems</dt><dd>1<") {
			t.Errorf("the last list is gone, or it is no problem:\n%s", page)
		}
		asked := `{"owner":"` + owner + `","reason":"a test"}`
		for path, of := range map[string]string{"/": "list", "/lock?key=" + encodeKey("k"): "inspect", "/api/v1/locks/" + encodeKey("k"): "inspect", "/api/v1/locks/" + encodeKey("k") + "/break": "inspect"} {
			method := "GET"
			if strings.HasSuffix(path, "/break") {
				method = "POST"
			}
			if _, page, _ := serve(explains, request(method, path, asked, "Content-Type", "application/json")); !strings.Contains(page, "explained: hasp: "+of) {
				t.Errorf("%s is not explained:\n%s", path, page)
			}
		}
		if code, _, _ := serve(New(w.client, o), request("GET", "/api/v1/locks", "")); code != 502 {
			t.Errorf("a list of a store that never answered: %d", code)
		}
	})
}

func TestReportIsRare(t *testing.T) {
	w := newWorld(t)
	asked := 0
	o := local()
	o.Doctor = func(context.Context) ([]Finding, error) { asked++; return nil, errTest }
	h := New(w.client, o)
	for range 5 {
		if _, page, _ := serve(h, request("GET", "/doctor", "")); !strings.Contains(page, errTest.Error()) {
			t.Errorf("it does not say what is wrong:\n%s", page)
		}
	}
	if asked != 1 {
		t.Errorf("the store was examined %d times", asked)
	}
}

func TestFind(t *testing.T) {
	w := newWorld(t)
	h := New(w.client, nil)
	code, _, header := serve(h, request("GET", "/find?name=a/b+%3C", ""))
	if code != 303 || header.Get("Location") != "lock?key="+encodeKey("a/b <") {
		t.Errorf("%d, to %s", code, header.Get("Location"))
	}
	if code, _, _ := serve(h, request("GET", "/find?name=", "")); code != 400 {
		t.Errorf("without a key: %d", code)
	}
	if page := w.get(nil, "/lock?key="+encodeKey("free")); !strings.Contains(page, "Nobody holds it.") {
		t.Errorf("a free key:\n%s", page)
	}
}
