// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

const agentLong = `Hold locks for other programs, in any language. Each program is connected by a pipe
or a socket, and holds its locks for as long as that is open: when the program ends,
however it ends, they are free within milliseconds, and the next holder is told that
they were abandoned. One agent has one connection to the store for all of them.

The protocol is JSON-RPC 2.0, one object a line: docs/protocol.md.

With --listen the socket is for this user alone, unless --group is given. A program
that is stopped and not ended keeps its locks: --max-hold bounds that.

On SIGTERM the agent tells its clients, grants nothing more, and ends when they have,
or after --grace; what they still hold is abandoned.`

const agentExample = `  hasp agent --stdio                                  a program starts it, and speaks to it
  hasp agent --listen unix:$XDG_RUNTIME_DIR/hasp.sock
  hasp agent --store redis://localhost --listen unix:/run/hasp/agent.sock --group app`
