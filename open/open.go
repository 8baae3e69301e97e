// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"errors"
	"fmt"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/open/dial"
)

// Client opens a client of the store that a URL names. Its Close closes the connections, too.
func Client(ctx context.Context, url string, o *hasp.Options) (*hasp.Client, error) {
	if o == nil {
		o = &hasp.Options{}
	}
	d, err := opened(ctx, url, &dial.Options{StateDir: o.StateDir, StateFailed: o.StateFailed})
	if err != nil {
		return nil, err
	}
	c, err := hasp.New(d, o)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return c, nil
}

// Driver opens the engine of the store that a URL names, for hasp.New. Its Close closes the connections, too; a second Close does
// nothing, and returns what the first did. The waits for servers that restarted (redlock:, max-ttl=) begin
// anew with each process, unless Client, or hasp.New for a single server, has a StateDir to remember them in.
func Driver(ctx context.Context, url string) (driver.Driver, error) { return opened(ctx, url, nil) }

// opened does not wait longer than the context for a file on a disk that hangs: to parse a URL of PostgreSQL reads files, too.
func opened(ctx context.Context, url string, o *dial.Options) (driver.Driver, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("hasp: open: %w", err)
	}
	type result struct {
		store *dial.Store
		err   error
	}
	done := make(chan result, 1)
	go func() {
		s, err := parsed(url, o)
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return r.store.Driver, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				_ = r.store.Close() // nothing was connected
			}
		}()
		return nil, fmt.Errorf("hasp: open: a file that the store's URL names, or the environment, was not read in time: %w", context.Cause(ctx))
	}
}

func parsed(url string, o *dial.Options) (*dial.Store, error) {
	u, err := dial.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("hasp: open: %w", err)
	}
	s, err := u.Open(o)
	if err != nil {
		return nil, fmt.Errorf("hasp: open %s: %w", u, err)
	}
	return s, nil
}
