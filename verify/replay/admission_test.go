// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/verify/model"
)

// admission makes the client look at the nodes' records, and admit those whose wait
// is over.
func (p *clients) admission(c *client, s model.Step) (leaves string) {
	state := c.d.Nodes(context.Background())[s.Node]
	if s.Act == model.Look || state.Voting {
		return ""
	}
	switch {
	case state.Err != nil && strings.Contains(state.Err.Error(), "make them equal"):
		return "held back: others have another longest lease"
	case state.Err != nil:
		return state.Err.Error()
	case p.w.slow == quick: // the wait is not a hundred times shorter
		p.w.admit(s.Node)
		return ""
	}
	return "held back"
}

// summary describes the result of a call, without its times.
func summary(err error) string {
	var few *quorum.VoteError
	switch {
	case errors.Is(err, hasp.ErrLost):
		return "the lease is lost"
	case errors.As(err, &few):
		return fmt.Sprintf("%d of %d nodes vote", few.Votes, few.Nodes)
	}
	for part, short := range map[string]string{
		"are one server": "one server is listed twice",
	} {
		if strings.Contains(err.Error(), part) {
			return short
		}
	}
	return err.Error()
}
