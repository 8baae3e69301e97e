// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import _ "embed"

// What --help and the manual pages say is in the folder help.
var (
	//go:embed help/doctor.txt
	doctorLong string
	//go:embed help/verify.txt
	verifyLong string
)
