// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/dashboard"
)

// maxOnPage is how many leaks the page shows.
const maxOnPage = 1000

// leaksOf is hasp leaks, for the page: of a large store it shows what was found until the page would wait no longer.
func leaksOf(l *base.Locks, store base.StoreFlag, prefix string) func(context.Context) ([]dashboard.Leak, error) {
	return func(ctx context.Context) ([]dashboard.Leak, error) {
		var remarks []string
		remark := func(format string, args ...any) { remarks = append(remarks, fmt.Sprintf(format, args...)) }
		c := &leaksCommand{store: store, prefix: prefix, remark: remark, l: l}
		found, err := c.find(ctx)
		end := (*base.Exit)(nil)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			remark("the store is too large, or too slow, to be searched while a page loads: there may be more, and hasp leaks finds it")
		case errors.As(err, &end):
			remark("%s", end.Message)
		case err != nil:
			remark("%v", err)
		}
		if len(found) > maxOnPage {
			remark("%d leaks were found: these are the first %d, and hasp leaks shows all", len(found), maxOnPage)
			found = found[:maxOnPage]
		}
		all := make([]dashboard.Leak, len(found))
		for i, f := range found {
			all[i] = dashboard.Leak{Key: f.key, What: f.what + ": " + f.String()}
			if f.what != whatLive {
				all[i].Fix = c.command(f)
			}
		}
		if len(remarks) > 0 {
			return all, errors.New(strings.Join(remarks, "; "))
		}
		return all, nil
	}
}
