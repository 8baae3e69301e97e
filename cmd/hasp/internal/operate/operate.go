// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package operate has the operator's commands: hasp break, doctor, init and verify.
package operate

import (
	_ "embed"

	"github.com/spf13/cobra"
)

// Commands are those that change a store, or examine it.
func Commands() []*cobra.Command {
	return []*cobra.Command{newBreak(), newDoctor(), newInit(), newVerify(), newWorker()}
}

// What --help and the manual pages say is in the folder help.
var (
	//go:embed help/break.txt
	breakLong string
	//go:embed help/doctor.txt
	doctorLong string
	//go:embed help/verify.txt
	verifyLong string
)
