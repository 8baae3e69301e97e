// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args             []string
		scenarios, peers int
		rounds           int
		fails            bool
	}{
		{nil, len(scenarios), len(peers), fullRounds, false},
		{[]string{"-quick"}, len(scenarios), len(peers), 1, false},
		{[]string{"-quick", "-rounds", "3", "-scenarios", "s1"}, 1, len(peers), 3, false},
		{[]string{"-scenarios", "s1, s3", "-peers", "hasp,redsync"}, 2, len(haspPeers) + len(redlockPeers) + len(redsyncPeers), fullRounds, false},
		{[]string{"-peers", "redsync 5 nodes"}, len(scenarios), 1, fullRounds, false},
		{[]string{"-peers", "nobody"}, 0, 0, 0, true},
		{[]string{"-scenarios", "s99"}, 0, 0, 0, true},
		{[]string{"-scenarios", "s1", "-out", "../docs"}, 0, 0, 0, true}, // the page would have no other
		{[]string{"-rounds", "-1"}, 0, 0, 0, true},
		{[]string{"s1"}, 0, 0, 0, true},
	} {
		o, err := parse(c.args)
		if (err != nil) != c.fails {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if err == nil && (len(o.scenarios) != c.scenarios || len(o.peers) != c.peers || o.roundsOf(&s1) != c.rounds) {
			t.Errorf("%q: %d scenarios, %d peers, %d rounds", c.args, len(o.scenarios), len(o.peers), o.roundsOf(&s1))
		}
	}
	if _, err := parse([]string{"extra"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("a word too many: %v", err)
	}
}

// Tables, pictures and files identify a peer by its name.
func TestPeersAreTold(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range peers {
		if seen[p.name] || p.config == "" || p.open == nil {
			t.Errorf("%s is twice there, or does not say how it is configured", p.name)
		}
		seen[p.name] = true
		if !strings.Contains(pictureText, ".s-"+family(p.name)+"{") && p.on != inProcess {
			t.Errorf("%s has no colour", p.name)
		}
	}
	if !seen[baseline] {
		t.Errorf("%s is no peer", baseline)
	}
}

func TestScenariosHaveTexts(t *testing.T) {
	for _, s := range scenarios {
		if title, about := s.text(); title == "" || about == "" || strings.Contains(about, "\n") {
			t.Errorf("scenarios.txt says of %s: %q, %q", s.name, title, about)
		}
	}
}
