// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"testing"
	"testing/synctest"
	"time"
)

// A disk that hangs delays a login, once and for a moment; what was read late is not believed.
func TestLatestOfAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan string)
		read := func() (string, error) { return <-disk, nil }
		l := Latest[string]{Value: "first"}
		for _, took := range []time.Duration{rereadLimit, 0, 0} {
			began := time.Now()
			if got := l.Again(read); got != "first" || time.Since(began) != took {
				t.Errorf("it says %q after %v, want %v", got, time.Since(began), took)
			}
		}
		disk <- "stale"
		synctest.Wait()
		go func() { disk <- "second" }()
		if got := l.Again(read); got != "second" {
			t.Errorf("it says %q once the disk has come back", got)
		}
	})
}
