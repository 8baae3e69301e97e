// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/expect"
)

var must = expect.Need

// records reads a file of records.
func records(t *testing.T, path string) (rs []Record) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		rs = append(rs, r)
	}
	return rs
}

func open(t *testing.T) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit")
	l, err := Open(path)
	must(t, err)
	return l, path
}

// An act has two records, and the second says how it ended.
func TestDo(t *testing.T) {
	for want, err := range map[Outcome]error{Done: nil, NotHeld: fmt.Errorf("break: %w", driver.ErrNotHeld), Unknown: errors.New("no answer")} {
		l, path := open(t)
		r := Record{Event: Break, Via: "test", By: Self(), Reason: "stuck"}.Victim("k", driver.Holder{Owner: "o", Label: "{}"}, 7, false)
		got := l.Do(r, func() error {
			if rs := records(t, path); len(rs) != 1 || rs[0].Outcome != Begun {
				t.Errorf("while it is done the records are %+v", rs)
			}
			return err
		})
		if !errors.Is(got, err) {
			t.Errorf("the error is %v, want %v", got, err)
		}
		rs := records(t, path)
		if len(rs) != 2 || rs[0].ID != rs[1].ID || rs[1].Outcome != want || rs[1].Key != "k" || rs[1].Owner != "o" || rs[1].Fence != 7 || rs[1].By.PID != os.Getpid() || rs[1].Reason != "stuck" {
			t.Errorf("%s: the records are %+v", want, rs)
		}
		if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
			t.Errorf("the file has the mode %v", info.Mode())
		}
	}
}

// What cannot be recorded does not happen; what could not be recorded afterwards is reported.
func TestDoWithoutARecord(t *testing.T) {
	full := errors.New("disk full")
	for fails := range 2 {
		n, done := 0, false
		l := &Log{to: "x", write: func([]byte) error {
			if n++; n > fails {
				return full
			}
			return nil
		}}
		err := l.Do(Record{}, func() error { done = true; return driver.ErrNotHeld })
		var unwritten *UnwrittenError
		if !errors.As(err, &unwritten) || unwritten.Tried != (fails == 1) || done != unwritten.Tried || !errors.Is(err, full) || errors.Is(err, driver.ErrNotHeld) != done {
			t.Errorf("after %d records: %v, done: %v", fails, err, done)
		}
	}
}

func TestNoLog(t *testing.T) {
	l, err := Open("")
	if l != nil || err != nil {
		t.Fatal(l, err)
	}
	if err := l.Do(Record{}, func() error { return driver.ErrNotHeld }); !errors.Is(err, driver.ErrNotHeld) {
		t.Error(err)
	}
}

// Others' text ends no line, and is ASCII.
func TestHostileRecords(t *testing.T) {
	l, path := open(t)
	const text = "k\x1b]0;t\a\u009b31m\x7f\u202e\U000e0041\n{\"event\":\"forged\"}\xff"
	r := Record{Event: Break, Key: text, Name: text + strings.Repeat("丛", 2000), Label: text, Reason: text + strings.Repeat("丛", 2000), Error: text}
	must(t, l.Write(r))
	raw, _ := os.ReadFile(path)
	for i, c := range raw {
		if c < 0x20 && i != len(raw)-1 || c >= 0x7f {
			t.Fatalf("byte %d is %#x in %q", i, c, raw)
		}
	}
	rs := records(t, path)
	if len(rs) != 1 || string(rs[0].Bytes) != text || rs[0].Event != Break || len(raw) > 24<<10 {
		t.Errorf("%d bytes: %+v", len(raw), rs)
	}
}

// Records of many at once, also by logs of their own, stay whole.
func TestAtOnce(t *testing.T) {
	_, path := open(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			l, err := Open(path)
			for range 25 {
				if err == nil {
					err = l.Write(Record{Event: Lost, Key: strings.Repeat("x", 512)})
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if rs := records(t, path); len(rs) != 200 {
		t.Errorf("%d records, want 200", len(rs))
	}
}

// The file may be moved away meanwhile, and the working directory may change.
func TestRotation(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Open("audit")
	must(t, err)
	if err := errors.Join(l.Write(Record{Key: "1"}), os.Rename("audit", "audit.1")); err != nil {
		t.Fatal(err)
	}
	before, _ := filepath.Abs("audit")
	t.Chdir(t.TempDir())
	if err := l.Write(Record{Key: "2"}); err != nil {
		t.Fatal(err)
	}
	if rs := records(t, before); len(rs) != 1 || rs[0].Key != "2" {
		t.Errorf("%+v", rs)
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	for _, to := range []string{dir, filepath.Join(dir, "no", "such")} {
		var unwritten *UnwrittenError
		if _, err := Open(to); !errors.As(err, &unwritten) || unwritten.Tried || strings.Count(err.Error(), to) != 1 {
			t.Errorf("%s: %v", to, err)
		}
	}
}
