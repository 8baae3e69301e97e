// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
)

// waitFor is a wait of so long behind one holder, and what was said of it.
func waitFor(d time.Duration) (text string) {
	var out strings.Builder
	w := newWatcher(newReport(&options{}, []string{"k"}, &out))
	w.begin()
	w.refused(&event.Event{Kind: event.Waiting, Key: "k", Holder: hasp.Holder{Owner: "AAAAAAAAAAAAAAAAAAAAAAAAAA"}})
	time.Sleep(d)
	w.end()
	time.Sleep(time.Minute) // whatever would come late
	synctest.Wait()
	return out.String()
}

// Most waits end at once, and are not reported.
func TestShortWaitsAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if text := waitFor(silence - 1); text != "" {
			t.Errorf("of a short wait: %q", text)
		}
		if text := waitFor(silence + 1); strings.Count(text, `hasp: waiting for "k", which is held`) != 1 {
			t.Errorf("of a longer wait: %q", text)
		}
	})
}

// With -w each line says how much of it is left.
func TestWaitSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		w := newWatcher(newReport(&options{}, []string{"k"}, &out))
		w.most = 20 * time.Second
		w.begin()
		w.refused(&event.Event{Kind: event.Waiting, Key: "k", Holder: hasp.Holder{Owner: "A"}})
		time.Sleep(8 * time.Second)
		w.troubled(&event.Event{Kind: event.Trouble, Key: "k", Err: errors.New("refused")})
		time.Sleep(time.Second)
		w.end()
		synctest.Wait()
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 3 || !strings.HasSuffix(lines[0], "; giving up in 19s") || !strings.HasSuffix(lines[1], ": refused; giving up in 12s") {
			t.Errorf("it said: %q", lines)
		}
	})
}

// A waiter says which of its two limits comes first.
func TestWaitSaysWhichLimitEndsIt(t *testing.T) {
	for most, want := range map[time.Duration]string{0: "; asking again for 29s", 40 * time.Second: "; asking again for 29s", 20 * time.Second: "; giving up in 19s"} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			w := newWatcher(newReport(&options{}, []string{"k"}, &out))
			w.most = most
			w.begin()
			w.troubled(&event.Event{Kind: event.Trouble, Key: "k", Err: errors.New("refused"), Left: 30 * time.Second})
			time.Sleep(time.Second)
			w.end()
			synctest.Wait()
			if text := out.String(); !strings.HasSuffix(text, ": refused"+want+"\n") {
				t.Errorf("with -w %v it said: %q, want %q", most, text, want)
			}
		})
	}
}
