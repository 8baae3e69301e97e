// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// played is a client of an agent that answers as the test says; "": never.
func played(t *testing.T, answer func(method string) string) (*Client, net.Conn) {
	ours, theirs := net.Pipe()
	go func() {
		for in := bufio.NewScanner(theirs); in.Scan(); {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.Unmarshal(in.Bytes(), &m)
			go func() {
				if text := answer(m.Method); text != "" {
					fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, text)
				}
			}()
		}
	}()
	c, err := NewClient(t.Context(), ours, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c, theirs
}

func locked(t *testing.T, c *Client, key string) *Lease {
	t.Helper()
	l, err := c.Lock(t.Context(), LockParams{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The agent stands still: the lease ends by the client's own clock, and giving it back does not wait for the agent.
func TestSilentAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := played(t, func(method string) string {
			return map[string]string{"hello": "{}", "lock": `{"lease":"1","keys":[{"key":"k"}],"left_ms":30000}`}[method]
		})
		start := time.Now()
		l := locked(t, c, "k")
		<-l.Done()
		if after := time.Since(start); after != 30*time.Second {
			t.Errorf("lost after %v", after)
		}
		if err := l.Release(); err == nil || time.Since(start) != 30*time.Second {
			t.Errorf("released after %v: %v", time.Since(start), err)
		}
	})
}

// left_ms counts from the request, and a machine that slept since then counts the sleep.
func TestSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := played(t, func(method string) string {
			if method == "lock" {
				time.Sleep(10 * time.Second)
			}
			return map[string]string{"hello": "{}", "lock": `{"lease":"1","keys":[{"key":"k"}],"left_ms":30000}`}[method]
		})
		l := locked(t, c, "k")
		if left := time.Until(l.Deadline()); left != 20*time.Second {
			t.Errorf("%v are left", left)
		}
		c.mu.Lock()
		l.sent.Boot -= 31 * time.Second // as if the machine had slept
		c.mu.Unlock()
		if l.Err() == nil {
			t.Error("the lease has outlived a sleep")
		}
		<-l.Done()
	})
}

// An answer to status prolongs the leases that the client had when it asked, and no other.
func TestStatusProlongsWhatWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := make(chan bool)
		n := 0
		c, _ := played(t, func(method string) string {
			switch method {
			case "lock":
				n++
				return fmt.Sprintf(`{"lease":"%d","keys":[{"key":"k"}],"left_ms":9000}`, n)
			case "status":
				<-granted
				return `{"leases":1,"left_ms":60000}`
			}
			return "{}"
		})
		first := locked(t, c, "a")
		time.Sleep(4 * time.Second) // status is asked after 3
		second := locked(t, c, "b")
		close(granted)
		synctest.Wait()
		if one, two := time.Until(first.Deadline()), time.Until(second.Deadline()); one != 59*time.Second || two != 9*time.Second {
			t.Errorf("the deadlines are in %v and %v", one, two)
		}
	})
}

// A client that locks and releases without a pause asks for the deadline of what it holds all the same, a third of the time before.
func TestBusyClientAsksInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c, _ := played(t, func(method string) string {
			switch method {
			case "lock":
				n++
				return fmt.Sprintf(`{"lease":"%d","keys":[{"key":"k"}],"left_ms":900}`, n)
			case "status":
				time.Sleep(100 * time.Millisecond)
				return `{"leases":1,"left_ms":900}`
			}
			return "{}"
		})
		held := locked(t, c, "a")
		for range 3000 {
			time.Sleep(time.Millisecond)
			_ = locked(t, c, "b").Release()
		}
		if held.Err() != nil {
			t.Error(held.Err())
		}
	})
}

// What an agent says twice, or of leases that are none, does no harm.
func TestOddAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent := played(t, func(method string) string {
			return map[string]string{"hello": "{}", "release": "{}", "lock": `{"lease":"1","keys":[{"key":"k"}],"left_ms":30000}`}[method]
		})
		l := locked(t, c, "k")
		for _, method := range []string{"wanted", "wanted", "nonsense", "ending", "lost", "lost"} {
			fmt.Fprintf(agent, `{"jsonrpc":"2.0","method":%q,"params":{"lease":"1","message":"gone"}}`+"\n", method)
			fmt.Fprintf(agent, `{"jsonrpc":"2.0","method":%q,"params":{"lease":7}}`+"\n", method)
		}
		<-l.Wanted()
		<-l.Done()
		if err := l.Err(); err == nil || err.Error() != "gone" {
			t.Errorf("lost by %v", err)
		}
		agent.Close()
		if _, err := c.Lock(context.Background(), LockParams{Key: "k"}); err != io.ErrUnexpectedEOF {
			t.Errorf("an agent that is gone: %v", err)
		}
	})
}
