// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package people

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hasplock/hasp"
)

// A store may hold any time: one that JSON cannot carry is left out, and nothing else is lost.
func TestHostileTimes(t *testing.T) {
	for _, year := range []int{-1, 10000, 292277026596} {
		i := hasp.Info{Key: "k", Held: true, Holder: hasp.Holder{Owner: "o", Since: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)}}
		i.Queue = []hasp.Holder{i.Holder}
		if text, err := json.Marshal(ToKeyJSON(i)); err != nil {
			t.Errorf("year %d: %s, %v", year, text, err)
		}
	}
}
