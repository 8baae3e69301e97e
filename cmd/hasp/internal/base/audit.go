// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"os"

	"github.com/hasplock/hasp/internal/audit"
	"github.com/spf13/cobra"
)

// envAudit is --audit for all commands.
const envAudit = "HASP_AUDIT"

// AuditFlag is --audit.
type AuditFlag struct{ To string }

// Add adds the flag; what says what is recorded.
func (f *AuditFlag) Add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.To, "audit", "", what+": `FILE`, or syslog; without it what HASP_AUDIT says")
}

// Open returns the log of what is broken and lost; nil when none is wanted.
func (f *AuditFlag) Open() (*audit.Log, error) {
	log, err := audit.Open(cmp.Or(f.To, os.Getenv(envAudit)))
	if err != nil {
		return nil, BadConfig(err)
	}
	return log, nil
}
