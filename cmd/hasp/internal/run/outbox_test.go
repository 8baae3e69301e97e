// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
)

// reader takes a line for each go, and nothing without one.
type reader struct {
	text strings.Builder
	take chan struct{} // closed: takes everything
}

func (r *reader) Write(p []byte) (int, error) {
	<-r.take
	return r.text.Write(p)
}

// A reader that does not read delays nothing; the lost lines are counted in its
// place, and it is the oldest.
func TestUnreadLinesAreDropped(t *testing.T) {
	for _, output := range []string{"text", "json"} {
		synctest.Test(t, func(t *testing.T) {
			r := &reader{take: make(chan struct{})}
			rep := newReport(&options{output: base.OneOf(output)}, []string{"k"}, r)
			start := time.Now()
			const said = unread + 10
			for i := range said {
				rep.say(normal, entry{Event: "waiting", Message: fmt.Sprint("line ", i, ";")})
				synctest.Wait()
			}
			var end *base.Exit
			err := rep.verdict(&child.Status{}, &base.Exit{Code: 9, Verdict: "lost", Message: "the end"})
			if !errors.As(err, &end) || end.Code != 9 {
				t.Errorf("%s: it ends with %v", output, err)
			}
			if took := time.Since(start); took != base.FlushLimit {
				t.Errorf("%s: it took %v", output, took)
			}
			close(r.take)
			synctest.Wait()
			// The first is being written, ten and the last one's are gone.
			text, gone := r.text.String(), "10 messages were dropped here"
			if output == "json" {
				gone = `"dropped":10`
			}
			for _, part := range []string{"line 0;", gone, "line 11;", fmt.Sprint("line ", said-1, ";"), "the end"} {
				at := strings.Index(text, part)
				if at < 0 {
					t.Fatalf("%s: no %q in its place:\n%s", output, part, text)
				}
				text = text[at:]
			}
		})
	}
}

// shy is a file that was made non-blocking, and takes three bytes a time.
type shy struct {
	text strings.Builder
	full bool
}

func (w *shy) Write(p []byte) (int, error) {
	if w.full = !w.full; w.full {
		n, _ := w.text.Write(p[:min(3, len(p))])
		if n < len(p) {
			return n, syscall.EAGAIN
		}
		return n, nil
	}
	return 0, syscall.EAGAIN
}

// The command may have made its standard error non-blocking, which is ours, too.
func TestFullFileIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w shy
		rep := newReport(&options{}, []string{"k"}, &w)
		rep.say(problem, entry{Message: "one"})
		rep.say(problem, entry{Message: "two"})
		rep.out.flush(time.Minute)
		if got := w.text.String(); got != "hasp: one\nhasp: two\n" {
			t.Errorf("written: %q", got)
		}
	})
}
