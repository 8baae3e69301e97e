// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/hasplock/hasp/internal/process"
	"github.com/spf13/cobra"
)

// The exit codes of a hook are those of its host.
const (
	hookFailed  = 1 // is shown, and the tool is used
	hookRefuses = 2 // the tool is not used, and the agent reads why
)

// maxEvent bounds what a host tells of one use of a tool, in bytes: it has the text of the file.
const maxEvent = 64 << 20

func newHook() *cobra.Command {
	store, require := &base.StoreFlag{}, false
	cmd := &cobra.Command{
		Use:     "hook [--require]",
		Short:   "Refuse the edit of a file that another holds (PreToolUse)",
		Long:    hookLong,
		Example: hookExample,
		Args:    base.Exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), base.AskLimit)
			defer cancel()
			judged := make(chan *base.Exit, 1)
			go func() { judged <- judge(ctx, cmd, store, os.Stdin, require) }()
			end := &base.Exit{Code: hookFailed, Message: "nothing was known in 5 s"} // a file system may hang, too
			select {
			case end = <-judged:
			case <-ctx.Done():
			}
			if end == nil {
				return nil
			}
			if end.Code != hookRefuses {
				end.Message = "whether the file may be edited is not known: " + end.Message
				if end.Code = hookFailed; require { // its user wants no edit without a lock
					end.Code = hookRefuses
				}
			}
			return end
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&require, "require", false, "also refuse the edit of a file that has no holder, or of which nothing can be known")
	store.Add(cmd)
	return cmd
}

// event is what a host tells of the use of a tool.
type event struct {
	Dir   string `json:"cwd"`
	Input struct {
		File     string `json:"file_path"`
		Notebook string `json:"notebook_path"`
		Path     string `json:"path"`
	} `json:"tool_input"`
}

// judge says why a tool may not be used; nil: it may.
func judge(ctx context.Context, cmd *cobra.Command, store *base.StoreFlag, in io.Reader, require bool) *base.Exit {
	var e event
	if err := json.NewDecoder(io.LimitReader(in, maxEvent)).Decode(&e); err != nil {
		return base.Usage("the event on standard input is not as expected: %s", plain.Error(err))
	}
	path := cmp.Or(e.Input.File, e.Input.Notebook, e.Input.Path)
	if path == "" { // it edits no file
		return nil
	}
	key, err := fileKey(e.Dir, path)
	if err != nil {
		return base.Failed("%s", plain.Error(err))
	}
	l, err := store.Open(cmd, nil)
	if err != nil {
		return exitOf(err)
	}
	defer l.Leave(true)
	info, err := l.Inspect(ctx, key)
	if err != nil {
		return exitOf(err)
	}
	for _, h := range info.Holders {
		if info.Held && !ours(h.Holder) {
			return &base.Exit{Code: hookRefuses, Message: base.Quote(path) + " is another's: " + base.Quote(key) + " " + base.Obstacle(h.Holder, h.Left, 0) +
				". Do not edit it another way: wait with the tool lock of hasp, or do something else first"}
		}
	}
	if require && !info.Held {
		return &base.Exit{Code: hookRefuses, Message: "the file " + base.Quote(path) + " has no holder: call the tool lock of hasp with it in paths, edit it then, and call unlock when it is done"}
	}
	return nil
}

func exitOf(err error) *base.Exit {
	if end, ok := err.(*base.Exit); ok { //nolint:errorlint // which is never wrapped
		return end
	}
	return base.Failed("%s", plain.Error(err))
}

// ours says whether a holder is a process that this one comes from.
func ours(h hasp.Holder) bool {
	l := h.Describe()
	host, err := os.Hostname()
	return err == nil && !h.Foreign && l.Host == host && slices.Contains(around(), l.PID) && process.Of(l.PID) == l.Process
}
