// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"os"
	"strings"
)

// isMountPoint says whether something is mounted at a path itself. A file that is
// bound to another path of the same file system looks like any other but for this.
func isMountPoint(path string) (bool, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	point := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == point {
			return true, nil
		}
	}
	return false, nil
}
