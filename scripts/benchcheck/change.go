// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// gated are the units whose growth is judged; benchstat shows all units.
var gated = map[string]bool{"sec/op": true, "allocs/op": true}

// change is benchstat's result for one benchmark in one unit.
type change struct {
	pkg, name, unit string
	base, head      float64 // medians
	significant     bool    // p < 0.05
	p               string  // such as "p=0.002 n=10"
}

func (c change) worse() bool {
	return gated[c.unit] && c.significant && c.head > c.base*(1+threshold/100.0)
}

func (c change) String() string {
	grew := "from nothing"
	if c.base > 0 {
		grew = fmt.Sprintf("%+.0f %%", 100*(c.head/c.base-1))
	}
	return fmt.Sprintf("%s %s: %s %s (%s)", c.pkg, c.name, c.unit, grew, c.p)
}

// read reads benchstat's tables as CSV: for each unit of a package a line of
// headings whose first is empty and whose second is the unit, and a line a
// benchmark. Benchmarks of one side only are left out.
func read(table []byte) (changes []change, err error) {
	r := csv.NewReader(bytes.NewReader(table))
	r.FieldsPerRecord = -1
	pkg, unit := "", ""
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return changes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the table of benchstat: %w", err)
		}
		switch {
		case len(row) == 1:
			if name, ok := strings.CutPrefix(row[0], "pkg: "); ok {
				pkg = name
			}
		case len(row) == 7 && row[0] == "" && row[5] == "vs base":
			unit = row[1]
		case len(row) == 7 && row[0] != "geomean" && row[1] != "" && row[3] != "" && row[6] != "":
			c := change{pkg: pkg, name: row[0], unit: unit, significant: row[5] != "~", p: row[6]}
			if c.base, err = strconv.ParseFloat(row[1], 64); err == nil {
				c.head, err = strconv.ParseFloat(row[3], 64)
			}
			if err != nil {
				return nil, fmt.Errorf("the table of benchstat, %q: %w", row, err)
			}
			changes = append(changes, c)
		}
	}
}
