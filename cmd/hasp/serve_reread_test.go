// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

const (
	tokenBob, tokenEve, tokenAlice = "0123456789abcdef-bob", "0123456789abcdef-eve", "0123456789abcdef-alice"
)

func (s *sandbox) write(name, text string) {
	s.t.Helper()
	// As those do that rotate secrets: never half a file.
	tmp := filepath.Join(s.dir, name+".tmp")
	must(s.t, errors.Join(os.WriteFile(tmp, []byte(text), 0o600), os.Rename(tmp, filepath.Join(s.dir, name))))
}

// get asks with a token, if there is one; 0: there was no answer.
func get(t *testing.T, client *http.Client, url, token string) (code int, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func wantCode(t *testing.T, what string, client *http.Client, url, token string, want int) {
	t.Helper()
	if code, err := get(t, client, url, token); code != want || (err == nil) != (want != 0) {
		t.Errorf("%s: %d, %v; want %d", what, code, err, want)
	}
}

// watch opens a live view, and returns a channel that is closed when it ends.
func watch(t *testing.T, client *http.Client, url, token string) <-chan struct{} {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"events/locks", nil)
	must(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	must(t, err)
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %q, %v", resp.Status, line, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, in)
	}()
	return ended
}

func ended(view <-chan struct{}) bool {
	select {
	case <-view:
		return true
	default:
		return false
	}
}

// HUP has the certificate, the authorities and the tokens read again. What is wrong leaves
// those from before.
func TestServeRereadsOnHangup(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.write("tokens", "read bob "+tokenBob+"\nread eve "+tokenEve+"\n")
	old := s.certificates("server", "carol")
	p, url := s.serve("--tokens", "tokens", "--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem")
	before, carol := s.asClient(old, ""), s.asClient(old, "carol")
	bobs, eves, carols := watch(t, before, url, tokenBob), watch(t, before, url, tokenEve), watch(t, carol, url, "")
	wantCode(t, "a certificate", carol, url, "", 200)
	again := s.asClient(old, "carol") // connects later

	s.write("tokens", "read bob "+tokenBob+"\nbreak alice "+tokenAlice+"\n")
	pool := s.certificates("server", "carol")
	p.signal(syscall.SIGHUP)
	for _, what := range []string{"--tokens tokens", "--tls-cert server.pem, --tls-key server.key", "--client-ca ca.pem"} {
		p.says("^hasp: read again: " + what + "$")
	}
	wantCode(t, "a token that is gone", before, url, tokenEve, 401)
	wantCode(t, "a token that stays", before, url, tokenBob, 200)
	wantCode(t, "the new certificate", s.asClient(pool, ""), url, tokenAlice, 200)
	wantCode(t, "for those who trust only the old authority", s.asClient(old, ""), url, tokenBob, 0)
	wantCode(t, "a client certificate of the new authority", s.asClient(pool, "carol"), url, "", 200)
	wantCode(t, "one of the old", carol, url, "", 401)
	if err := eventually(func() bool { code, _ := get(t, carol, url, ""); return code == 0 }); err != nil { // a request may overtake the end
		t.Error("its connection goes on")
	}
	again.Transport.(*http.Transport).TLSClientConfig.RootCAs = pool
	wantCode(t, "and that cannot connect again", again, url, "", 0)
	if err := eventually(func() bool { return ended(eves) && ended(carols) }); err != nil {
		t.Errorf("a live view of somebody who may look no longer goes on: eve's ended: %v, carol's ended: %v", ended(eves), ended(carols))
	}
	if ended(bobs) {
		t.Error("the live view of somebody who may look ended")
	}

	s.write("tokens", "read bob "+tokenBob+"\n"+tokenEve+" eve read\n")
	s.write("server.key", "nothing")
	s.write("ca.pem", "nothing")
	p.signal(syscall.SIGHUP)
	const stays = `\. What was read before stays in force; when that is mended, it is read again$`
	p.says(`^hasp: warning: line 2 of tokens is no token: read NAME TOKEN, or break NAME TOKEN` + stays)
	p.says(`^hasp: warning: --tls-cert server.pem, --tls-key server.key: .*` + stays)
	p.says(`^hasp: warning: --client-ca: there is no certificate in ca.pem` + stays)
	wantCode(t, "after wrong files, a token", s.asClient(pool, ""), url, tokenAlice, 200)
	wantCode(t, "after wrong files, one that is gone", s.asClient(pool, ""), url, tokenEve, 401)
	if ended(bobs) {
		t.Error("a wrong file ended a live view")
	}
	p.signal(syscall.SIGTERM)
	p.ends(0)
	for _, secret := range []string{tokenBob, tokenEve, tokenAlice} {
		if strings.Contains(p.err.String(), secret) {
			t.Errorf("%q is in:\n%s", secret, p.err.String())
		}
	}
}

// Without a signal, files that have changed are noticed when somebody asks; what is wrong
// is said once.
func TestServeNoticesChanges(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.write("tokens", "read bob "+tokenBob+"\nread eve "+tokenEve+"\n")
	pool := s.certificates("server")
	p, url := s.serve("--tokens", "tokens", "--tls-cert", "server.pem", "--tls-key", "server.key")
	eves := watch(t, s.asClient(pool, ""), url, tokenEve)
	s.write("tokens", "read alice "+tokenAlice+"\n")
	if err := eventually(func() bool { return ended(eves) }); err != nil { // nobody asks but the view itself
		t.Fatalf("the live view of a token that is gone: %v; it said:\n%s", err, p.err.String())
	}
	wantCode(t, "a token that is gone", s.asClient(pool, ""), url, tokenEve, 401)
	wantCode(t, "a new token", s.asClient(pool, ""), url, tokenAlice, 200)

	s.write("tokens", tokenEve)
	const wrong = "line 1 of tokens is no token"
	ask := func() { wantCode(t, "a token of before", s.asClient(pool, ""), url, tokenAlice, 200) }
	if err := eventually(func() bool { ask(); return strings.Contains(p.err.String(), wrong) }); err != nil {
		t.Fatalf("a wrong file: %v; it said:\n%s", err, p.err.String())
	}
	pool = s.certificates("server") // while it is noticed, the tokens are looked at as well
	if err := eventually(func() bool {
		code, _ := get(t, s.asClient(pool, ""), url, tokenAlice)
		return code == http.StatusOK
	}); err != nil {
		t.Fatalf("a new certificate: %v; it said:\n%s", err, p.err.String())
	}
	ask()
	if n := strings.Count(p.err.String(), wrong); n != 1 {
		t.Errorf("it said %d times what is wrong:\n%s", n, p.err.String())
	}
	s.write("tokens", "read eve "+tokenEve+"\n")
	if err := eventually(func() bool {
		code, _ := get(t, s.asClient(pool, ""), url, tokenEve)
		return code == http.StatusOK
	}); err != nil {
		t.Fatalf("the mended file: %v; it said:\n%s", err, p.err.String())
	}
	if strings.Contains(p.err.String(), tokenEve) {
		t.Errorf("a token is in:\n%s", p.err.String())
	}
}

// A terminal that hangs up ends it, as it ends other programs; a signal alone does not.
func TestServeAtTerminal(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.write("tokens", "read bob "+tokenBob+"\n")
	screen, tty, err := pty.Open()
	must(t, err)
	defer screen.Close()
	p := s.haspWith(func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.SysProcAttr = tty, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, "serve", "--listen", "127.0.0.1:0", "--tokens", "tokens")
	tty.Close()
	p.says(` are at http://`)
	p.signal(syscall.SIGHUP)
	p.says("^hasp: read again: --tokens tokens$")
	screen.Close()
	p.ends(0)
}
