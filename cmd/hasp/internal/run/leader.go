// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// observeLeader is hasp elect --observe.
func observeLeader(cmd *cobra.Command, o *options, words []string) error {
	if len(words) != 1 || cmd.ArgsLenAtDash() == 1 {
		return base.Usage("--observe runs nothing: hasp elect --observe KEY")
	}
	key := words[0]
	if err := base.CheckKey(key); err != nil {
		return err
	}
	l, err := o.store.Open(cmd, nil)
	if err != nil {
		return err
	}
	ctx, stop := base.UntilSignal()
	defer stop()
	done := make(chan error, 1)
	go func() { done <- follow(ctx, l, key, o.output.Word == "json", base.Stdout) }()
	unread := false
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(base.FlushLimit): // a reader that takes nothing does not keep a signal from ending us
			unread = true
		}
	}
	l.Leave(err != nil || unread)
	if sig, ok := context.Cause(ctx).(base.Signaled); ok && err == nil { //nolint:errorlint // the very cause
		return base.EndedBy(sig.Sig)
	}
	return err
}

// follow writes the leader, now and at each change, until ctx ends. A store that
// is away is asked again.
func follow(ctx context.Context, l *base.Locks, key string, asJSON bool, w io.Writer) error {
	failing, answered := false, false
	for leader, err := range l.Election(key, nil).Leaders(ctx) {
		if err != nil {
			end := base.Trouble(l.URL, err)
			if end.Ends(answered) {
				return end
			}
			if !failing {
				base.Note("%s; asking again", end.Message)
			}
			failing = true
			continue
		}
		failing, answered = false, true
		if err := writeLeader(w, leader, asJSON); err != nil {
			return base.Failed("%v", err)
		}
	}
	return nil
}

// leaderJSON is the leader, for programs. More fields may come.
type leaderJSON struct {
	Time   time.Time          `json:"time"` // when it was seen
	Key    string             `json:"key"`
	Bytes  []byte             `json:"key_base64,omitempty"` // when JSON cannot carry the key as it is
	Leader *people.HolderJSON `json:"leader"`               // null: none
	Fence  uint64             `json:"fence,omitempty"`
}

func writeLeader(w io.Writer, leader hasp.Info, asJSON bool) error {
	now := time.Now()
	if asJSON {
		j := leaderJSON{Time: now, Key: leader.Key, Leader: people.Holding(leader.Holder), Fence: leader.Fence}
		if !utf8.ValidString(leader.Key) {
			j.Bytes = []byte(leader.Key)
		}
		return plain.WriteJSON(w, j)
	}
	text := "nobody leads " + base.Quote(leader.Key)
	if !people.Unnamed(leader.Holder) {
		text = fmt.Sprintf("%s leads %s", people.Name(leader.Holder), base.Quote(leader.Key))
		if leader.Fence > 0 {
			text += fmt.Sprintf(", fence %d", leader.Fence)
		}
	}
	_, err := fmt.Fprintf(w, "%s  %s\n", now.Format("2006-01-02 15:04:05 MST"), plain.Line(text))
	return err
}
