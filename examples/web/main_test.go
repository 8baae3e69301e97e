// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hasplock/hasp/open"
)

// While one server works on an order, another server refuses it, and takes a free order. The storage refuses a server that was paused.
func TestOneRequestForAnOrder(t *testing.T) {
	url, packing, finish, done := "sqlite:"+t.TempDir()+"/locks.db", make(chan bool, 1), make(chan bool), make(chan bool)
	server := func(pack func(context.Context) error) *shipping {
		locks, err := open.Client(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close() })
		return &shipping{locks: locks, pack: pack}
	}
	post := func(s *shipping, order string, code int, text string) {
		r, w := httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder()
		r.SetPathValue("order", order)
		s.ServeHTTP(w, r)
		if w.Code != code || !strings.Contains(w.Body.String(), text) {
			t.Errorf("order %s is answered %d %s, want %d %s", order, w.Code, w.Body, code, text)
		}
	}
	first := server(func(context.Context) error { packing <- true; <-finish; return nil })
	second := server(func(context.Context) error { return nil })
	go func() { post(first, "42", http.StatusOK, "shipped"); close(done) }()
	<-packing
	post(second, "42", http.StatusLocked, "held by ")
	post(second, "7", http.StatusOK, "shipped")
	post(second, strings.Repeat("7", 512), http.StatusBadRequest, "the key has 519 bytes")
	close(finish)
	<-done
	post(second, "42", http.StatusOK, "shipped")
	_ = second.saved.Write("orders/42", 1<<62, func() error { return nil })
	post(second, "42", http.StatusConflict, "comes too late")
}
