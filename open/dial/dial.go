// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/hasplock/hasp/internal/files"
)

// tlsLimit bounds the handshake: below the time that a first question may take, so
// that an error says that it was TLS.
const tlsLimit = 2 * time.Second

// plainly connects to a server.
var plainly = (&net.Dialer{Timeout: limit, KeepAlive: 15 * time.Second}).DialContext

// redisDialer returns what connects to a server of Redis, over TLS when config is not nil.
func (s *sights) redisDialer(config *tls.Config) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if config == nil {
			c, err := s.watch(plainly)(ctx, network, addr)
			if err == nil {
				c.(*plainConn).replies = &replies{} //nolint:forcetypeassert // as watch has it
			}
			return c, err
		}
		c, err := s.reach(plainly)(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own := config
		if host, _, err := net.SplitHostPort(addr); err == nil && config.ServerName == "" { // of a server that others named
			own = config.Clone()
			own.ServerName = host
		}
		t := tls.Client(c, own)
		ctx, cancel := context.WithTimeout(ctx, tlsLimit)
		defer cancel()
		if err := t.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, s.shaken(addr, err)
		}
		return s.overTLS(t, addr, &replies{}), nil
	}
}

// overTLS has a connection after its handshake looked at.
func (s *sights) overTLS(c net.Conn, addr string, r *replies) net.Conn {
	s.note(addr, mute, nil)
	return &conn{Conn: c, seen: s, addr: addr, secure: true, replies: r}
}

// shaken notes why a handshake failed.
func (s *sights) shaken(addr string, err error) error {
	err = s.explain(err)
	s.note(addr, unlike, err)
	return err
}

// explanation is an error with what it means. It unwraps to a list, since go-redis
// takes one layer off what fails while a connection is set up.
type explanation struct {
	text string
	err  error
}

func explained(format string, err error, more ...any) error {
	return &explanation{fmt.Errorf(format, append([]any{err}, more...)...).Error(), err}
}

func (e *explanation) Error() string   { return e.text }
func (e *explanation) Unwrap() []error { return []error{e.err} }

// explain says what to do about a failure of TLS.
func (s *sights) explain(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	var alert *net.OpError
	hint := ""
	switch {
	case errors.As(err, &unknown):
		hint = ": name the file of its authority with tls-ca= in the store's URL, or in " + envTLS["tls-ca"]
	case errors.As(err, &name):
		hint = ": name what its certificate says with tls-server-name= in the store's URL, or in " + envTLS["tls-server-name"]
	case errors.As(err, &record):
		hint = ": it does not speak TLS here: is it the right port? For none, the store's URL " + s.otherwise()
	case errors.Is(err, context.DeadlineExceeded):
		err, hint = os.ErrDeadlineExceeded, ": it takes connections, and does not answer the handshake: does it speak TLS? Else the store's URL "+s.otherwise()
	case errors.As(err, &alert) && alert.Op == "remote error":
		hint = ": if it wants a certificate of yours, name one with tls-cert= and tls-key= in the store's URL, or in " + envTLS["tls-cert"] + " and " + envTLS["tls-key"]
	case cut(err):
		hint = ": it closed the connection: does it speak TLS? Else the store's URL " + s.otherwise()
	}
	return explained("TLS: %w%s", err, hint)
}

// envTLS are the variables for the parameters that are not in the URL.
var envTLS = map[string]string{
	"tls-ca": "HASP_TLS_CA", "tls-cert": "HASP_TLS_CERT", "tls-key": "HASP_TLS_KEY", "tls-server-name": "HASP_TLS_SERVER_NAME",
}

// tlsFiles are the parameters of TLS, by name: those of the URL, else of the
// environment.
type tlsFiles map[string]string

// take takes the parameters of TLS out of a URL's.
func (t tlsFiles) take(values url.Values) {
	for name := range envTLS {
		if values.Has(name) {
			t[name] = values.Get(name)
		}
	}
}

// inForce are the parameters of a URL, and those that the environment adds.
func (t tlsFiles) inForce() tlsFiles {
	all := tlsFiles{}
	for name, variable := range envTLS {
		value, has := t[name]
		if !has {
			value = os.Getenv(variable)
		}
		if value != "" {
			all[name] = value
		}
	}
	return all
}

// check looks at parameters without any I/O.
func (t tlsFiles) check() error {
	for _, name := range []string{"tls-ca", "tls-cert", "tls-key"} {
		if t[name] != "" && !filepath.IsAbs(t[name]) {
			return fmt.Errorf("%s= (or %s) is not the whole path of a file", name, envTLS[name])
		}
	}
	if (t["tls-cert"] == "") != (t["tls-key"] == "") {
		return errors.New("tls-cert= and tls-key= (or HASP_TLS_CERT and HASP_TLS_KEY) belong together: a certificate and its key")
	}
	return nil
}

// configure reads the files.
func (t tlsFiles) configure(base *tls.Config) (*tls.Config, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	config := base.Clone()
	if file := t["tls-ca"]; file != "" {
		pem, err := files.Read(file, files.MaxPEM)
		if err != nil {
			return nil, fmt.Errorf("TLS: tls-ca= (or %s): %w", envTLS["tls-ca"], err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS: tls-ca= (or %s): %s has no certificate in PEM form", envTLS["tls-ca"], file)
		}
	}
	if t["tls-cert"] != "" {
		pair, err := files.KeyPair(t["tls-cert"], t["tls-key"])
		if err != nil {
			return nil, fmt.Errorf("TLS: tls-cert= and tls-key= (or %s and %s): %w", envTLS["tls-cert"], envTLS["tls-key"], err)
		}
		config.GetClientCertificate = t.renewed(pair)
	}
	if t["tls-server-name"] != "" {
		config.ServerName = t["tls-server-name"]
	}
	return config, nil
}

// renewed reads the client's certificate again at each handshake; pair is what it read first. While certificate and key do not fit each
// other, since only one file was replaced so far, it uses the latest pair that did.
func (t tlsFiles) renewed(pair tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	l := files.Latest[tls.Certificate]{Value: pair}
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair := l.Again(func() (tls.Certificate, error) { return files.KeyPair(t["tls-cert"], t["tls-key"]) }, t["tls-cert"], t["tls-key"])
		return &pair, nil
	}
}
