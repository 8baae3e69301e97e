// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/expect"
)

var must = expect.Need

type remote struct {
	url  string
	base http.RoundTripper
}

func (r remote) do(method string, fence uint64) error {
	req, err := http.NewRequest(method, r.url, strings.NewReader("body"))
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: Transport{Fence: fence, Base: r.base}}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := Refused(res); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}
func (r remote) write(fence uint64) error { return r.do(http.MethodPut, fence) }
func (r remote) read(fence uint64) error  { return r.do(http.MethodGet, fence) }

func TestHandler(t *testing.T) {
	t.Parallel()
	served := 0
	s := httptest.NewServer(Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }), &Memory{}, nil))
	t.Cleanup(s.Close)
	testGuard(t, remote{url: s.URL + "/a"})
	if served != 5+2 {
		t.Errorf("%d requests were served, want 5 writes and 2 reads", served)
	}
	if err := (remote{url: s.URL + "/b", base: s.Client().Transport}).write(1); err != nil {
		t.Errorf("another path: %v", err)
	}
	send := func(method string, fences ...string) int {
		req, err := http.NewRequest(method, s.URL+"/a", nil)
		must(t, err)
		req.Header[Header] = fences
		res, err := s.Client().Do(req)
		must(t, err)
		defer res.Body.Close()
		if err := Refused(res); (err != nil) != (res.StatusCode == http.StatusPreconditionFailed) {
			t.Errorf("%s is %v", res.Status, err)
		}
		return res.StatusCode
	}
	for _, c := range []struct {
		method string
		want   int
		fences []string
	}{
		{http.MethodGet, http.StatusOK, nil},
		{http.MethodPost, http.StatusPreconditionRequired, nil},
		{http.MethodDelete, http.StatusPreconditionFailed, []string{"1"}},
		{"MERGE", http.StatusPreconditionFailed, []string{"1"}},
		{http.MethodPut, http.StatusBadRequest, []string{"0"}},
		{http.MethodPut, http.StatusBadRequest, []string{""}},
		{http.MethodPut, http.StatusBadRequest, []string{"-1"}},
		{http.MethodPut, http.StatusBadRequest, []string{"1, 2"}},
		{http.MethodPut, http.StatusBadRequest, []string{"9223372036854775807", "1"}},
		{http.MethodPut, http.StatusBadRequest, []string{"9223372036854775808"}},
		{http.MethodGet, http.StatusBadRequest, []string{"x"}},
		{http.MethodPut, http.StatusOK, []string{"9223372036854775807"}},
	} {
		if got := send(c.method, c.fences...); got != c.want {
			t.Errorf("%s with %q: %d, want %d", c.method, c.fences, got, c.want)
		}
	}
}

// A 412 of the server's own is no refusal for a fence.
func TestRefusedForAnotherReason(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPreconditionFailed) }))
	t.Cleanup(s.Close)
	if err := (remote{url: s.URL}).write(1); err == nil || errors.Is(err, ErrStale) {
		t.Error(err)
	}
}
