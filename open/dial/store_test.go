// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import "testing"

// A login takes the password of by then; the URL of another store changes nothing.
func TestLatest(t *testing.T) {
	latest := "redis://me:one@h/2"
	u, err := Parse(latest)
	must(t, err)
	s, err := u.Open(&Options{Latest: func() *URL {
		l, err := Parse(latest)
		must(t, err)
		return l
	}})
	must(t, err)
	defer s.Close()
	login := s.Servers[0].Client.Options().CredentialsProviderContext
	for _, c := range []struct{ url, password string }{
		{"redis://me:one@h/2", "one"}, {"redis://me:two@h/2?prefix=x", "two"}, {"redis://me:three@other/2", "one"}, {"zk://me:three@h/2", "one"},
	} {
		latest = c.url
		if _, password, err := login(t.Context()); err != nil || password != c.password {
			t.Errorf("after %s the password is %q (%v), want %q", c.url, password, err, c.password)
		}
	}
}
