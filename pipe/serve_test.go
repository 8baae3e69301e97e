// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/pipe"
)

// raw is a client that writes its own lines.
type raw struct {
	net.Conn
	t      *testing.T
	in     *bufio.Scanner
	served chan error
	last   int
}

// line is what the agent writes.
type line struct {
	ID     json.RawMessage
	Method string
	Params pipe.Notice
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    pipe.ErrorData
	}
}

// kind is that of an error, or its code; "" without one.
func (l line) kind() string {
	switch {
	case l.Error == nil:
		return ""
	case l.Error.Data.Kind != "":
		return string(l.Error.Data.Kind)
	}
	return fmt.Sprint(l.Error.Code)
}

func (a *agent) silent(o *pipe.Options) *raw {
	r := &raw{t: a.t, Conn: a.connect(o), served: a.served}
	r.in = bufio.NewScanner(r.Conn)
	r.in.Buffer(nil, pipe.MaxLine)
	return r
}

func (a *agent) raw(o *pipe.Options) *raw {
	r := a.silent(o)
	if l := r.ask("hello", `{"protocols":[1,9]}`); l.Error != nil {
		a.t.Fatal(l.Error.Message)
	}
	return r
}

// write writes lines, as far as they are read.
func (r *raw) write(lines ...string) {
	_, _ = io.WriteString(r.Conn, strings.Join(lines, "\n")+"\n")
}

// next is the next line.
func (r *raw) next() (l line) {
	r.t.Helper()
	if !r.in.Scan() {
		r.t.Fatalf("the connection has ended: %v", r.in.Err())
	}
	if err := json.Unmarshal(r.in.Bytes(), &l); err != nil {
		r.t.Fatal(err)
	}
	return l
}

func request(id any, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q,"params":%s}`, id, method, params)
}

// send sends a request.
func (r *raw) send(method, params string) (id int) {
	r.last++
	r.write(request(r.last, method, params))
	return r.last
}

// However long the text of a loss is, the client is told of it.
func TestLongText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAgent(t).raw(&pipe.Options{Explain: func(error) string { return strings.Repeat("\x01é", 50_000) }})
		if l := r.ask("lock", `{"key":"k","max_hold_ms":1000}`); l.Error != nil {
			t.Fatal(l.Error.Message)
		}
		if l := r.next(); l.Method != "lost" {
			t.Errorf("it says %q", l.Method)
		}
	})
}

// ask is the answer to a request; what comes before it is dropped.
func (r *raw) ask(method, params string) line {
	r.t.Helper()
	id := fmt.Sprint(r.send(method, params))
	for {
		if l := r.next(); string(l.ID) == id {
			return l
		}
	}
}

// rest reads to the end.
func (r *raw) rest() (all []line) {
	for r.in.Scan() {
		var l line
		_ = json.Unmarshal(r.in.Bytes(), &l)
		all = append(all, l)
	}
	return all
}

// waiters says how many wait for a key.
func (a *agent) waiters(key string) int {
	info, err := a.locks.Operator().Inspect(a.t.Context(), key)
	return must(a.t, info, err).Waiters
}

func lockOf(t *testing.T, c *hasp.Client, key string) *hasp.Lease {
	t.Helper()
	l, err := c.Mutex(key, nil).Lock(t.Context())
	return must(t, l, err)
}

// How a connection's end makes its leases finished, or abandoned; a wait under way leaves nothing.
func TestEnds(t *testing.T) {
	const abandoned, finished = true, false
	for name, end := range map[string]struct {
		of    func(a *agent, r *raw)
		want  bool
		err   error
		after time.Duration
	}{
		"end of file": {func(_ *agent, r *raw) { r.Close() }, abandoned, nil, 0},
		"half a line": {func(_ *agent, r *raw) { _, _ = io.WriteString(r, `{"jsonrpc":"2.0"`); r.Close() }, abandoned, jsonrpc.ErrBroken, 0},
		"a long line": {func(_ *agent, r *raw) {
			r.in = bufio.NewScanner(strings.NewReader("")) // it reads nothing
			go r.write(`{"x":"` + strings.Repeat("x", pipe.MaxLine) + `"}`)
		}, abandoned, jsonrpc.ErrBroken, 0},
		"invalid UTF-8": {func(_ *agent, r *raw) { r.write(request(9, "status", "{\"lease\":\"\xff\"}")) }, abandoned, jsonrpc.ErrBroken, 0},
		"10,001 deep": {func(_ *agent, r *raw) {
			r.write(request(9, "status", strings.Repeat("[", 10_001)+strings.Repeat("]", 10_001)))
		}, abandoned, jsonrpc.ErrBroken, 0},
		"an array":           {func(_ *agent, r *raw) { r.write("[" + request(9, "status", "{}") + "]") }, abandoned, jsonrpc.ErrBroken, 0},
		"no JSON":            {func(_ *agent, r *raw) { r.write("{") }, abandoned, jsonrpc.ErrBroken, 0},
		"a wrong response":   {func(_ *agent, r *raw) { r.write(`{"jsonrpc":"2.0","id":"x","result":{}}`) }, abandoned, jsonrpc.ErrBroken, 0},
		"bye":                {func(_ *agent, r *raw) { r.send("bye", "{}") }, finished, nil, 0},
		"the agent ends":     {func(a *agent, _ *raw) { a.stop() }, abandoned, nil, 3 * time.Second},
		"silence":            {func(_ *agent, r *raw) { r.ask("hello", `{"alive_ms":7000}`) }, abandoned, nil, 7 * time.Second},
		"a moment's silence": {func(_ *agent, r *raw) { r.ask("hello", `{"alive_ms":0.000001}`) }, abandoned, nil, time.Second},
		"signs of life": {func(_ *agent, r *raw) {
			r.ask("hello", `{"alive_ms":7000}`)
			for range 10 {
				time.Sleep(6 * time.Second)
				r.write(`{"jsonrpc":"2.0","method":"$/alive"}`)
			}
			r.send("bye", "{}")
		}, finished, nil, time.Minute},
		"not broken": {func(_ *agent, r *raw) {
			r.write("", `{"jsonrpc":"2.0","method":5}`, `{"jsonrpc":"1.0","id":1,"method":"status"}`, `{"jsonrpc":"2.0","id":{},"method":"status"}`, `{"jsonrpc":"2.0","id":null,"method":"x"}`, `{}`)
			for range 5 {
				if l := r.next(); l.Error == nil || l.Error.Code != jsonrpc.CodeRequest || string(l.ID) != "null" {
					r.t.Errorf("%+v", l)
				}
			}
			r.write(`{"jsonrpc":"2.0","method":"bye"}`, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":7}`, `{"jsonrpc":"2.0","id":12,"result":{}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":1}}`)
			r.send("bye", "{}")
		}, finished, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAgent(t)
				b := another(t, a.store)
				other := lockOf(t, b, "other")
				r := a.raw(&pipe.Options{Grace: 3 * time.Second})
				if l := r.ask("lock", `{"keys":["k1","k2"]}`); l.Error != nil {
					t.Fatal(l.Error.Message)
				}
				r.send("lock", `{"keys":["k3","other"]}`)
				synctest.Wait()
				if a.waiters("other") != 1 {
					t.Fatal("the case is void")
				}
				start := time.Now()
				end.of(a, r)
				go r.rest()
				for _, key := range []string{"k1", "k2", "k3"} {
					if l := lockOf(t, b, key); l.Abandoned() != (end.want && key != "k3") {
						t.Errorf("%s is abandoned: %v", key, l.Abandoned())
					}
				}
				if after := time.Since(start); after != end.after {
					t.Errorf("free after %v, want %v", after, end.after)
				}
				if err := <-r.served; err != end.err {
					t.Errorf("Serve returned %v", err)
				}
				if n := a.waiters("other"); n != 0 {
					t.Errorf("%d wait", n)
				}
				_ = other.Release()
			})
		})
	}
}

// A grant that comes as the connection ends is no client's, and takes no mark away.
func TestGrantAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // which comes first is chance
			a := newAgent(t)
			b := another(t, a.store)
			if err := lockOf(t, b, "k").Abandon(); err != nil {
				t.Fatal(err)
			}
			reader, err := b.RWMutex("k", nil).RLock(t.Context()) // sees the mark, and leaves it
			if err != nil {
				t.Fatal(err)
			}
			r := a.raw(nil)
			r.send("lock", `{"key":"k"}`)
			synctest.Wait()
			go func() { _ = reader.Release() }() // it may be lost by then
			r.Close()
			if l := lockOf(t, b, "k"); !l.Abandoned() {
				t.Fatal("the mark is gone")
			}
			t.Logf("it ended: %v", <-r.served)
			if n := a.waiters("k"); n != 0 {
				t.Fatalf("%d wait", n)
			}
		}
	})
}

// left_ms counts from the request, also where that waited.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		held := lockOf(t, another(t, a.store), "k")
		time.AfterFunc(time.Hour, func() { _ = held.Release() })
		start := time.Now()
		l, err := a.client().Lock(t.Context(), pipe.LockParams{Key: "k"})
		l = must(t, l, err)
		if left := time.Duration(l.Left)*time.Millisecond - time.Since(start); left < 25*time.Second || left > 30*time.Second || l.Err() != nil {
			t.Errorf("%v are left: %v", left, l.Err())
		}
	})
}

// linger_ms keeps the key of a client that is gone; not that of one which said bye.
func TestLinger(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(a *agent, r *raw)
		after time.Duration
	}{
		"gone":                {func(_ *agent, r *raw) { r.Close() }, time.Minute},
		"bye":                 {func(_ *agent, r *raw) { r.send("bye", "{}") }, 0},
		"the agent ends, too": {func(a *agent, r *raw) { a.stop(); r.Close() }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAgent(t)
				r := a.raw(nil)
				r.ask("lock", `{"key":"k","linger_ms":60000}`)
				start := time.Now()
				c.end(a, r)
				go r.rest()
				l := lockOf(t, another(t, a.store), "k")
				if after := time.Since(start); after != c.after || l.Abandoned() != (after > 0) {
					t.Errorf("granted after %v, abandoned: %v", after, l.Abandoned())
				}
			})
		})
	}
}

// A client that reads no answers is dropped, and no other one with it.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		r, other := a.raw(nil), a.client()
		r.ask("lock", `{"key":"k"}`)
		sent := 0
		for ; sent < 100_000; sent++ {
			if _, err := io.WriteString(r, request(sent, "status", "{}")+"\n"); err != nil {
				break
			}
		}
		if err := <-r.served; err != nil {
			t.Error(err)
		}
		if sent > 50_000 {
			t.Errorf("%d answers were kept", sent)
		}
		l, err := other.Lock(t.Context(), pipe.LockParams{Key: "k", Wait: once})
		if !must(t, l, err).Abandoned {
			t.Error("not abandoned")
		}
	})
}

// The limits of a connection, which a request that fails does not use up.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		keys := func(n, from int) string {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprint(from+i))
			}
			return `{"wait_ms":0,"keys":["` + strings.Join(all, `","`) + `"]}`
		}
		r := a.raw(nil)
		if l := r.ask("lock", keys(1000, 0)); l.kind() != "limit" { // the answer would not fit
			t.Fatalf("1000 keys: %v", l.kind())
		}
		for i := range 40 {
			if l := r.ask("lock", keys(250, 1000*i)); l.kind() != "" {
				t.Fatal(l.Error.Message)
			}
		}
		if l := r.ask("lock", `{"key":"one more"}`); l.kind() != "limit" {
			t.Errorf("lease 10,001: %q", l.kind())
		}
		r.ask("release", `{"lease":"7"}`)
		for range 300 {
			if l := r.ask("lock", `{"key":"1","wait_ms":0}`); l.kind() != "busy" {
				t.Fatalf("what is held: %q", l.kind())
			}
		}
		for i := range 250 {
			if l := r.ask("lock", fmt.Sprintf(`{"key":"more %d"}`, i)); l.kind() != "" {
				t.Fatal(l.Error.Message)
			}
		}
		r.Close()
		t.Logf("it ended: %v", <-r.served)

		lockOf(t, another(t, a.store), "k")
		r = a.raw(nil)
		for i := range pipe.MaxWaiting + 1 {
			r.write(request(100+i, "lock", `{"key":"k"}`))
		}
		if l := r.next(); l.kind() != "limit" {
			t.Errorf("wait 1,001: %+v", l)
		}
		synctest.Wait()
		if n := a.waiters("k"); n != pipe.MaxWaiting {
			t.Errorf("%d wait", n)
		}
		if l := r.ask("status", "{}"); !strings.Contains(string(l.Result), `"waiting":1000`) {
			t.Errorf("status: %s", l.Result)
		}
		r.Close()
		t.Logf("it ended: %v", <-r.served)
		if n := a.waiters("k"); n != 0 {
			t.Errorf("%d wait at the end", n)
		}
	})
}

// What a request that is wrong is told, by kind, or by the code alone.
func TestWrongRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		lockOf(t, another(t, a.store), "held")
		r := a.raw(nil)
		for _, c := range []struct{ method, params, want string }{
			{"steal", `{}`, "unsupported"},
			{strings.Repeat("<", 60_000), `{}`, "unsupported"},
			{"lock", `{"key":"u","unknown":{"x":[1]}}`, ""},
			{"lock", `{"key":"reason","reason":"` + strings.Repeat(`\u0000<\n`, 1000) + `"}`, ""},
			{"lock", `{}`, "invalid"},
			{"lock", `null`, "invalid"},
			{"lock", `[]`, "invalid"},
			{"lock", `{"key":5}`, "invalid"},
			{"lock", `{"keys":"k"}`, "invalid"},
			{"lock", `{"keys":[""]}`, "invalid"},
			{"lock", `{"key":"` + strings.Repeat("k", 513) + `"}`, "invalid"},
			{"lock", `{"key":"\ud800"}`, "invalid"},
			{"lock", `{"keys":["x","\udfff\ud800"]}`, "invalid"},
			{"lock", `{"key":"` + strings.Repeat("\uFFFD", 20_000) + `"}`, "invalid"},
			{"lock", `{"key":"k","ttl_ms":-1}`, "invalid"},
			{"lock", `{"key":"k","ttl_ms":1e300}`, "invalid"},
			{"lock", `{"key":"k","ttl_ms":1e999}`, "invalid"},
			{"lock", `{"key":"k","wait_ms":-1}`, "invalid"},
			{"lock", `{"key":"k","wait_ms":1e300}`, "invalid"},
			{"lock", `{"key":"k","mode":"both"}`, "invalid"},
			{"lock", `{"key":"k","mode":"shared","slots":2}`, "invalid"},
			{"lock", `{"key":"k","slots":-1}`, "invalid"},
			{"lock", `{"key":"held","wait_ms":0}`, "busy"},
			{"lock", `{"key":"held","wait_ms":100}`, "busy"},
			{"release", `{}`, "invalid"},
			{"release", `{"lease":"99"}`, "invalid"},
			{"extend", `{"lease":"1"}`, "invalid"},
			{"extend", `{"lease":"1","ttl_ms":1e-6}`, "invalid"},
			{"status", `{"lease":"99"}`, "invalid"},
			{"show", `{"key":""}`, "invalid"},
			{"list", `{"after":"no base64!"}`, "invalid"},
			{"hello", `{"protocols":[2]}`, "unsupported"},
			{"hello", `{"protocols":["1"]}`, "invalid"},
			{"hello", `{"alive_ms":-1}`, "invalid"},
			{"status", `{}`, ""},
		} {
			if l := r.ask(c.method, c.params); l.kind() != c.want {
				t.Errorf("%.20s %.60s: %q, want %q (%+v)", c.method, c.params, l.kind(), c.want, l.Error)
			}
		}
		if l := a.silent(nil).ask("status", "{}"); l.kind() != "invalid" {
			t.Errorf("before hello: %q", l.kind())
		}
		r = a.silent(nil)
		if l := r.ask("hello", `{"protocols":[7]}`); l.kind() != "unsupported" {
			t.Errorf("another version: %q", l.kind())
		}
		if l := r.ask("status", "{}"); l.kind() != "invalid" {
			t.Errorf("after another version: %q", l.kind())
		}
	})
}

// Requests that are sent without a wait for hello's answer, and an id that is used twice, cancelled, and used again.
func TestIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		held := lockOf(t, another(t, a.store), "k")
		for range 50 { // the goroutines of requests begin in any order
			r := a.silent(nil)
			r.write(request(`"a"`, "hello", "{}"), request(`"a"`, "status", "{}"))
			if one, two := r.next(), r.next(); one.Error != nil || two.Error != nil {
				t.Fatal("a request behind hello came before it")
			}
			r.send("bye", "{}")
			if all := r.rest(); len(all) != 1 || all[0].Error != nil {
				t.Fatalf("the answer to bye is %+v", all)
			}
		}
		r := a.raw(nil)
		cancel := `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"b"}}`
		lock := request(`"b"`, "lock", `{"key":"k"}`)
		r.write(lock, lock)
		if l := r.next(); l.kind() != fmt.Sprint(jsonrpc.CodeRequest) || string(l.ID) != `"b"` {
			t.Errorf("the id under way: %+v", l)
		}
		synctest.Wait()
		r.write(cancel)
		if l := r.next(); l.kind() != "cancelled" || l.Error.Code != jsonrpc.CodeCancelled || a.waiters("k") != 0 {
			t.Errorf("cancelled: %+v", l)
		}
		r.write(lock)
		synctest.Wait()
		_ = held.Release()
		if l := r.next(); l.Error != nil {
			t.Errorf("used again: %+v", l.Error)
		}
		r.write(cancel) // too late
		if l := r.ask("status", "{}"); !strings.Contains(string(l.Result), `"leases":1,"waiting":0`) {
			t.Errorf("status: %s", l.Result)
		}
	})
}

// What the agent tells of a lease comes behind the answer that names it. No bubble: there, no time would pass in between.
func TestNoticesComeBehindTheGrant(t *testing.T) {
	a := newAgent(t)
	for i := range 30 { // the goroutines run in any order
		var keys []string
		for j := range 200 {
			keys = append(keys, fmt.Sprintf("%d/%d", i, j))
		}
		r := a.raw(nil)
		id := r.send("lock", fmt.Sprintf(`{"keys":["%s"],"max_hold_ms":0.001}`, strings.Join(keys, `","`)))
		if l := r.next(); string(l.ID) != fmt.Sprint(id) {
			t.Fatalf("%+v comes before the grant", l)
		}
		if l := r.next(); l.Method != "lost" || l.Params.Lease != "1" || l.Params.Message == "" {
			t.Fatalf("%+v", l)
		}
		if l := r.ask("release", `{"lease":"1"}`); l.kind() != "lost" {
			t.Fatalf("release: %+v", l)
		}
		r.Close()
	}
}

// The client hears of a loss before another can have the key, lead_ms earlier, and of another that waits.
func TestNotices(t *testing.T) {
	for name, c := range map[string]struct {
		params string
		away   bool // the store is silent
		method string
		after  time.Duration
		left   time.Duration
	}{
		"max_hold_ms":        {`"max_hold_ms":5000`, false, "lost", 5 * time.Second, 0},
		"the store is away":  {`"ttl_ms":30000`, true, "lost", 30 * time.Second, 0},
		"lead_ms":            {`"ttl_ms":30000,"lead_ms":10000`, true, "lost", 20 * time.Second, 10 * time.Second},
		"wanted":             {`"ttl_ms":30000,"wanted":true`, false, "wanted", 10 * time.Second, 30 * time.Second},
		"wanted in a cohort": {`"ttl_ms":30000,"wanted":true,"cohort_ms":60000`, false, "wanted", 10 * time.Second, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				d := &faulty{Driver: store}
				a := agentOf(t, d)
				b := another(t, store)
				r := a.raw(nil)
				start := time.Now()
				if l := r.ask("lock", `{"key":"k",`+c.params+`}`); l.Error != nil {
					t.Fatal(l.Error.Message)
				}
				d.away.Store(c.away)
				next := make(chan time.Time, 1)
				go func() {
					lockOf(t, b, "k")
					next <- time.Now()
				}()
				l := r.next()
				heard := time.Now()
				if l.Method != c.method || l.Params.Lease != "1" || len(l.Params.Keys) != 1 {
					t.Errorf("%+v", l)
				}
				left := time.Duration(l.Params.Left) * time.Millisecond
				t.Logf("heard after %v, left %v", heard.Sub(start), left)
				if c.method == "wanted" {
					r.ask("release", `{"lease":"1"}`)
				} else if after := heard.Sub(start); after > c.after || left > c.left {
					t.Errorf("told after %v with %v left", after, left)
				}
				if granted := <-next; granted.Before(heard) {
					t.Errorf("granted %v before it was told", heard.Sub(granted))
				}
			})
		})
	}
}

// faulty is a store with faults.
type faulty struct {
	driver.Driver
	away  atomic.Bool  // no renewal is answered
	class driver.Class // of the trouble with each Try
}

func (d *faulty) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	if !d.away.Load() {
		d.Driver.Renew(ctx, rs, done)
	}
}

func (d *faulty) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if d.class != driver.ClassUnknown {
		return driver.Result{}, errors.New("a fault")
	}
	return d.Driver.Try(ctx, r)
}

func (d *faulty) Classify(error) driver.Class { return d.class }

// The kind of an error is that of its class.
func TestKinds(t *testing.T) {
	for class, want := range map[driver.Class]pipe.Kind{
		driver.ClassUnreachable: pipe.Unavailable, driver.ClassLogin: pipe.Denied, driver.ClassDenied: pipe.Denied, driver.ClassReadOnly: pipe.Misconfigured,
		driver.ClassFull: pipe.Misconfigured, driver.ClassMisconfigured: pipe.Misconfigured, driver.ClassImpossible: pipe.Invalid,
	} {
		t.Run(class.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := agentOf(t, &faulty{Driver: memdriver.New(), class: class}).client().Lock(t.Context(), pipe.LockParams{Key: "k", Wait: once})
				wantKind(t, err, want)
			})
		})
	}
}

// A lease that ends while it lingers holds up nobody, and not the agent's end; one key of several keeps the others.
func TestLingerEndsWithTheLease(t *testing.T) {
	for keys, want := range map[string]time.Duration{"k": 10 * time.Second, "k other": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			a := newAgent(t)
			one := a.client()
			l, err := one.Lock(t.Context(), pipe.LockParams{Keys: strings.Fields(keys), Linger: 3_600_000})
			l = must(t, l, err)
			one.Kill()
			began := time.Now()
			time.Sleep(time.Second)
			if err := a.locks.Operator().Break(t.Context(), "k", l.Keys[0].Owner); err != nil {
				t.Fatal(err)
			}
			t.Logf("it ended: %v", <-a.served)
			if took := time.Since(began); took > want+time.Second || took < want-11*time.Second {
				t.Errorf("%q lingered for %v", keys, took)
			}
		})
	}
}

// The smallest max_hold_ms is no way around the agent's bound.
func TestSmallestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		c, err := pipe.NewClient(t.Context(), a.connect(&pipe.Options{MaxHold: time.Hour}), "test", 0)
		c = must(t, c, err)
		defer c.Kill()
		l, err := c.Lock(t.Context(), pipe.LockParams{Key: "k", MaxHold: 1e-7})
		if time.Sleep(time.Second); err == nil && l.Err() == nil {
			t.Error("it is held without a bound")
		}
	})
}
