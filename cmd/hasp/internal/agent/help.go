// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

const agentLong = `Hold locks for other programs, in any language. Each program is connected by a pipe
or a socket, and holds its locks for as long as that is open: when the program ends,
however it ends, they are free within milliseconds, and the next holder is told that
they were abandoned. One agent has one connection to the store for all of them.
hasp run --agent is such a program.

The protocol is JSON-RPC 2.0, one object a line: docs/protocol.md.

With --listen the socket is for this user alone, unless --group is given. A program
that is stopped and not ended keeps its locks: --max-hold bounds that.

On SIGTERM the agent tells its clients, grants nothing more, and ends when they have,
or after --grace; what they still hold is abandoned.`

const agentExample = `  hasp agent --stdio                                  a program starts it, and speaks to it
  hasp agent --listen unix:$XDG_RUNTIME_DIR/hasp.sock
  hasp agent --store redis://localhost --listen unix:/run/hasp/agent.sock --group app`

const mcpLong = `Hold locks for an agent that works on files together with others: a server of the
Model Context Protocol on standard input and output, with the tools lock, unlock,
status and locks. The locks are those of the program that started it: when that
ends, however it ends, they are free within milliseconds.

The key of a file is its path in the main worktree of its repository, so that all
worktrees agree. A call of lock waits for 45 s at most and keeps its place in the
queue for two minutes after it; no lock is held for longer than --max-hold.

Name one store for all of them: without --store it is a SQLite file of the user's.`

const mcpExample = `  {"mcpServers": {"hasp": {"command": "hasp", "args": ["mcp"]}}}`

const hookLong = `Refuse an edit of a file that another holds. A coding agent starts it before a tool
is used (PreToolUse), with JSON on standard input: cwd, and tool_input with file_path,
path or notebook_path. It exits with 2, and names the holder of the file and its reason,
or with 0. What the program that started it holds by hasp mcp is its own.

A file without a holder may be edited, unless --require is given. Where nothing can be
known in 5 s, since the store is away, it exits with 1: the agent shows that, and goes
on; with --require the edit is refused.

Where there is no /proc it must be started without a shell in between: exec hasp hook.
What an agent does to files by other means, such as a shell, it does not see.`

const hookExample = `  {"hooks": {"PreToolUse": [{"matcher": "Edit|Write|NotebookEdit",
    "hooks": [{"type": "command", "command": "exec hasp hook --require"}]}]}}`

// What an agent is told of the tools of hasp mcp.
const (
	keySchema = `"paths":{"type":"array","items":{"type":"string"},"description":"files"},` +
		`"keys":{"type":"array","items":{"type":"string"},"description":"names of what is no file"}`
	tools = `{"tools":[
{"name":"lock","description":"Hold files, or other things, so that no one else edits them. Take all that one change needs in one call, before the first edit. It waits for its turn: when it answers 'still waiting', call it again with the same arguments, which keeps the place in the queue.","inputSchema":{"type":"object","properties":{` + keySchema + `,"reason":{"type":"string","description":"what for, in a few words: the others are shown it"},"wait_seconds":{"type":"number","description":"at most 45, which is the default"}}}},
{"name":"unlock","description":"Release what this session holds or waits for; without arguments all. Call it as soon as the change is done.","inputSchema":{"type":"object","properties":{` + keySchema + `}}},
{"name":"status","description":"What this session holds and waits for.","inputSchema":{"type":"object"}},
{"name":"locks","description":"What anybody holds, and why.","inputSchema":{"type":"object","properties":{"prefix":{"type":"string","description":"of the keys"}}}}]}`
)
