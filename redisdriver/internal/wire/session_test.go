// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "testing"

// A subscription is checked often only while somebody waits for its messages.
func TestChecksOfASubscription(t *testing.T) {
	idle := true
	in := NewInbox(t.Context(), InboxOptions{Idle: func() bool { return idle }})
	if got := in.quiet(); got != unusedTime {
		t.Errorf("while nobody waits it is checked after %v", got)
	}
	idle = false
	if got := in.quiet(); got != quietTime {
		t.Errorf("while somebody waits it is checked after %v", got)
	}
}
