// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"fmt"

	"github.com/hasplock/hasp/driver"
)

// A holder is safe to print, whatever it wrote.
func ExampleHolder() {
	h := driver.Holder{Owner: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Label: driver.Label{Host: "web-3\x1b[2J", PID: 4121}.Encode()}
	fmt.Println(h)
	fmt.Println(driver.Holder{Foreign: true, Label: "c0ffee"})
	// Output:
	// web-3\x1b[2J (pid 4121)
	// a foreign client (value "c0ffee")
}
