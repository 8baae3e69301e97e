// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/plain"
	"github.com/hasplock/hasp/dashboard"
	"github.com/spf13/cobra"
)

// serveOptions are the flags of hasp serve.
type serveOptions struct {
	store      storeFlag
	listen     string
	hosts      []string
	tokens     string
	cert, key  string
	clientCA   string
	breakers   []string
	allowBreak bool
	audit      auditFlag
}

func newServe() *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:     "serve [PREFIX]",
		Short:   "Show the locks in a browser, and to programs",
		Long:    serveLong,
		Example: serveExample,
		Args:    atMost(1, "PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			return serve(cmd, o, prefix)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8390", "the `ADDRESS` to listen on; with port 0, any port")
	f.StringArrayVar(&o.hosts, "host", nil, "a `NAME` by which browsers ask for it, beside localhost and IP addresses; may be repeated")
	f.StringVar(&o.tokens, "tokens", "", "a `FILE` of tokens, each a line: read NAME TOKEN, or break NAME TOKEN; without it what HASP_SERVE_TOKENS has in it")
	f.StringVar(&o.cert, "tls-cert", "", "a `FILE` with the certificate of this server, in PEM form")
	f.StringVar(&o.key, "tls-key", "", "a `FILE` with its key")
	f.StringVar(&o.clientCA, "client-ca", "", "a `FILE` with the authorities of client certificates, whose owners may look")
	f.StringArrayVar(&o.breakers, "break-subject", nil, "the common name or whole `SUBJECT` of a client certificate whose owner may break; may be repeated")
	f.BoolVar(&o.allowBreak, "allow-break", false, "everybody on this machine may break locks; only without tokens and certificates")
	o.audit.add(cmd, "record each break")
	o.store.add(cmd)
	return cmd
}

func serve(cmd *cobra.Command, o *serveOptions, prefix string) error {
	identify, err := o.identify()
	if err != nil {
		return err
	}
	conf, err := o.tls()
	if err != nil {
		return err
	}
	l, err := o.store.open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.leave(true)
	log, err := o.audit.open()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return &exit{code: exitConfig, verdict: "misconfigured", message: fmt.Sprintf("--listen: %v", err)}
	}
	scheme := "http"
	if conf != nil {
		scheme, listener = "https", tls.NewListener(listener, conf)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // before anybody knows that it serves
	defer stop()
	note("the locks of %s are at %s://%s/", l.url, scheme, listener.Addr())
	return serveUntilSignal(ctx, stop, listener, dashboard.New(l.Client, &dashboard.Options{
		Title: l.url.String(), Prefix: prefix, Identify: identify, Hosts: o.hosts, Audit: l.recordOfPage(log), Doctor: l.diagnose, Leaks: l.leaksOf(o.store, prefix),
	}))
}

// limits of a server that strangers may reach.
const (
	headerLimit = 10 * time.Second // to read a header
	bodyLimit   = 20 * time.Second // to read a request
	idleLimit   = 2 * time.Minute  // between two requests of a connection
	headerBytes = 32 << 10
	stopLimit   = 10 * time.Second // for requests that are under way when it is to stop
)

// serveUntilSignal serves until a signal ends ctx; stop leaves the next one to the system.
func serveUntilSignal(ctx context.Context, stop func(), listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerLimit, ReadTimeout: bodyLimit, IdleTimeout: idleLimit, MaxHeaderBytes: headerBytes,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends the live views, not a break
		ErrorLog:    log.New(noteWriter{}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return &exit{code: exitFailed, verdict: "failed", message: fmt.Sprintf("the server ended: %v", err)}
	case <-ctx.Done():
	}
	stop() // a second Ctrl-C ends it at once
	limited, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := server.Shutdown(limited); err != nil {
		return &exit{code: exitFailed, verdict: "failed", message: fmt.Sprintf("requests were under way for more than %v, and were ended", stopLimit)}
	}
	return nil
}

// noteWriter passes on what the server says of connections, which strangers choose.
type noteWriter struct{}

func (noteWriter) Write(p []byte) (int, error) {
	note("%s", plain.Line(strings.TrimSuffix(string(p), "\n")))
	return len(p), nil
}

// identify says who may do what. Whatever leaves this machine needs a token or a certificate.
func (o *serveOptions) identify() (func(*http.Request) dashboard.Identity, error) {
	tokens, err := o.readTokens()
	if err != nil {
		return nil, err
	}
	if len(o.breakers) > 0 && o.clientCA == "" {
		return nil, usage("--break-subject is about client certificates: give --client-ca as well")
	}
	var ways []func(*http.Request) dashboard.Identity
	if len(tokens) > 0 {
		byToken, err := dashboard.Tokens(tokens...)
		if err != nil {
			return nil, badConfig(err)
		}
		ways = append(ways, byToken)
	}
	if o.clientCA != "" {
		ways = append(ways, dashboard.Certificates(o.breakers...))
	}
	here, err := loopback(o.listen)
	if err != nil {
		return nil, usage("--listen: %v", err)
	}
	switch {
	case len(ways) > 0 && o.allowBreak:
		return nil, usage("--allow-break is for everybody on this machine: with tokens or certificates, those say who may break")
	case len(ways) > 0:
		if !here && o.cert == "" {
			note("warning: without --tls-cert, tokens and keys cross the network as they are; it should be behind a server that has TLS")
		}
		return dashboard.FirstOf(ways...), nil
	case !here:
		return nil, usage("--listen %s can be reached from other machines: give --tokens FILE, or --client-ca FILE with --tls-cert and --tls-key", o.listen)
	}
	return dashboard.Local(o.allowBreak), nil
}

// loopback says whether only this machine reaches an address. A name may mean anything.
func loopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("%s is no address: HOST:PORT", quote(address))
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}

// envTokens has tokens in it, as the file of --tokens.
const envTokens = "HASP_SERVE_TOKENS"

// readTokens returns the tokens of the file, or of the environment. No message has one in it.
func (o *serveOptions) readTokens() ([]dashboard.Token, error) {
	where, text := envTokens, os.Getenv(envTokens)
	if o.tokens != "" {
		b, err := os.ReadFile(o.tokens)
		if err != nil {
			return nil, badConfig(fmt.Errorf("--tokens: %w", err))
		}
		where, text = o.tokens, string(b)
		if info, err := os.Stat(o.tokens); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
			note("warning: everybody on this machine can read the tokens in %s: chmod 600", o.tokens)
		}
	}
	var tokens []dashboard.Token
	n := 0
	for line := range strings.Lines(text) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 3 || words[0] != "read" && words[0] != "break" {
			return nil, badConfig(fmt.Errorf("line %d of %s is no token: read NAME TOKEN, or break NAME TOKEN", n, where))
		}
		tokens = append(tokens, dashboard.Token{Name: words[1], Secret: words[2], Break: words[0] == "break"})
	}
	if o.tokens != "" && len(tokens) == 0 {
		return nil, badConfig(fmt.Errorf("there is no token in %s", o.tokens))
	}
	return tokens, nil
}

// tls returns how connections are protected; nil when they are not.
func (o *serveOptions) tls() (*tls.Config, error) {
	if o.cert == "" && o.key == "" && o.clientCA == "" {
		return nil, nil
	}
	if o.cert == "" || o.key == "" {
		return nil, usage("--tls-cert, --tls-key and --client-ca need one another: a certificate has a key, and client certificates need TLS")
	}
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, badConfig(fmt.Errorf("--tls-cert, --tls-key: %w", err))
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if o.clientCA == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, badConfig(fmt.Errorf("--client-ca: %w", err))
	}
	conf.ClientCAs = x509.NewCertPool()
	if !conf.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, badConfig(fmt.Errorf("--client-ca: there is no certificate in %s", o.clientCA))
	}
	// Those who have none may have a token; and whether it lives, anybody may ask.
	conf.ClientAuth = tls.VerifyClientCertIfGiven
	return conf, nil
}

// diagnose is hasp doctor, for the page.
func (l *locks) diagnose(ctx context.Context) ([]dashboard.Finding, error) {
	x := &examination{ctx: ctx, l: l, second: l.url.Open}
	end := x.all()
	var found []dashboard.Finding
	for _, f := range x.found {
		found = append(found, dashboard.Finding{Level: f.Level, Node: f.Node, Check: f.Check, Text: f.Text})
	}
	if end != nil && end.message != "" {
		return found, errors.New(end.message)
	}
	return found, nil
}
