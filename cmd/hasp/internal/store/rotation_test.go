// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A URL's file is read again at each login; what it says of anything but the login changes nothing.
func TestRotation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	}
	write("redis://me:one@h:6379/2")
	u, err := fromFile(file)
	must(t, err)
	r := newRotation(u)
	for _, c := range []struct{ text, password string }{
		{"redis://me:one@h:6379/2", "one"}, {"redis://me:two@h:6379/2", "two"}, {"", "two"}, {"redis://me:thr", "two"}, {"redis://me:three@other:6379/2", "two"},
		{"redis://me:three@h:6379/3", "two"}, {"zk://me:three@h:6379/2", "two"}, {"redis://me:three@h:6379/2?prefix=x", "three"},
	} {
		write(c.text)
		if got := r.now().(*redisServers).nodes[0].Password; got != c.password { //nolint:forcetypeassert // it panics
			t.Errorf("after %q the password is %q, want %q", c.text, got, c.password)
		}
	}
	must(t, os.Remove(file))
	if got := r.now().(*redisServers).nodes[0].Password; got != "three" { //nolint:forcetypeassert // it panics
		t.Errorf("without the file it is %q", got)
	}
}

// A disk that hangs delays a login, once and for a moment; what was read late is not believed.
func TestLatestOfAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan string)
		read := func() (string, error) { return <-disk, nil }
		l := latest[string]{value: "first"}
		for _, took := range []time.Duration{rereadLimit, 0, 0} {
			began := time.Now()
			if got := l.again(read); got != "first" || time.Since(began) != took {
				t.Errorf("it says %q after %v, want %v", got, time.Since(began), took)
			}
		}
		disk <- "stale"
		synctest.Wait()
		go func() { disk <- "second" }()
		if got := l.again(read); got != "second" {
			t.Errorf("it says %q once the disk has come back", got)
		}
	})
}
