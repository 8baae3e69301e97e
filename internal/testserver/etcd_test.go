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

func TestEtcdCluster(t *testing.T) {
	c := NewEtcdCluster(t)
	first := c.Leader()
	c.Cut(first)
	second := c.Leader(first)
	c.Heal(first)
	c.Members[second].Kill()
	c.Leader(second)
	c.Members[second].Restart()
}
