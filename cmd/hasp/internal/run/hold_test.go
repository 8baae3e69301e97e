// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// A renewal that a store refuses the login for says where another password is read.
func TestRefusedRenewal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	must(t, os.WriteFile(path, []byte("redis://h"), 0o600))
	t.Setenv(store.EnvFile, path)
	u, err := store.Find("", false)
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		o := &options{}
		o.ttl.D = time.Minute
		j := &job{o: o, rep: newReport(o, []string{"k"}, &out), failing: map[string]bool{}, from: &storeKeys{Locks: &base.Locks{URL: u}}}
		j.renewFailed(&event.Event{Key: "k", Left: time.Second, Err: &hasp.Error{Class: driver.ClassLogin, Err: errors.New("WRONGPASS.")}})
		synctest.Wait()
		if want := `hasp: cannot renew "k", asking again: WRONGPASS. Check user, password and certificate in ` + path +
			", which is read again at each login. Unless it is renewed, the command is ended in 1.0s\n"; out.String() != want {
			t.Errorf("it said: %q, want %q", out.String(), want)
		}
	})
}

// A store that does not answer for a moment is asked again, for as long as there is
// time, and its answer counts.
func TestInsist(t *testing.T) {
	silent := &hasp.Error{Class: driver.ClassUnreachable, Err: errors.New("it does not answer")}
	lost := &hasp.Error{Class: driver.ClassUnknown, Err: hasp.ErrLost}
	denied := &hasp.Error{Class: driver.ClassImpossible, Err: errors.New("NOPERM")}
	for name, c := range map[string]struct {
		answers []error // the last stays
		asked   int     // 0: many times
		want    error
	}{
		"well":                {[]error{nil}, 1, nil},
		"silent for a moment": {[]error{silent, silent, nil}, 3, nil},
		"silent for good":     {[]error{silent}, 0, silent},
		"lost meanwhile":      {[]error{silent, lost}, 2, lost},
		"denied":              {[]error{denied}, 1, denied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), base.AskLimit)
				defer cancel()
				begun, asked := time.Now(), 0
				err := insist(ctx, func(context.Context) error {
					asked++
					return c.answers[min(asked, len(c.answers))-1]
				})
				if !errors.Is(err, c.want) || c.asked > 0 && asked != c.asked {
					t.Errorf("%v after %d questions, want %v after %d", err, asked, c.want, c.asked)
				}
				if took := time.Since(begun); c.asked == 0 && (asked < 4 || took != base.AskLimit) {
					t.Errorf("it asked %d times in %v", asked, took)
				}
			})
		})
	}
}
