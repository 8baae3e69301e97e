// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// certificates writes ca.pem, and for each name a certificate NAME.pem and its key NAME.key;
// all are good for a server at 127.0.0.1 and for a client.
func (s *sandbox) certificates(names ...string) *x509.CertPool {
	s.t.Helper()
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	pool := x509.NewCertPool()
	for i, name := range append([]string{"ca"}, names...) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(s.t, err)
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		if ca == nil {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
			ca, caKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
		must(s.t, err)
		secret, err := x509.MarshalECPrivateKey(key)
		must(s.t, err)
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if i == 0 {
			pool.AppendCertsFromPEM(text)
		}
		for file, b := range map[string][]byte{name + ".pem": text, name + ".key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})} {
			must(s.t, os.WriteFile(filepath.Join(s.dir, file), b, 0o600))
		}
	}
	return pool
}

// asClient returns a client of HTTP that trusts the authority, with a certificate of its own
// unless name is empty.
func (s *sandbox) asClient(pool *x509.CertPool, name string) *http.Client {
	s.t.Helper()
	conf := &tls.Config{RootCAs: pool}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(s.dir, name+".pem"), filepath.Join(s.dir, name+".key"))
		must(s.t, err)
		conf.Certificates = []tls.Certificate{pair}
	}
	t := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	s.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

func (s *sandbox) serve(args ...string) (p *proc, url string) {
	s.t.Helper()
	p = s.hasp(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	p.says(` are at https?://`)
	return p, regexp.MustCompile(`https?://\S+`).FindString(p.err.String())
}

// The page says of a store that hangs what the commands say, and counts it as a problem.
func TestServeOfAHungStore(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // and takes connections
	must(t, err)
	t.Cleanup(func() { hangs.Close() })
	s := newSandbox(t, "redis://"+hangs.Addr().String())
	_, url := s.serve()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	must(t, err)
	matches(t, string(page), `the store redis://\S+ takes connections, and does not answer: .*Is it stopped or overloaded`)
	matches(t, string(page), `problems</dt><dd>1<`)
}

// Tokens and certificates say who may look and who may break; what is broken is recorded;
// live views end with the server.
func TestServe(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	const reader, breaker, key = "0123456789abcdef-reader", "0123456789abcdef-breaker", "orders/<b>\x1b[31m\n"
	must(t, os.WriteFile(filepath.Join(s.dir, "tokens"), []byte("read bob "+reader+"\nbreak alice "+breaker+"\n"), 0o600))
	pool := s.certificates("server", "carol", "dave")
	p, url := s.serve("--tokens", "tokens", "--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem", "--break-subject", "carol", "--audit", "audit")
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Fatalf("it serves %s", url)
	}
	owner := func() string {
		t.Helper()
		h := s.hasp("run", "--on-lost", "ignore", key, "--", "sh", "-c", "echo $HASP_OWNER >owner.tmp; mv owner.tmp owner; read x <gate")
		_ = h
		o := s.read("owner")
		must(t, os.Remove(filepath.Join(s.dir, "owner")))
		return o
	}
	s.fifo("gate")
	path := "api/v1/locks/" + base64.RawURLEncoding.EncodeToString([]byte(key))
	ask := func(client *http.Client, method, path, token, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(r)
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(text)
	}
	plain, carol, dave := s.asClient(pool, ""), s.asClient(pool, "carol"), s.asClient(pool, "dave")
	first := owner()
	body := `{"owner":"` + first + `","reason":"it hangs"}`
	for _, c := range []struct {
		who                       string
		client                    *http.Client
		method, path, token, body string
		want                      int
	}{
		{"nobody looks", plain, "GET", "", "", "", 401},
		{"nobody asks whether it lives", plain, "GET", "healthz", "", "", 200},
		{"a wrong token", plain, "GET", "", reader + "x", "", 401},
		{"a reader looks", plain, "GET", path, reader, "", 200},
		{"a reader breaks", plain, "POST", path + "/break", reader, body, 403},
		{"a certificate looks", dave, "GET", path, "", "", 200},
		{"a certificate breaks", dave, "POST", path + "/break", "", body, 403},
		{"the doctor", plain, "GET", "doctor", reader, "", 200},
		{"a breaker breaks", plain, "POST", path + "/break", breaker, body, 200},
		{"too late", carol, "POST", path + "/break", "", body, 409},
	} {
		if code, text := ask(c.client, c.method, c.path, c.token, c.body); code != c.want {
			t.Errorf("%s: %d, want %d: %s", c.who, code, c.want, text)
		}
	}
	second := owner()
	if code, text := ask(carol, "POST", path+"/break", "", `{"owner":"`+second+`","reason":"again"}`); code != 200 {
		t.Errorf("a certificate that may break: %d: %s", code, text)
	}

	text, err := os.ReadFile(filepath.Join(s.dir, "audit"))
	must(t, err)
	var got []string
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if want := map[bool]string{true: second, false: first}[r.Reason == "again"]; r.Event != audit.Break || r.Via != "hasp serve" || r.Key != key || r.Owner != want {
			t.Errorf("recorded: %+v", r)
		}
		got = append(got, r.By.User+" "+string(r.Outcome))
	}
	if want := "bob denied,CN=dave denied,alice begun,alice done,CN=carol begun,CN=carol not-held,CN=carol begun,CN=carol done"; strings.Join(got, ",") != want {
		t.Errorf("recorded: %v", got)
	}

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"events/locks", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+reader)
	resp, err := plain.Do(r)
	must(t, err)
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %q, %v", resp.Status, line, err)
	}
	p.signal(syscall.SIGTERM)
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Logf("the live view ended with %v", err)
	}
	p.ends(0)
	for _, secret := range []string{reader, breaker, "\x1b"} {
		if strings.Contains(p.err.String()+string(text), secret) {
			t.Errorf("%q is in:\n%s%s", secret, p.err.String(), text)
		}
	}
	matches(t, p.err.String(), `^hasp: break of "orders/<b>\\x1b\[31m\\n" by alice, owner `+first+`, reason "it hangs": broken$`)
}

// Without tokens this machine may look, and break only where that was said.
func TestServeLocally(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	for want, args := range map[int][]string{403: nil, 409: {"--allow-break"}} {
		p, url := s.serve(args...)
		resp, err := http.Post(url+"api/v1/locks/aw/break", "application/json", strings.NewReader(`{"owner":"`+strings.Repeat("A", 26)+`","reason":"x"}`))
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with %v: %s", args, resp.Status)
		}
		p.signal(syscall.SIGINT)
		p.ends(0)
	}
}

// The page shows what hasp leaks finds below the prefix, and what removes it.
func TestServeLeaks(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	s := newSandbox(t, "redis://"+server.Addr())
	_, url := s.serve("orders/")
	page := func() string {
		t.Helper()
		resp, err := http.Get(url + "leaks")
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v", resp.Status, err)
		}
		return string(text)
	}
	for _, key := range []string{"lock:orders/<1>", "lock:other"} {
		must(t, rdb.Set(t.Context(), key, "peer", 0).Err())
	}
	text := page()
	for _, want := range []string{">orders/&lt;1&gt;</a>", "foreign: held by a foreign client (value &#34;peer&#34;); it has no expiry", `<code class="copy">hasp leaks &#39;orders/&lt;1&gt;&#39; --fix</code>`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "lock:other") || strings.Contains(text, ">other<") {
		t.Errorf("a key that does not start with the prefix:\n%s", text)
	}
}
