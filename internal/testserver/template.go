// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A template is the data of a new database server, which takes half a second of work to
// make: servers that run side by side begin with copies of one. It goes with the last of them.
type template struct {
	mu   sync.Mutex
	dir  string
	used int // by how many servers
}

// copy makes the folder data, a server's, with what fill puts into such a folder.
func (p *template) copy(t testing.TB, as account, data string, fill func(dir, data string)) {
	t.Helper()
	p.mu.Lock() // while it is made, too: the others wait for it
	defer p.mu.Unlock()
	t.Cleanup(func() { p.leave(t) })
	if p.used++; p.dir == "" {
		dir, err := os.MkdirTemp("", "hasp-")
		must(t, err)
		defer func() {
			if p.dir == "" { // fill ended the test
				_ = os.RemoveAll(dir)
			}
		}()
		as.mkdir(t, dir, filepath.Join(dir, "data"))
		fill(dir, filepath.Join(dir, "data"))
		p.dir = dir
	}
	as.mkdir(t, filepath.Dir(data), data)
	as.run(t, filepath.Dir(data), "cp", "-a", filepath.Join(p.dir, "data")+"/.", data)
}

func (p *template) leave(t testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used--; p.used > 0 {
		return
	}
	if err := os.RemoveAll(p.dir); err != nil {
		t.Errorf("testserver: %v", err)
	}
	p.dir = ""
}
