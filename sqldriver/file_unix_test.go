// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqldriver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// fails wants every call to fail with words that say what is wrong with the file.
func fails(t *testing.T, d *Driver, held contend.Owner, words ...string) {
	t.Helper()
	check := func(what string, err error) {
		t.Helper()
		if err == nil || d.Classify(err) != driver.ClassMisconfigured {
			t.Errorf("%s: class %d: %v", what, d.Classify(err), err)
			return
		}
		for _, w := range words {
			failIf(t, !strings.Contains(err.Error(), w), "%s: the error lacks %q: %v", what, w, err)
		}
	}
	_, err := contend.Try(t.Context(), d, request("free"))
	check("Try", err)
	_, err = contend.Try(t.Context(), d, request(held.Key))
	check("Try of a key that is held", err)
	check("Renew", renewal(t, d, held).Err)
	check("Release", contend.Release(t.Context(), d, held))
	_, err = d.Inspect(t.Context(), held.Key)
	check("Inspect", err)
}

// Rule: a file with a second name is refused, by either and also when it gets it
// while a key is held: each name would have its own -journal.
func TestHardLink(t *testing.T) {
	path, second := newFile(t), newFile(t)
	d, held := openDriver(t, path), request("k")
	granted(t, d, held)
	must(t, os.Link(path, second))
	fails(t, d, held, path+" has 2 hard links", "share its folder")
	fails(t, openDriver(t, second), held, second+" has 2 hard links", "share its folder")
	must(t, os.Remove(second))
	renewed(t, d, held)
	refused(t, openDriver(t, path), request("k"))
}

// Rule: what is held stands in the file alone. Its -journal may be deleted while no
// process is killed.
func TestDeletedBeside(t *testing.T) {
	path := newFile(t)
	d, held := openDriver(t, path), request("k")
	granted(t, d, held)
	must(t, os.Remove(path+"-journal"))
	refused(t, openDriver(t, path), request("k"))
	renewed(t, d, held)
	must(t, os.Remove(path+"-journal"))
	renewed(t, d, held)
	refused(t, openDriver(t, path), request("k"))
	if left, err := filepath.Glob(path + "-*"); err != nil || len(left) != 1 {
		t.Errorf("beside the file are %v, %v", left, err)
	}
}
