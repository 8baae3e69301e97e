// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package look has the commands that show locks: hasp ls, top, show, leaks and serve.
package look

import (
	_ "embed"

	"github.com/spf13/cobra"
)

// Commands are those that show locks. diagnose is hasp doctor, for the page of hasp serve.
func Commands(diagnose Diagnose) []*cobra.Command {
	return []*cobra.Command{newLs(), newTop(), newShow(), newLeaks(), newServe(diagnose)}
}

// What --help and the manual pages say is in the folder help.
var (
	//go:embed help/serve.txt
	serveLong string
	//go:embed help/leaks.txt
	leaksLong string
	//go:embed help/top.txt
	topLong string
)

const serveExample = `  hasp serve                                   http://127.0.0.1:8390/, to look only
  ssh -t -L 8390:127.0.0.1:8390 HOST hasp serve on HOST, looked at from here, at the same address
  hasp serve --allow-break --audit breaks.log orders/
  (umask 077; echo "break alice $(openssl rand -hex 32)" >tokens)
  hasp serve --listen :8390 --tokens tokens --tls-cert cert.pem --tls-key key.pem --host locks.example.com
  curl -H "Authorization: Bearer $TOKEN" https://locks.example.com:8390/api/v1/locks?state=waited`
