// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"strings"
	"testing"
)

func TestTokensThatAreRefused(t *testing.T) {
	const secret = "0123456789abcdef"
	for want, tokens := range map[string][]Token{
		"there are no tokens": nil,
		"no name":             {{Secret: secret}},
		"too short":           {{Name: "a", Secret: "0123456789abcde"}},
		"the same as another": {{Name: "a", Secret: secret}, {Name: "b", Secret: secret, Break: true}},
	} {
		_, err := Tokens(tokens...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "012345") {
			t.Errorf("of %d tokens: %v, want %s", len(tokens), err, want)
		}
	}
}

func TestCertificates(t *testing.T) {
	verified := func(subject pkix.Name) *http.Request {
		r := request("GET", "/", "")
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: subject}}}}
		return r
	}
	ops := pkix.Name{CommonName: "alice", Organization: []string{"ops"}}
	for name, c := range map[string]struct {
		r    *http.Request
		by   []string
		want Identity
	}{
		"a certificate looks":                {verified(ops), nil, Identity{"CN=alice,O=ops", true, false}},
		"its common name breaks":             {verified(ops), []string{"alice"}, Identity{"CN=alice,O=ops", true, true}},
		"its subject breaks":                 {verified(ops), []string{"bob", "CN=alice,O=ops"}, Identity{"CN=alice,O=ops", true, true}},
		"another's name":                     {verified(ops), []string{"alic"}, Identity{"CN=alice,O=ops", true, false}},
		"no name is nobody's":                {verified(pkix.Name{}), []string{""}, Identity{"", true, false}},
		"without TLS":                        {request("GET", "/", ""), []string{"alice"}, Identity{}},
		"a certificate that nobody verified": {func() *http.Request { r := verified(ops); r.TLS.VerifiedChains = nil; return r }(), []string{"alice"}, Identity{}},
	} {
		if got := Certificates(c.by...)(c.r); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	tokens, err := Tokens(Token{Name: "t", Secret: "0123456789abcdef"})
	must(t, err)
	both := FirstOf(tokens, Certificates())
	if got := both(verified(ops)); got.Name != "CN=alice,O=ops" {
		t.Errorf("a certificate without a token is %+v", got)
	}
	if got := both(request("GET", "/", "", "Authorization", "Bearer 0123456789abcdef")); got.Name != "t" {
		t.Errorf("a token without a certificate is %+v", got)
	}
	if got := both(request("GET", "/", "")); got.Read {
		t.Errorf("nobody is %+v", got)
	}
}
