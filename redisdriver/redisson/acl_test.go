// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// rights are what doc.go says that a user needs.
func rights(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "# Permissions")
	for line := range strings.Lines(after) {
		if words, ok := strings.CutPrefix(line, "//\t"); ok {
			all = append(all, strings.Fields(words)...)
		}
	}
	stopIf(t, len(all) < 40, "doc.go names the rights %q", all)
	return all
}

// The rights that are documented are enough for locks of each kind.
func TestRightsSuffice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user := []any{"ACL", "SETUSER", "u", "on", "nopass", "resetchannels", "-@all"}
	for _, r := range rights(t) {
		user = append(user, r)
	}
	w.do(user...)
	for kind := range Kind(len(kinds)) {
		d := w.over(w.client("u"), kind)
		a, b := ask("k"), queued(ask("k"))
		w.grant(d, a)
		hints := w.watch(d, b)
		w.refuse(d, b, 0)
		w.renew(d, b)
		if r := w.renew(d, a); r.Err != nil {
			t.Errorf("%v: renewal: %v", kind, r.Err)
		}
		if kind == ReadWrite {
			a = shared(a)
			a.Convert = true
			w.grant(d, a)
			w.hint(hints)
		}
		if info := w.inspect(d, "k"); info.Holder.Owner != a.Owner {
			t.Errorf("%v: %+v", kind, info)
		}
		for info, err := range d.List(w.ctx, "") {
			failIf(t, err != nil || info.Key != "k", "%v: List: %+v, %v", kind, info, err)
		}
		w.release(d, a)
		w.hint(hints)
		w.grant(d, b)
		w.release(d, b)
	}
	d := w.over(w.client("u"), Lock)
	if _, err := contend.Try(w.ctx, d, ask("another")); d.Classify(err) != driver.ClassDenied {
		t.Errorf("a key of another name: %v", err)
	}
}

// The documented rights are those that the scripts use, and what a connection needs.
func TestRightsAreUsed(t *testing.T) {
	used := []string{"evalsha", "eval", "publish", "subscribe", "unsubscribe", "ping", "scan"}
	files, err := fs.Glob(sources, "lua/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := sources.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
			used = append(used, strings.ToLower(m[1]))
		}
	}
	var named []string
	for _, r := range rights(t) {
		if name, ok := strings.CutPrefix(r, "+"); ok {
			named = append(named, name)
		}
	}
	for _, name := range used {
		failIf(t, !slices.Contains(named, name), "%s is used, and not among the rights", name)
	}
	for _, name := range named {
		failIf(t, !slices.Contains(used, name), "%s is among the rights, and not used", name)
	}
}
