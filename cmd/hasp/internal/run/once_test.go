// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"
)

func TestOccurrence(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	midnight := time.Date(2026, 10, 25, 0, 0, 0, 0, berlin) // the clocks go back on that day
	for _, behind := range []time.Duration{-5 * time.Second, 0, 5 * time.Second} {
		for at, want := range map[time.Duration]map[string]string{
			0:              {"@day": "2026-10-25+02:00", "@hour": "2026-10-24T22Z"},
			3 * time.Hour:  {"@day": "2026-10-25+02:00", "@hour": "2026-10-25T01Z"}, // 02:00 for the second time
			24 * time.Hour: {"@day": "2026-10-25+02:00", "@hour": "2026-10-25T22Z"},
			25 * time.Hour: {"@day": "2026-10-26+01:00", "@hour": "2026-10-25T23Z"},
		} {
			for once, want := range want {
				if got, err := occurrence(once, midnight.Add(at+behind)); got != want || err != nil {
					t.Errorf("%s at %v is %q, %v; want %q", once, midnight.Add(at+behind), got, err, want)
				}
			}
		}
	}
	if got, err := occurrence("@day", time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)); got != "2026-01-02Z" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	santiago, err := time.LoadLocation("America/Santiago")
	if err != nil {
		t.Skip(err)
	}
	for at, want := range map[time.Time]string{ // a day without a midnight
		time.Date(2026, 9, 5, 12, 0, 0, 0, santiago): "2026-09-05-04:00",
		time.Date(2026, 9, 6, 1, 0, 0, 0, santiago):  "2026-09-06-04:00",
		time.Date(2026, 9, 6, 12, 0, 0, 0, santiago): "2026-09-06-04:00",
		time.Date(2026, 9, 7, 12, 0, 0, 0, santiago): "2026-09-07-03:00",
	} {
		if got, err := occurrence("@day", at); got != want || err != nil {
			t.Errorf("@day at %v is %q, %v; want %q", at, got, err, want)
		}
	}
	for _, bad := range []string{"", "@", "@week"} {
		if got, err := occurrence(bad, midnight); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
	if got, err := occurrence("2026\x1b[2J", midnight); got != "2026\x1b[2J" || err != nil { // any other text is itself
		t.Errorf("%q, %v", got, err)
	}
}
