// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import "testing"

// That a sharer may not publish is known as long as the key is shared, and of no other key.
func TestMuteSharerIsRemembered(t *testing.T) {
	w := newWorld(t)
	mute, d := w.as("bob", "-publish"), w.driver(nil)
	queue := ask("k")
	first := ask("k")
	w.grant(mute, first)
	w.wait(d, queue)
	w.release(mute, first) // and learns that it may not publish
	w.release(d, queue)
	for key, by := range map[string]*Driver{"quiet": mute, "loud": d} {
		want := map[*Driver]byte{mute: 'S', d: 's'}[by]
		for i, holder := range []*Driver{by, d, d} {
			w.grant(holder, sharer(key, 5))
			if text := w.admin.Get(w.ctx, d.names(key).grant).Val(); text[58] != want {
				t.Errorf("%s: the grant of number %d is %q, want %c", key, i, text, want)
			}
		}
	}
}
