// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/dashboard"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

// serveOptions are the flags of hasp serve.
type serveOptions struct {
	store      base.StoreFlag
	listen     string
	hosts      []string
	tokens     string
	cert, key  string
	clientCA   string
	breakers   []string
	allowBreak bool
	audit      base.AuditFlag
	diagnose   Diagnose
}

// Diagnose examines a store, as hasp doctor does.
type Diagnose func(ctx context.Context, l *base.Locks) ([]dashboard.Finding, error)

func newServe(d Diagnose) *cobra.Command {
	o := &serveOptions{diagnose: d}
	cmd := &cobra.Command{
		Use:     "serve [PREFIX]",
		Short:   "Show the locks in a browser, and to programs",
		Long:    serveLong,
		Example: serveExample,
		Args:    base.AtMost(1, "PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return serve(cmd, o, strings.Join(args, ""))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8390", "the `ADDRESS` to listen on; with port 0, any port")
	f.StringArrayVar(&o.hosts, "host", nil, "a `NAME` by which browsers ask for it, beside localhost and IP addresses; may be repeated")
	f.StringVar(&o.tokens, "tokens", "", "a `FILE` of tokens, a line each: read NAME TOKEN, or break NAME TOKEN; without it what HASP_SERVE_TOKENS has in it")
	f.StringVar(&o.cert, "tls-cert", "", "a `FILE` with the certificate of this server and those above it, in PEM form")
	f.StringVar(&o.key, "tls-key", "", "a `FILE` with its key")
	f.StringVar(&o.clientCA, "client-ca", "", "a `FILE` with the authorities of client certificates, whose owners may look")
	f.StringArrayVar(&o.breakers, "break-subject", nil, "the common name or whole `SUBJECT` of a client certificate whose owner may break; may be repeated")
	f.BoolVar(&o.allowBreak, "allow-break", false, "everybody on this machine may break locks; only without tokens and certificates")
	o.audit.Add(cmd, "record who broke what, and why")
	o.store.Add(cmd)
	return cmd
}

func serve(cmd *cobra.Command, o *serveOptions, prefix string) error {
	c, err := o.credentials()
	if err != nil {
		return err
	}
	l, err := o.store.Open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Leave(true)
	log, err := o.audit.Open()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return &base.Exit{Code: base.ExitConfig, Verdict: "misconfigured", Message: fmt.Sprintf("--listen: %v", err)}
	}
	scheme := "http"
	if c.pair != nil {
		scheme, listener = "https", tls.NewListener(listener, c.tls())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // before it says that it serves
	defer stop()
	ctx, hungUp := context.WithCancel(ctx)
	defer hungUp()
	c.onHangup(ctx, hungUp)
	base.Note("the locks of %s are at %s://%s/", l.URL, scheme, listener.Addr())
	return serveUntilSignal(ctx, stop, listener, c.closing(dashboard.New(l.Client, &dashboard.Options{
		Title: l.URL.String(), Prefix: prefix, Identify: c.identify, Hosts: o.hosts, Audit: recordOf(l, log), Leaks: leaksOf(l, o.store, prefix),
		Doctor:  func(ctx context.Context) ([]dashboard.Finding, error) { return o.diagnose(ctx, l) },
		Explain: func(err error) string { return base.Trouble(l.URL, err).Message },
	})))
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
		return base.Failed("the server ended: %v", err)
	case <-ctx.Done():
	}
	stop() // a second Ctrl-C ends it at once
	limited, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := server.Shutdown(limited); err != nil {
		return base.Failed("requests were under way for more than %v, and were ended", stopLimit)
	}
	return nil
}

// noteWriter passes on what the server says of connections, which strangers choose.
type noteWriter struct{}

func (noteWriter) Write(p []byte) (int, error) {
	base.Note("%s", plain.Line(strings.TrimSuffix(string(p), "\n")))
	return len(p), nil
}

// recordOf returns what records the breaks of the page, and tells of them on standard
// error. What it cannot record the page does not do.
func recordOf(l *base.Locks, log *audit.Log) func(dashboard.Record) error {
	by := audit.Self()
	return func(p dashboard.Record) error {
		r := audit.Record{ID: p.ID, Event: audit.Break, Via: "hasp serve", By: by, Store: l.URL.String(), Key: p.Key, Owner: p.Owner, Fence: p.Fence, Reason: p.Reason}
		r.By.User = p.Actor
		switch p.Outcome {
		case "attempt":
			r.Outcome = audit.Begun
		case "broken":
			r.Outcome = audit.Done
		case "not held":
			r.Outcome = audit.NotHeld
		case "denied":
			r.Outcome = audit.Denied
		default:
			r.Outcome, r.Error = audit.Unknown, p.Outcome
		}
		base.Note("%s of %s by %s, owner %s, reason %q: %s", p.Action, base.Quote(p.Key), plain.Line(p.Actor), plain.Line(p.Owner), p.Reason, plain.Line(p.Outcome))
		return log.Write(r)
	}
}
