// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
}

// talk sends words to a server, and hands the connection to read for the answer, which has to come within a limit.
func talk(ctx context.Context, network, addr string, words []byte, within time.Duration, read func(c net.Conn) error) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := c.Write(words); err != nil {
		return err
	}
	return read(c)
}

// Get returns what a server that speaks HTTP answers at a path.
func (s *Server) Get(ctx context.Context, path string) (string, error) {
	answer, err := get(ctx, "http://"+s.Addr()+path, "", "")
	return string(answer), err
}

// get returns what a server answers to a GET, or with a body to a POST. Its unix socket, if named, stands for the address.
func get(ctx context.Context, url, body, socket string) ([]byte, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	tr := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		var d net.Dialer
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) }
	}
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", answer.Status)
	}
	return io.ReadAll(answer.Body)
}
