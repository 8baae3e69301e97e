// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package audit

import (
	"errors"
	"log/syslog"
	"net"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

func TestSyslog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	was := dial
	t.Cleanup(func() { dial = was })
	dial = func() (*syslog.Writer, error) {
		return syslog.Dial("unixgram", path, syslog.LOG_NOTICE|syslog.LOG_AUTHPRIV, "hasp")
	}
	if _, err := Open(Syslog); err == nil {
		t.Error("there is no log, and it was opened")
	}
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	defer server.Close()
	l, err := Open(Syslog)
	must(t, err)
	if err := l.Write(Record{Event: Break, Key: "a\nb"}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	must(t, server.SetReadDeadline(time.Now().Add(time.Minute)))
	n, err := server.Read(buf)
	if want := regexp.MustCompile(`^<85>.* hasp\[\d+\]: \{"time":.*"key":"a\\nb".*\}\n$`); err != nil || !want.Match(buf[:n]) {
		t.Errorf("%v; it got %q", err, buf[:n])
	}
}

func TestNoPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(path, 0o600))
	var unwritten *UnwrittenError
	if _, err := Open(path); !errors.As(err, &unwritten) {
		t.Errorf("a pipe that nobody reads: %v", err)
	}
}
