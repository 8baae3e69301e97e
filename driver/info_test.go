// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A holder is named by what is best known of it.
func TestHolderString(t *testing.T) {
	label := driver.Label{Host: "web-3", PID: 4121}.Encode()
	for _, c := range []struct {
		h    driver.Holder
		want string
	}{
		{driver.Holder{Owner: "O", Label: label}, "web-3 (pid 4121)"},
		{driver.Holder{Owner: "O", Label: driver.Label{Host: "web-3"}.Encode()}, "O"},
		{driver.Holder{Owner: "O", Label: driver.Label{PID: 4121}.Encode()}, "O"},
		{driver.Holder{Owner: "O", Label: "text"}, "O"},
		{driver.Holder{Owner: "O"}, "O"},
		{driver.Holder{}, "someone"},
		{driver.Holder{Foreign: true}, "a foreign client"},
		{driver.Holder{Foreign: true, Label: "text"}, `a foreign client (value "text")`},
		{driver.Holder{Foreign: true, Label: strings.Repeat("v", 64)}, `a foreign client (value "` + strings.Repeat("v", 64) + `")`},
		{driver.Holder{Foreign: true, Label: strings.Repeat("v", 65)}, `a foreign client (value "` + strings.Repeat("v", 64) + `")`},
		{driver.Holder{Foreign: true, Label: strings.Repeat("\x80", 65)}, `a foreign client (value "")`},
		{driver.Holder{Foreign: true, Label: label, Owner: "O"}, "a foreign client (value \"{\\\"host\\\":\\\"web-3\\\",\\\"pid\\\":4121}\")"},
	} {
		if got := c.h.String(); got != c.want {
			t.Errorf("%+v: %s, must be %s", c.h, got, c.want)
		}
	}
}

// Since is the store's, where it knows it.
func TestDescribe(t *testing.T) {
	own, stores := time.Unix(1000, 0).UTC(), time.Unix(2000, 0).UTC()
	label := driver.Label{Host: "web-3", Since: own}.Encode()
	for _, c := range []struct{ since, want time.Time }{{time.Time{}, own}, {stores, stores}} {
		if l := (driver.Holder{Label: label, Since: c.since}).Describe(); !l.Since.Equal(c.want) || l.Host != "web-3" {
			t.Errorf("with %v: %+v", c.since, l)
		}
	}
}
