// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/dashboard"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
)

var must = expect.Need

// The API does what its file says, whatever is asked of it. HASP_TEST_SCHEMATHESIS names the
// program that asks (4.0 or later).
func TestAPIKeepsItsPromises(t *testing.T) {
	schemathesis := os.Getenv("HASP_TEST_SCHEMATHESIS")
	if schemathesis == "" {
		t.Skip("HASP_TEST_SCHEMATHESIS names no program: make browser")
	}
	s := &stage{store: memdriver.New(), lines: map[string][]driver.Claim{}}
	c, err := hasp.New(s.store, nil)
	must(t, err)
	defer c.Close()
	for _, key := range []string{"orders/42", "orders/42", hostile, "\x00"} {
		s.ask(key, "web-1", "nightly", time.Now())
	}
	server := httptest.NewServer(http.StripPrefix("/some/path", dashboard.New(c, &dashboard.Options{Identify: dashboard.Local(true)})))
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), schemathesis, "run", server.URL+"/some/path/api/v1/openapi.json", "--url", server.URL+"/some/path", "--checks", "all", "--max-examples", "100", "--no-color")
	cmd.Stdout, cmd.Stderr, cmd.Dir = os.Stdout, os.Stderr, t.TempDir()
	must(t, cmd.Run())
}
