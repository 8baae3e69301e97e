// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestSave(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	r := &results{Schema: schema, Seconds: 600, Peers: []participant{{"hasp", "hasp v1", "as it comes"}}, Scenarios: []*scenarioResult{toy()}}
	r.Scenarios[0].Verdicts = []verdict{{"a bar", "2 × it", true}, {"another", "less", false}}
	for _, before := range []string{"", "By hand.\n\n" + summaryBegin + "\nold\n" + summaryEnd + "\n\nMore.\n"} {
		if before != "" {
			if err := os.WriteFile(page, []byte(before), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // writing again changes nothing
			if err := r.save(dir); err != nil {
				t.Fatal(err)
			}
		}
		tables := read(t, filepath.Join(dir, "results", "benchmarks.md"))
		for _, want := range []string{"| S0 | a bar | 2 × it | reached |", "| S0 | another | less | MISSED |", "as it comes",
			"## S0: a toy", "(s0-rate.svg)", "| redislock | 30 |"} {
			if !strings.Contains(tables, want) {
				t.Errorf("%q is missing in\n%s", want, tables)
			}
		}
		text := read(t, page)
		if strings.Contains(text, "old") || before != "" && (!strings.HasPrefix(text, "By hand.") || !strings.HasSuffix(text, "\n\nMore.\n")) {
			t.Errorf("not only what stands between the marks was replaced:\n%s", text)
		}
	}

	var back results
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "results", "benchmarks.json"))), &back); err != nil {
		t.Fatal(err)
	}
	c := back.Scenarios[0].Variants[1].Cells[2]
	if c.Peer != "redsync" || len(c.Rounds) != 3 || c.Rounds[0]["rate"] != 640 || c.Rounds[2] != nil {
		t.Errorf("the rounds came back as %+v", c)
	}

	if err := os.WriteFile(page, []byte("no marks"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := r.save(dir); err == nil || read(t, page) != "no marks" {
		t.Errorf("a page without marks was written to: %v", err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A picture is XML, has every peer that crosses a network once, inside the
// page, and no two names on top of each other.
func TestPicture(t *testing.T) {
	r := toy()
	for _, v := range r.Variants { // many that end at one place
		for _, name := range []string{"redsync fail-fast", "redislock 5ms", "floor", "rueidislock", "redsync 5 nodes"} {
			v.Cells = append(v.Cells, &cell{Peer: name, Rounds: v.Cells[1].Rounds})
		}
	}
	for _, p := range r.Pictures() {
		names := map[string]float64{}
		dec := xml.NewDecoder(strings.NewReader(p.draw()))
		var at float64
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			switch tok := tok.(type) {
			case xml.StartElement:
				at = 0
				for _, a := range tok.Attr {
					if tok.Name.Local == "text" && a.Name.Local == "y" {
						if at, err = strconv.ParseFloat(a.Value, 64); err != nil {
							t.Fatal(err)
						}
					}
				}
			case xml.CharData:
				name := string(tok)
				if _, err := choose("peer", name, peers, func(p *peer) string { return p.name }); at == 0 || err != nil || strings.TrimSpace(name) == "" {
					continue
				}
				for other, y := range names {
					if name == other || at-y < labelGap-1 && y-at < labelGap-1 {
						t.Errorf("%s: %s at %v and %s at %v", p.File, name, at, other, y)
					}
				}
				if at < fieldTop-labelGap || at > fieldBottom+labelGap {
					t.Errorf("%s: %s at %v is beside the field", p.File, name, at)
				}
				names[name] = at
			}
		}
		if len(names) != 8 {
			t.Errorf("%s: the names are %v", p.File, names)
		}
	}
}
