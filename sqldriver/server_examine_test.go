// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"slices"
	"testing"

	"github.com/hasplock/hasp/driver"
)

func TestSettingsAreJudged(t *testing.T) {
	for _, c := range []struct {
		judge  func([4]string) []driver.Finding
		values [4]string
		want   []driver.Level // beside the version's
	}{
		{judgePostgres, [4]string{"15.1", "on", "false", "0"}, nil},
		{judgePostgres, [4]string{"15.1", "off", "false", "0"}, []driver.Level{driver.LevelWarn}},
		{judgePostgres, [4]string{"15.1", "on", "true", "0"}, []driver.Level{driver.LevelFail}},
		{judgePostgres, [4]string{"15.1", "on", "false", "2"}, []driver.Level{driver.LevelWarn}},
		{judgeMySQL, [4]string{"10.11", "1", "0", "1"}, nil},
		{judgeMySQL, [4]string{"8.0", "1", "OFF", "1"}, nil},
		{judgeMySQL, [4]string{"10.11", "2", "0", "1"}, []driver.Level{driver.LevelWarn}},
		{judgeMySQL, [4]string{"10.11", "1", "1", "1"}, []driver.Level{driver.LevelFail}},
	} {
		var got []driver.Level
		for _, f := range c.judge(c.values)[1:] {
			got = append(got, f.Level)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.values, got, c.want)
		}
	}
}
