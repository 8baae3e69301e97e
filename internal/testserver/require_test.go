// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// verdict is a testing.TB that notes how a test would have ended.
type verdict struct {
	testing.TB
	text string
}

func (v *verdict) Helper() {}

func (v *verdict) Fatalf(format string, args ...any) { v.end("fail: "+format, args) }

func (v *verdict) Skipf(format string, args ...any) { v.end("skip: "+format, args) }

func (v *verdict) end(format string, args []any) {
	v.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestRequire(t *testing.T) {
	known := map[string]string{"absent": "hasp-no-such-server", "within": "", "present": "go"}
	for _, c := range []struct{ engine, require, want string }{
		{"absent", "", "skip: SKIPPED WITHOUT A SERVER: hasp-no-such-server is not installed"},
		{"absent", "redis", "skip: "},
		{"absent", "redis, absent", "fail: testserver: HASP_TEST_REQUIRE names absent"},
		{"within", "within", "pass"},
		{"present", "present", "pass"},
		{"unheard-of", "", `fail: testserver: no engine is called "unheard-of"`},
	} {
		t.Run(c.engine+" where "+c.require+" is required", func(t *testing.T) {
			t.Setenv("HASP_TEST_REQUIRE", c.require)
			v := &verdict{text: "pass"}
			done := make(chan struct{})
			go func() {
				defer close(done)
				require(v, c.engine, known)
			}()
			<-done
			if !strings.HasPrefix(v.text, c.want) {
				t.Errorf("got %q, want %q", v.text, c.want)
			}
		})
	}
}
