// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/jsonrpc"
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
	c, err := NewClient(t.Context(), ours, "test", 0)
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
		l.granted.from.Boot -= 31 * time.Second // as if the machine had slept
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
		for _, method := range []string{"wanted", "wanted", "nonsense", "lost", "lost", "ending"} {
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

// A client ends its lease in time for what its lead is for: when the agent stands still, a tenth of the lead after the agent would have
// told of a loss; and when the agent says that it ends, before that gives the keys to others.
func TestLead(t *testing.T) {
	for name, c := range map[string]struct {
		notice string
		want   time.Duration
		why    string
	}{
		"silent": {"", 30*time.Second - 9*time.Second, "time is over"},
		"ending": {`"ending","params":{"left_ms":15000}`, 5*time.Second + 13500*time.Millisecond - 9*time.Second, "the agent ends"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why := c.why
				client, agent := played(t, func(method string) string {
					if method == "status" && c.notice != "" {
						return `{"leases":1,"left_ms":30000}`
					}
					return map[string]string{"hello": "{}", "lock": `{"lease":"1","keys":[{"key":"k"}],"left_ms":30000}`}[method]
				})
				start := time.Now()
				l, err := client.Lock(t.Context(), LockParams{Key: "k", Lead: InMillis(10 * time.Second)})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if c.notice != "" {
					fmt.Fprintf(agent, `{"jsonrpc":"2.0","method":%s}`+"\n", c.notice)
				}
				<-l.Done()
				if after := time.Since(start); after != c.want || !strings.Contains(l.Err().Error(), why) || !errors.Is(l.Err(), hasp.ErrLost) || errors.Is(l.Err(), hasp.ErrNotHeld) {
					t.Errorf("lost after %v, want %v: %v", after, c.want, l.Err())
				}
				if left := time.Until(l.Deadline()); left != 9*time.Second {
					t.Errorf("%v are left of the lead", left)
				}
			})
		})
	}
}

// A client gives a sign of life also while it only waits, and does not rely on a lease for longer than the agent bears its silence.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		signs := make(chan string)
		go func() {
			defer close(signs)
			for in := bufio.NewScanner(theirs); in.Scan(); {
				signs <- in.Text()
			}
		}()
		go func() {
			if first := <-signs; !strings.Contains(first, `"alive_ms":30000`) {
				t.Errorf("it greets with %s", first)
			}
			fmt.Fprintln(theirs, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}()
		c, err := NewClient(t.Context(), ours, "test", 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Kill()
		for id := 2; id < 5; id++ {
			start := time.Now()
			if text, after := <-signs, time.Since(start); after > 10*time.Second || !strings.Contains(text, "status") {
				t.Errorf("after %v: %s", after, text)
			}
			fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%d,"result":{}}`+"\n", id)
		}
		go func() {
			<-signs
			fmt.Fprintln(theirs, `{"jsonrpc":"2.0","id":5,"result":{"lease":"1","keys":[{"key":"k"}],"left_ms":3600000}}`)
			for range signs { // and nothing more is answered
			}
		}()
		l := locked(t, c, "k")
		if left := time.Until(l.Deadline()); left != 30*time.Second {
			t.Errorf("%v are left", left)
		}
		start := time.Now()
		if <-l.Done(); time.Since(start) != 30*time.Second { // whether the agent has heard what it does not answer is not known
			t.Errorf("lost after %v", time.Since(start))
		}
	})
}

// What came while the agent stood still, it has not read when it goes on: its client was not silent.
func TestAgentThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		s := &server{silence: 8 * time.Second, conn: jsonrpc.New(ours, nil, nil)}
		s.alive = time.AfterFunc(time.Hour, s.unheard)
		closed := func() bool {
			synctest.Wait()
			select {
			case <-s.conn.Gone():
				return true
			default:
				return false
			}
		}
		s.heard()
		for range 2 * eighths { // what was due before a line came is not counted
			s.unheard()
		}
		time.Sleep(7500 * time.Millisecond)
		s.alive.Stop()
		time.Sleep(3 * time.Second) // as if it were stopped
		s.unheard()
		if time.Sleep(7999 * time.Millisecond); closed() {
			t.Error("the connection is closed before its client was silent while the agent ran")
		}
		if time.Sleep(time.Millisecond); !closed() {
			t.Error("it is open after a silence")
		}
	})
}
