// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/hasplock/hasp/driver"
)

func TestKeysSurviveAPath(t *testing.T) {
	for _, key := range append(hostileKeys, "a", "..", "a/../b", "//", "%2F", "\x00", strings.Repeat("\xff", 512)) {
		text := encodeKey(key)
		if got, err := decodeKey(text); err != nil || got != key {
			t.Errorf("%q became %q, and that %q, %v", key, text, got, err)
		}
		if strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("%q is %q in a path", key, text)
		}
	}
	// One key has one path: no padding, no other alphabet, no bits that count for nothing, no ends of lines.
	for _, text := range []string{"", "YQ==", "YR", "+/", "Y", "YQ\n", "Y\r\nQ", " YQ", encodeKey(strings.Repeat("x", 513))} {
		if key, err := decodeKey(text); err == nil {
			t.Errorf("%q is taken for the key %q", text, key)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("orders/42", "b3JkZXJzLzQy")
	f.Add("\xff\x00", "YQ==")
	f.Fuzz(func(t *testing.T, key, text string) {
		if len(key) > 0 && len(key) <= 512 {
			if got, err := decodeKey(encodeKey(key)); err != nil || got != key {
				t.Errorf("%q came back as %q, %v", key, got, err)
			}
		}
		if got, err := decodeKey(text); err == nil && encodeKey(got) != text {
			t.Errorf("%q and %q are both %q", text, encodeKey(got), got)
		}
		if s := driver.Printable(key); strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", key, s)
		}
	})
}

// A request is heard when it came to a name of ours, from a page of ours or from no page, by
// somebody who may.
func TestGuard(t *testing.T) {
	w := newWorld(t)
	owner := w.ask("k", label("web-1"))
	tokens, err := Tokens(Token{Name: "r", Secret: "reader-reader-reader"}, Token{Name: "b", Secret: "breaker-breaker-breaker", Break: true})
	must(t, err)
	const reader, breaker = "Bearer reader-reader-reader", "Bearer breaker-breaker-breaker"
	h := New(w.client, &Options{Identify: tokens, Hosts: []string{"locks.example.com"}, Metrics: http.NotFoundHandler()})
	body := `{"owner":"` + strings.Repeat("A", 26) + `","reason":"test"}` // nobody's
	brk := "/api/v1/locks/" + encodeKey("k") + "/break"
	for _, c := range []struct {
		name, method, path string
		headers            []string
		want               int
	}{
		{"a reader looks", "GET", "/", []string{"Authorization", reader}, 200},
		{"with a scheme in small letters", "GET", "/", []string{"Authorization", "bearer reader-reader-reader"}, 200},
		{"by basic authentication", "GET", "/", []string{"Authorization", "Basic eDpyZWFkZXItcmVhZGVyLXJlYWRlcg=="}, 200},
		{"nobody looks", "GET", "/", nil, 401},
		{"an empty token", "GET", "/", []string{"Authorization", "Bearer "}, 401},
		{"half a token", "GET", "/", []string{"Authorization", "Bearer reader-reader"}, 401},
		{"nobody asks the API", "GET", "/api/v1/locks", nil, 401},
		{"nobody asks for metrics", "GET", "/metrics", nil, 401},
		{"nobody opens a stream", "GET", "/events/locks", nil, 401},
		{"nobody reads a file", "GET", "/static/app.js", nil, 401},
		{"anybody asks whether it lives", "GET", "/healthz", nil, 200},
		{"a reader breaks", "POST", brk, []string{"Authorization", reader}, 403},
		{"nobody breaks", "POST", brk, nil, 401},
		{"a breaker breaks", "POST", brk, []string{"Authorization", breaker}, 409},
		{"by GET", "GET", brk, []string{"Authorization", breaker}, 405},
		{"as a form does", "POST", brk, []string{"Authorization", breaker, "Content-Type", "text/plain"}, 400},
		{"an IP address", "GET", "/", []string{"Authorization", reader, "Host", "192.0.2.1:8390"}, 200},
		{"an IPv6 address", "GET", "/", []string{"Authorization", reader, "Host", "[::1]:8390"}, 200},
		{"our name", "GET", "/", []string{"Authorization", reader, "Host", "Locks.example.com"}, 200},
		{"another name", "GET", "/", []string{"Authorization", reader, "Host", "evil.example"}, 403},
		{"our name as a part", "GET", "/", []string{"Authorization", reader, "Host", "locks.example.com.evil.example"}, 403},
		{"another name, whether it lives", "GET", "/healthz", []string{"Host", "evil.example"}, 403},
		{"our page breaks", "POST", brk, []string{"Authorization", breaker, "Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8390"}, 409},
		{"our page breaks behind a proxy that changes the name", "POST", brk, []string{"Authorization", breaker, "Sec-Fetch-Site", "same-origin", "Origin", "https://locks"}, 409},
		{"another site breaks", "POST", brk, []string{"Authorization", breaker, "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403},
		{"another port of this machine breaks", "POST", brk, []string{"Authorization", breaker, "Sec-Fetch-Site", "same-site", "Origin", "http://localhost:1"}, 403},
		{"a page without an origin breaks", "POST", brk, []string{"Authorization", breaker, "Sec-Fetch-Site", "cross-site", "Origin", "null"}, 403},
		{"an old browser, another site breaks", "POST", brk, []string{"Authorization", breaker, "Origin", "https://evil.example"}, 403},
		{"an old browser, our page breaks", "POST", brk, []string{"Authorization", breaker, "Origin", "http://localhost:8390"}, 409},
		{"another site sends a form as a navigation", "POST", brk, []string{"Authorization", breaker, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"another site fetches", "GET", "/api/v1/locks", []string{"Authorization", reader, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		{"another site opens a stream", "GET", "/events/locks", []string{"Authorization", reader, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 403},
		{"another site opens a stream as a page", "GET", "/events/locks", []string{"Authorization", reader, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"another site frames", "GET", "/", []string{"Authorization", reader, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"a link from another site", "GET", "/", []string{"Authorization", reader, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"typed", "GET", "/", []string{"Authorization", reader, "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"too long a query", "GET", "/?q=" + strings.Repeat("x", 5000), []string{"Authorization", reader}, 400},
		{"a reader signs in anew", "GET", "/signin", []string{"Authorization", reader}, 401},
		{"a breaker has signed in", "GET", "/signin", []string{"Authorization", breaker}, 303},
		{"no such file", "GET", "/static/..%2fdashboard.go", []string{"Authorization", reader}, 404},
		{"no such page", "GET", "/nosuch", []string{"Authorization", reader}, 404},
	} {
		headers := c.headers
		if c.method == "POST" {
			headers = append([]string{"Content-Type", "application/json"}, headers...)
		}
		code, answer, header := serve(h, request(c.method, c.path, body, headers...))
		if code != c.want {
			t.Errorf("%s: %d, want %d: %s", c.name, code, c.want, answer)
		}
		if header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'") ||
			header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: its header is %v", c.name, header)
		}
		if strings.Contains(answer, "breaker-breaker") || strings.Contains(answer, "reader-reader") {
			t.Errorf("%s: a token is in the answer: %s", c.name, answer)
		}
	}
	if info, _ := w.client.Operator().Inspect(t.Context(), "k"); info.Holder.Owner != owner {
		t.Errorf("the key was taken from %s: %+v", owner, info)
	}
}

// A page that was given no way to know people is for this machine, and only to look.
func TestLocal(t *testing.T) {
	w := newWorld(t)
	h := New(w.client, nil)
	for addr, want := range map[string]int{"127.0.0.1:1": 200, "[::1]:1": 200, "127.9.9.9:1": 200, "192.0.2.1:1": 401, "[2001:db8::1]:1": 401, "": 401, "@": 401} {
		r := request("GET", "/", "")
		if r.RemoteAddr = addr; true {
			if code, _, _ := serve(h, r); code != want {
				t.Errorf("from %q: %d, want %d", addr, code, want)
			}
		}
	}
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via", "X-Forwarded-Host"} {
		if code, _, _ := serve(h, request("GET", "/", "", name, "192.0.2.1")); code != 401 {
			t.Errorf("forwarded with %s: %d", name, code)
		}
	}
	body := `{"owner":"` + strings.Repeat("A", 26) + `","reason":"test"}`
	brk := "/api/v1/locks/" + encodeKey("k") + "/break"
	if code, _, _ := serve(h, request("POST", brk, body, "Content-Type", "application/json")); code != 403 {
		t.Errorf("it breaks without having been told to: %d", code)
	}
	if code, _, _ := serve(New(w.client, local()), request("POST", brk, body, "Content-Type", "application/json")); code != 409 {
		t.Errorf("it does not break: %d", code)
	}
}
