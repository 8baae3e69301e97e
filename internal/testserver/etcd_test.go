// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"net/http"
	"testing"
)

func TestEtcdAnswersAndKeepsItsPort(t *testing.T) {
	s := Etcd(t)
	for range 2 {
		answer, err := http.Get("http://" + s.Addr() + "/health")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("its health is %s", answer.Status)
		}
		s.Restart()
	}
}
