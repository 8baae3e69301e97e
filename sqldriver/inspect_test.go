// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// Rule: looking at a database that hasp never used finds nothing, and makes
// nothing in it.
func TestInspectWritesNothing(t *testing.T) {
	path := newFile(t)
	d := openDriver(t, path)
	if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Held {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	for info, err := range d.List(t.Context(), "") {
		t.Errorf("List: %+v, %v", info, err)
	}
	var tables int
	must(t, d.db.QueryRow("SELECT count(*) FROM sqlite_master").Scan(&tables))
	failIf(t, tables != 0, "%d tables", tables)
}

// Rule: keys are bytes: any of them is found under its own name, by its
// prefixes, and by hand.
func TestKeysAreBytes(t *testing.T) {
	d := openDriver(t, newFile(t))
	keys := []string{"a", "a\x00", "a\x00b", "a\xff", "a\xff\xff", "b", "\x00", "\xff", "\xff\xff", "'; DROP TABLE hasp_lease; --",
		"ключ", "{tag}\n", "a%", "A", strings.Repeat("\xff", driver.MaxKey), strings.Repeat("k", driver.MaxKey)}
	for _, k := range keys {
		granted(t, d, request(k))
	}
	for _, k := range keys {
		checkKey(t, d, k)
	}
	for _, prefix := range append(keys, "", "a\xfe", strings.Repeat("k", driver.MaxKey+1), "z") {
		want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !strings.HasPrefix(k, prefix) })
		slices.Sort(want)
		var got []string
		for info, err := range d.List(t.Context(), prefix) {
			must(t, err)
			got = append(got, info.Key)
		}
		failIf(t, !slices.Equal(got, want), "%q: %q, want %q", prefix, got, want)
	}
}

// checkKey inspects a held key, and runs the given statements.
func checkKey(t testing.TB, d *Driver, key string) {
	t.Helper()
	info := inspect(t, d, key)
	if !info.Held || info.Key != key || info.Left <= 0 || info.Left > 30*time.Second || len(info.LookCommands) == 0 {
		t.Fatalf("%q: %+v", key, info)
	}
	if age := time.Since(info.Holder.Since); age < 0 || age > time.Minute {
		t.Errorf("%q is held since %v", key, info.Holder.Since)
	}
	for _, statement := range info.LookCommands {
		var kind, owner, label string
		var seq, fence, expires int64
		if err := d.db.QueryRow(statement).Scan(&kind, &seq, &owner, &label, &fence, &expires); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		if kind != "held" || owner != info.Holder.Owner || label != info.Holder.Label || uint64(fence) != info.Fence {
			t.Errorf("%s: %s %s %s %d, want %+v", statement, kind, owner, label, fence, info)
		}
	}
}

func FuzzByHand(f *testing.F) {
	for _, key := range []string{"orders/42", "it's", "a\x00b", "\xff", `\`, "x'00'", "--", "ключ"} {
		f.Add(key)
	}
	d := openDriver(f, newFile(f))
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" || len(key) > driver.MaxKey {
			return
		}
		r := request(key)
		if res, err := contend.Try(context.Background(), d, r); err != nil || !res.Granted {
			t.Fatalf("%q: %+v, %v", key, res, err)
		}
		checkKey(t, d, key)
		if err := contend.Release(context.Background(), d, r); err != nil {
			t.Fatal(err)
		}
	})
}

// Rule: List reaches the end of any number of keys, in whichever order they
// were locked, and names those that are only waited for.
func TestListPages(t *testing.T) {
	d := openDriver(t, newFile(t))
	const n = 2*pageKeys + 10
	left := map[string]int{}
	must(t, d.writes.do(t.Context(), 1, func(tx *tx) error {
		for i := range n {
			key := fmt.Sprintf("k%d", i)
			left[key] = 1
			if _, err := tx.try(request(key).Vote()); err != nil {
				return err
			}
		}
		return nil
	}))
	first, waits := request("first"), queued(request("first"))
	granted(t, d, first)
	refused(t, d, waits)
	must(t, contend.Release(t.Context(), d, first))
	left["first"] = 1
	for info, err := range d.List(t.Context(), "") {
		must(t, err)
		if left[info.Key]--; left[info.Key] != 0 {
			t.Fatalf("%q too often", info.Key)
		}
		if waited := info.Key == "first"; waited == info.Held || waited != (info.Waiters == 1) {
			t.Errorf("%+v", info)
		}
		delete(left, info.Key)
	}
	failIf(t, len(left) != 0, "%d keys are missing", len(left))
}

// Rule: one connection is enough for everything, also for what a program does
// while it lists.
func TestOneConnection(t *testing.T) {
	db := openFile(t, newFile(t))
	db.SetMaxOpenConns(1)
	d := NewSQLite(db)
	defer d.Close()
	held := map[string]contend.Owner{}
	done := make(chan error)
	for i := range 20 {
		r := request(fmt.Sprint(i))
		held[r.Key] = r
		go func() {
			res, err := contend.Try(t.Context(), d, r)
			if err == nil && !res.Granted {
				err = errors.New("refused")
			}
			done <- err
		}()
	}
	for range held {
		must(t, <-done)
	}
	for info, err := range d.List(t.Context(), "") {
		must(t, err)
		must(t, contend.Release(t.Context(), d, held[info.Key]))
	}
	for info, err := range d.List(t.Context(), "") {
		t.Errorf("left: %+v, %v", info, err)
	}
}

// Rule: a file that was deleted or replaced under a program that uses it is an
// error at the next call, and the loss of what was held in it: the next process
// finds the key free.
func TestDeletedFile(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(path string) error{
		"deleted": os.Remove,
		"another in its place": func(path string) error {
			other := newFile(t)
			granted(t, openDriver(t, other), request("other"))
			return os.Rename(other, path)
		},
		"moved away": func(path string) error { return os.Rename(path, path+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			d := openDriver(t, path)
			a := request("k")
			first := granted(t, d, a)
			check := func() {
				t.Helper()
				_, err := contend.Try(t.Context(), d, request("k"))
				if err == nil || d.Classify(err) != driver.ClassMisconfigured || !strings.Contains(err.Error(), path+" was deleted or replaced") {
					t.Errorf("Try: %v", err)
				}
				contend.Renew(t.Context(), d, []contend.Owner{a}, func(_ int, r driver.Renewal) {
					if !errors.Is(r.Err, driver.ErrNotHeld) || !strings.Contains(r.Err.Error(), "was deleted or replaced") {
						t.Errorf("Renew: %+v", r)
					}
				})
				tooLate(t, contend.Release(t.Context(), d, a))
				if info, err := d.Inspect(t.Context(), "k"); err == nil {
					t.Errorf("Inspect: %+v", info)
				}
			}
			if err := replace(path); err != nil {
				t.Skipf("this system keeps open files from being deleted: %v", err)
			}
			check()
			if res := granted(t, openDriver(t, path), request("k")); res.Fence <= first.Fence {
				t.Errorf("in the new file the fence is %d after %d", res.Fence, first.Fence)
			}
			check()
		})
	}
}

// Rule: a file that is restored over the one in use, in place, is the truth: what was
// held after the backup is lost at its next renewal, and fences rise.
func TestRestoredFile(t *testing.T) {
	path := newFile(t)
	d, before, after := openDriver(t, path), request("before"), request("after")
	granted(t, d, before)
	backup, err := os.ReadFile(path)
	must(t, err)
	first := granted(t, d, after)
	must(t, os.WriteFile(path, backup, 0o600))
	tooLate(t, renewal(t, d, after).Err)
	renewed(t, d, before)
	if res := granted(t, openDriver(t, path), request("after")); res.Fence <= first.Fence {
		t.Errorf("the fence is %d after %d", res.Fence, first.Fence)
	}
}

// Rule: the data source name leads to the file, whatever its path contains.
func TestSQLiteDSN(t *testing.T) {
	for _, name := range []string{"plain", "with space", "a?b", "a#b", "100%", "%41", "a&b=c", "ключ", "a:b", "a+b"} {
		path := filepath.Join(t.TempDir(), name)
		used(t, path)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"relative.db", "./dotted.db", "a:b.db"} {
		used(t, name)
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzSQLiteDSN(f *testing.F) {
	for _, path := range []string{"/a/b.db", "a b", "a?b#c%41", "//host/share", "file:x", "\x00"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.Contains(path, "\x00") || path == "" {
			return
		}
		u, err := url.Parse(SQLiteDSN(path))
		stopIf(t, err != nil, "%q: %v", path, err)
		got := u.Path
		if u.Opaque != "" { // a relative path
			got, err = url.PathUnescape(u.Opaque)
		}
		if err != nil || got != path || u.Host != "" || u.Fragment != "" || len(u.Query()["_pragma"]) != 3 {
			t.Errorf("%q: %q, which leads to %q", path, u, got)
		}
	})
}
