// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/dashboard"
	"github.com/hasplock/hasp/internal/files"
)

// identifier returns the sender of a request, and what it may do.
type identifier = func(*http.Request) dashboard.Identity

// credentials are what hasp serve knows people by, and is known by: files that are read
// again when they change. What it has not is nil.
type credentials struct {
	tokens   *reread[identifier]
	pair     *reread[tls.Certificate]
	clients  *reread[*x509.CertPool]
	identify identifier
}

// credentials reads the files. Whatever leaves this machine needs a token or a certificate.
func (o *serveOptions) credentials() (*credentials, error) {
	c := &credentials{}
	var ways []identifier
	if o.tokens != "" || strings.TrimSpace(os.Getenv(envTokens)) != "" {
		var files []string
		if o.tokens != "" {
			files = []string{o.tokens}
		}
		var err error
		if c.tokens, err = newReread("--tokens "+o.tokens, o.readTokens, files...); err != nil {
			return nil, base.BadConfig(err)
		}
		ways = append(ways, func(r *http.Request) dashboard.Identity { return c.tokens.get()(r) })
	}
	if len(o.breakers) > 0 && o.clientCA == "" {
		return nil, base.Usage("--break-subject is about client certificates: give --client-ca as well")
	}
	here, err := loopback(o.listen)
	if err != nil {
		return nil, base.Usage("--listen: %v", err)
	}
	if err := o.readTLS(c); err != nil {
		return nil, err
	}
	if c.clients != nil {
		known := dashboard.Certificates(o.breakers...)
		ways = append(ways, func(r *http.Request) (nobody dashboard.Identity) {
			if c.distrusts(r) {
				return nobody
			}
			return known(r)
		})
	}
	switch {
	case len(ways) > 0 && o.allowBreak:
		return nil, base.Usage("--allow-break is for everybody on this machine: with tokens or certificates, those say who may break")
	case len(ways) > 0:
		if !here && o.cert == "" {
			base.Note("warning: without --tls-cert, tokens and keys cross the network as they are; it should be behind a server that has TLS")
		}
		c.identify = dashboard.FirstOf(ways...)
		return c, nil
	case !here:
		return nil, base.Usage("--listen %s can be reached from other machines: give --tokens FILE, or --client-ca FILE with --tls-cert and --tls-key", o.listen)
	}
	c.identify = dashboard.Local(o.allowBreak)
	return c, nil
}

// loopback says whether only this machine reaches an address. A name may mean anything.
func loopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("%s is no address: HOST:PORT", base.Quote(address))
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}

// envTokens has tokens in it, as the file of --tokens.
const envTokens = "HASP_SERVE_TOKENS"

// leastToken is the length of the shortest token: that of dashboard.Tokens. A message of
// theirs would have the name in it, which is the token where the two were swapped.
const leastToken = 16

// readTokens reads the tokens of the file, or of the environment. No message has one in it.
func (o *serveOptions) readTokens() (identifier, error) {
	where, text := envTokens, os.Getenv(envTokens)
	if o.tokens != "" {
		b, err := files.Read(o.tokens, files.MaxPEM)
		if err != nil {
			return nil, fmt.Errorf("--tokens: %w", err)
		}
		where, text = o.tokens, string(b)
		if info, err := os.Stat(o.tokens); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
			base.Note("warning: everybody on this machine can read the tokens in %s: chmod 600", o.tokens)
		}
	}
	var tokens []dashboard.Token
	lines := map[string]int{} // where a token is
	n := 0
	for line := range strings.Lines(text) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 3 || words[0] != "read" && words[0] != "break" {
			return nil, fmt.Errorf("line %d of %s is no token: read NAME TOKEN, or break NAME TOKEN", n, where)
		}
		secret := words[2]
		if len(secret) < leastToken {
			return nil, fmt.Errorf("the token in line %d of %s is too short: at least %d characters, for example of openssl rand -hex 32", n, where, leastToken)
		}
		if other := lines[secret]; other > 0 {
			return nil, fmt.Errorf("the token in line %d of %s is the same as that in line %d: nobody could tell who is who", n, where, other)
		}
		lines[secret] = n
		tokens = append(tokens, dashboard.Token{Name: words[1], Secret: secret, Break: words[0] == "break"})
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("there is no token in %s: read NAME TOKEN, or break NAME TOKEN", where)
	}
	return dashboard.Tokens(tokens...)
}

// readTLS reads what protects connections, if anything does.
func (o *serveOptions) readTLS(c *credentials) error {
	if o.cert == "" && o.key == "" && o.clientCA == "" {
		return nil
	}
	if o.cert == "" || o.key == "" {
		return base.Usage("--tls-cert, --tls-key and --client-ca need one another: a certificate has a key, and client certificates need TLS")
	}
	var err error
	what := fmt.Sprintf("--tls-cert %s, --tls-key %s", o.cert, o.key)
	if c.pair, err = newReread(what, func() (tls.Certificate, error) {
		pair, err := files.KeyPair(o.cert, o.key)
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return pair, err
	}, o.cert, o.key); err != nil {
		return base.BadConfig(err)
	}
	if o.clientCA == "" {
		return nil
	}
	if c.clients, err = newReread("--client-ca "+o.clientCA, o.readAuthorities, o.clientCA); err != nil {
		return base.BadConfig(err)
	}
	return nil
}

func (o *serveOptions) readAuthorities() (*x509.CertPool, error) {
	pem, err := files.Read(o.clientCA, files.MaxPEM)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--client-ca: there is no certificate in %s", o.clientCA)
	}
	return pool, nil
}

// tls returns how connections are protected: each as the files are when it comes.
func (c *credentials) tls() *tls.Config {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := &tls.Config{MinVersion: conf.MinVersion, NextProtos: conf.NextProtos, Certificates: []tls.Certificate{c.pair.get()}}
		if c.clients != nil {
			// A client without one may have a token; and any client may ask whether the server lives.
			now.ClientCAs, now.ClientAuth = c.clients.get(), tls.VerifyClientCertIfGiven
		}
		return now, nil
	}
	return conf
}

// distrusts says whether the certificate of a request is good no longer: the authorities
// may have changed since its connection began, or its time is over.
func (c *credentials) distrusts(r *http.Request) bool {
	if c.clients == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, cert := range r.TLS.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: c.clients.get(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err != nil
}

// closing ends the connections of certificates that are good no longer: a browser would
// not show another one before.
func (c *credentials) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.distrusts(r) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// onHangup reads the files again at each SIGHUP until ctx ends. That of a terminal that is
// gone calls end, unless it was to be ignored. Without files the signal does what it always
// does.
func (c *credentials) onHangup(ctx context.Context, end func()) {
	var files []interface{ again() }
	if c.tokens != nil && len(c.tokens.paths) > 0 {
		files = append(files, c.tokens)
	}
	if c.pair != nil {
		files = append(files, c.pair)
	}
	if c.clients != nil {
		files = append(files, c.clients)
	}
	if len(files) == 0 {
		return
	}
	ends := child.HasTerminal() && !signal.Ignored(syscall.SIGHUP)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			if ends && !child.HasTerminal() {
				end()
				return
			}
			for _, f := range files {
				f.again()
			}
		}
	}()
}
