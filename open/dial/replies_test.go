// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// Replies of every form are followed to their end, however they are cut into
// pieces, and what no server of ours sends is refused when it is announced.
func TestReplies(t *testing.T) {
	for text, want := range map[string]string{
		"+OK\r\n:1\r\n-ERR x\r\n_\r\n#t\r\n,1.5\r\n(123\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n": "",
		"$5\r\na\r\n\x16b\r\n+OK\r\n":                                                      "",
		"*2\r\n*1\r\n$1\r\na\r\n%2\r\n+a\r\n:1\r\n+b\r\n*0\r\n+OK\r\n":                     "",
		"|1\r\n+a\r\n+b\r\n*1\r\n:1\r\n|0\r\n:1\r\n":                                       "",
		">3\r\n+message\r\n$1\r\na\r\n$1\r\nb\r\n=5\r\ntxt:a\r\n!3\r\nERR\r\n~1\r\n:1\r\n": "",
		"*1000000000\r\n":                       `"1000000000"`,
		"*1\r\n*5000000\r\n":                    "5000001 elements in 2 levels",
		"%700000\r\n":                           "1400000 elements",
		"$100000000\r\n":                        `"100000000"`,
		"$99999999999999999999\r\n":             `"99999999999999999999"`,
		strings.Repeat("*1\r\n", maxDepth+1):    "17 levels",
		strings.Repeat("*1000\r\n", maxDepth-1): "", // bounded by the depth
		"*2\r\n$60000000\r\n" + strings.Repeat("a", 60_000_000) + "\r\n$60000000\r\n" + strings.Repeat("a", 8_000_000): "more than 64 MiB",
		"+" + strings.Repeat("a", maxReply+1): "more than 64 MiB",
	} {
		for _, piece := range []int{1, 3, len(text)} {
			if piece < len(text) && len(text) > 1000 {
				continue
			}
			r, err := &replies{}, error(nil)
			for rest := []byte(text); len(rest) > 0 && err == nil; {
				n := min(piece, len(rest))
				err, rest = r.scan(rest[:n]), rest[n:]
			}
			short := text[:min(len(text), 60)]
			switch {
			case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%q in pieces of %d: %v, want %q", short, piece, err, want)
			case want == "" && !strings.HasPrefix(text, "*1000\r\n*1000") && (len(r.open) > 0 || r.size > 0 || r.bulk > 0 || len(r.header) > 0):
				t.Errorf("%q in pieces of %d: it waits for more: %+v", short, piece, r)
			}
		}
	}
}

// A server that announces a huge reply costs an error, and no memory.
func TestHostileServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("*20000000\r\n"))
		}
	}()
	u, err := Parse("redis://" + l.Addr().String())
	must(t, err)
	s, err := u.Open(nil)
	must(t, err)
	defer s.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = contend.Try(t.Context(), s, contend.Owner{Key: "k", Owner: strings.Repeat("A", driver.OwnerLen), TTL: time.Second})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "is it a Redis server?") {
		t.Errorf("Try says %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > maxReply {
		t.Errorf("the reply took %d MiB", took>>20)
	}
}

// What an error repeats of a request may be the password.
func TestRepliesHideSecrets(t *testing.T) {
	text := "*2\r\n-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'hunter2' \r\n$45\r\na value, with args beginning with: what it has\r\n-ERR x\r\n"
	quoted := "'3' 'AUTH' 'default' 'hunter2' "
	want := strings.Replace(text, quoted, strings.Repeat("*", len(quoted)), 1)
	for _, cut := range []int{0, strings.Index(text, "hunter2") + 2} {
		r, read := &replies{}, []byte(text)
		for _, part := range [][]byte{read[:cut], read[cut:]} {
			must(t, r.scan(part))
		}
		if string(read) != want {
			t.Errorf("cut at %d, it reads\n%s", cut, read)
		}
	}
}
