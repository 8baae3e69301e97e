// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// authority signs certificates, which are files in a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.make("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// make writes NAME.crt and NAME.key.
func (a *authority) make(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for kind, block := range map[string]*pem.Block{"crt": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(name+"."+kind), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// certify makes the certificates of a server and of a client.
func (a *authority) certify() {
	a.t.Helper()
	a.make("server", &x509.Certificate{DNSNames: []string{"redis.test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.make("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// overTLS starts a server that speaks TLS at the port that it returns, to clients
// with a certificate only, and plainly at its own.
func (a *authority) overTLS() (server *testserver.Server, addr string) {
	a.t.Helper()
	a.certify()
	server = testserver.Redis(a.t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(a.t.Context(), "CONFIG", "SET", "tls-ca-cert-file", a.file("ca.crt"), "tls-cert-file", a.file("server.crt"),
		"tls-key-file", a.file("server.key")).Err(); err != nil {
		a.t.Fatal(err)
	}
	var err error
	for range 20 { // the port is free until somebody else takes it
		l, e := net.Listen("tcp", "127.0.0.1:0")
		if e != nil {
			a.t.Fatal(e)
		}
		addr = l.Addr().String()
		_ = l.Close()
		_, port, _ := net.SplitHostPort(addr)
		if err = admin.ConfigSet(a.t.Context(), "tls-port", port).Err(); err == nil {
			return server, addr
		}
	}
	a.t.Fatal(err)
	return nil, ""
}

// lock takes and releases a lock.
func lock(t *testing.T, url string) error {
	t.Helper()
	u, err := Parse(url)
	if err != nil {
		return err
	}
	s, err := u.Open(nil)
	if err != nil {
		return err
	}
	locks, err := hasp.New(s.Driver, nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.Mutex(t.Name(), nil).TryLock(t.Context())
	if err != nil {
		return err
	}
	return lease.Release()
}

// TLS with an authority, a certificate and a name of one's own; and errors that say
// that it is TLS, and what to do.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	server, addr := a.overTLS()
	ca, cert, key, name := "tls-ca="+a.file("ca.crt"), "tls-cert="+a.file("client.crt"), "tls-key="+a.file("client.key"), "tls-server-name=redis.test"
	url := func(addr string, parameters ...string) string {
		return "rediss://" + addr + "?" + strings.Join(parameters, "&")
	}
	for what, c := range map[string]struct{ url, want string }{
		"all of it":       {url(addr, ca, cert, key, name), ""},
		"not trusted":     {url(addr, cert, key, name), `^.*TLS: .*unknown authority.*tls-ca=.*HASP_TLS_CA`},
		"another name":    {url(addr, ca, cert, key), `TLS: .*127\.0\.0\.1.*tls-server-name=`},
		"no certificate":  {url(addr, ca, name), `TLS: .*tls-cert= and tls-key=`},
		"a plain server":  {url(server.Addr(), ca, cert, key, name), `TLS: .*the store's URL begins with redis:`},
		"a plain client":  {"redis://" + addr, `EOF|reset by peer|answers with TLS.* begins with rediss:`},
		"another's key":   {url(addr, ca, cert, "tls-key="+a.file("server.key")), `TLS: .*HASP_TLS_CERT.*does not match`},
		"no key":          {url(addr, cert), `belong together`},
		"half a path":     {url(addr, "tls-ca=ca.crt"), `not the whole path`},
		"no authority":    {url(addr, "tls-ca="+a.file("ca.key")), `no certificate in PEM form`},
		"no file":         {url(addr, "tls-ca="+a.file("none")), `no such file`},
		"no TLS at all":   {"redis://" + server.Addr(), ""},
		"TLS is not used": {"redis://" + addr + "?" + ca, `does not ask for TLS`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			err := lock(t, c.url)
			if (err == nil) != (c.want == "") || !regexp.MustCompile(c.want).MatchString(fmt.Sprint(err)) {
				t.Errorf("%s: %v; want %q", c.url, err, c.want)
			}
		})
	}
}

// A cluster that speaks TLS says so to who asks over TLS: one node with all slots is enough to see it.
func TestTLSOfACluster(t *testing.T) {
	a := newAuthority(t)
	a.certify()
	port := freePort(t)
	server := testserver.Redis(t, "--tls-port", port, "--tls-ca-cert-file", a.file("ca.crt"), "--tls-cert-file", a.file("server.crt"), "--tls-key-file", a.file("server.key"),
		"--cluster-enabled", "yes", "--tls-cluster", "yes")
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket()})
	defer admin.Close()
	must(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	for ok := false; !ok; {
		text, err := admin.ClusterInfo(t.Context()).Result()
		must(t, err)
		ok = strings.Contains(text, "cluster_state:ok")
	}
	url := "rediss+cluster://127.0.0.1:" + port + "?tls-ca=" + a.file("ca.crt") + "&tls-server-name=redis.test"
	if err := lock(t, url+"&tls-cert="+a.file("client.crt")+"&tls-key="+a.file("client.key")); err != nil {
		t.Error(err)
	}
	if err := lock(t, url); err == nil || !strings.Contains(err.Error(), "tls-cert= and tls-key=") {
		t.Errorf("without a certificate: %v", err)
	}
}

// A Sentinel and its master both speak TLS, to clients with a certificate only.
func TestTLSOfASentinel(t *testing.T) {
	a := newAuthority(t)
	_, master := a.overTLS()
	_, masterPort, _ := net.SplitHostPort(master)
	port := freePort(t)
	conf := a.file("sentinel.conf")
	text := fmt.Sprintf("port 0\ntls-port %s\ntls-ca-cert-file %s\ntls-cert-file %s\ntls-key-file %s\ntls-replication yes\nunixsocket sock\nsentinel monitor main 127.0.0.1 %s 1\n",
		port, a.file("ca.crt"), a.file("server.crt"), a.file("server.key"), masterPort)
	must(t, os.WriteFile(conf, []byte(text), 0o600))
	testserver.RedisUnder(t, []string{"sh", "-c", `exec "$1" "$0" --sentinel`, conf}, nil)
	url := "rediss+sentinel://main@127.0.0.1:" + port + "?tls-ca=" + a.file("ca.crt") + "&tls-server-name=redis.test"
	if err := lock(t, url+"&tls-cert="+a.file("client.crt")+"&tls-key="+a.file("client.key")); err != nil {
		t.Error(err)
	}
	if err := lock(t, url); err == nil || !strings.Contains(err.Error(), "tls-cert= and tls-key=") {
		t.Errorf("without a certificate: %v", err)
	}
}

// freePort is a port that nobody has now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// What the URL does not say, the environment does.
func TestTLSFromTheEnvironment(t *testing.T) {
	a := newAuthority(t)
	server, addr := a.overTLS()
	t.Setenv("HASP_TLS_CA", a.file("ca.crt"))
	t.Setenv("HASP_TLS_CERT", a.file("client.crt"))
	t.Setenv("HASP_TLS_KEY", a.file("client.key"))
	t.Setenv("HASP_TLS_SERVER_NAME", "redis.test")
	for _, url := range []string{"rediss://" + addr, "redis://" + server.Addr()} {
		if err := lock(t, url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := lock(t, "rediss://"+addr+"?tls-server-name=127.0.0.1"); err == nil || !strings.Contains(err.Error(), "certificate for 127.0.0.1") {
		t.Errorf("the URL says otherwise: %v", err)
	}
}
