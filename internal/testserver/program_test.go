// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestPerformEndsWhatWasStarted(t *testing.T) {
	fault := errors.New("a fault")
	for _, c := range []struct {
		name   string
		f      func(p *Program) int
		want   int
		fault  error
		cancel bool
	}{
		{"returned", func(*Program) int { return 7 }, 7, nil, false},
		{"failed", func(p *Program) int { p.Errorf("%w", fault); return 7 }, 7, fault, false},
		{"ended early", func(p *Program) int { p.Must(fault); return 7 }, 0, fault, false},
		{"interrupted", func(p *Program) int { select {} }, 0, context.Canceled, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var ended []string
			got, err := Perform(ctx, func(p *Program) int {
				p.Cleanup(func() { ended = append(ended, "first") })
				p.Cleanup(func() { ended = append(ended, "second") })
				if c.cancel {
					cancel()
				}
				return c.f(p)
			})
			if got != c.want || !errors.Is(err, c.fault) {
				t.Errorf("got %d, %v; want %d, %v", got, err, c.want, c.fault)
			}
			if want := []string{"second", "first"}; !slices.Equal(ended, want) {
				t.Errorf("cleaned up %q, want %q", ended, want)
			}
		})
	}
}
