// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// silence is for how long a question may have no answer on a connection that is otherwise silent.
const silence = 2 * time.Second

// A link is judged in looks, so that a process that stood still counts one of them, whatever the clock says.
const (
	lookEvery = silence / 4
	fewLooks  = 4
	// mostLooks is above what a server takes to answer that it cannot carry out a request.
	mostLooks = 16
	// bears is for how long a server may count as slow after its connection was closed.
	bears = time.Minute
)

// links makes connections to etcd, and closes those that have died in silence. It learns from gRPC's events what
// was asked on which. A server may be slow instead of dead: for some time its next connection gets twice as many
// looks, so that it comes to answer.
type links struct {
	dial func(ctx context.Context, addr string) (net.Conn, error)

	mu     sync.Mutex
	closed map[string]closed // by address
}

// closed is how a connection to an address was closed last.
type closed struct {
	at    time.Time
	looks int // without a word
}

var errDead = fmt.Errorf("nothing was heard for %v or more on a connection on which something was asked, so it was closed", silence)

// link is a connection, and where it begins, by which gRPC's events name it.
type link struct {
	net.Conn
	all   *links
	addr  string
	heard atomic.Bool // something was read since the last look
	dead  atomic.Bool // it was closed for its silence

	mu    sync.Mutex
	asked map[*rpc]bool // without an answer; false: nothing waits for it any more; nil: the connection has ended
	timer *time.Timer   // of the next look; nil: nothing is asked
	looks int           // in which nothing was heard
}

// rpc is a request or a stream of gRPC.
type rpc struct {
	slow   bool // its answer may take longer
	stream bool // it says itself when it sends
	on     atomic.Pointer[link]
}

type localAddr struct {
	net.Addr
	link *link
}

func (l *link) LocalAddr() net.Addr { return &localAddr{l.Conn.LocalAddr(), l} }

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.heard.Store(true)
	}
	if err != nil {
		l.mu.Lock()
		l.asked = nil // whatever was asked on it is no more a sign of silence
		l.mu.Unlock()
		if l.dead.Load() {
			err = errDead
		}
	}
	return n, err
}

func (ls *links) connect(ctx context.Context, addr string) (net.Conn, error) {
	dial := ls.dial
	if dial == nil {
		dial = dialNet
	}
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &link{Conn: c, all: ls, addr: addr, asked: make(map[*rpc]bool)}, nil
}

func dialNet(ctx context.Context, addr string) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", strings.TrimPrefix(path, "//")
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

type rpcKey struct{}

// TagRPC implements [stats.Handler].
func (ls *links) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if _, ok := ctx.Value(rpcKey{}).(*rpc); ok {
		return ctx
	}
	return context.WithValue(ctx, rpcKey{}, &rpc{slow: info.FullMethodName == authenticate})
}

// HandleRPC implements [stats.Handler].
func (ls *links) HandleRPC(ctx context.Context, event stats.RPCStats) {
	r, ok := ctx.Value(rpcKey{}).(*rpc)
	if !ok || r.slow {
		return
	}
	switch event := event.(type) {
	case *stats.OutHeader:
		if local, ok := event.LocalAddr.(*localAddr); ok {
			r.on.Store(local.link)
		}
	case *stats.OutPayload:
		if !r.stream {
			r.asks()
		}
	case *stats.InPayload, *stats.End:
		if on := r.on.Load(); on != nil {
			on.over(r)
		}
	}
}

// stream opens a stream on which each message that is sent is answered. gRPC tells of a message after it was
// sent, when another goroutine may have had the answer.
func (*links) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	r := &rpc{stream: true}
	s, err := open(context.WithValue(ctx, rpcKey{}, r), desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &asking{s, r}, nil
}

type asking struct {
	grpc.ClientStream
	r *rpc
}

func (s *asking) SendMsg(m any) error {
	s.r.asks()
	return s.ClientStream.SendMsg(m)
}

func (r *rpc) asks() {
	if on := r.on.Load(); on != nil {
		on.asks(r)
	}
}

// TagConn implements [stats.Handler].
func (ls *links) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (ls *links) HandleConn(context.Context, stats.ConnStats) {}

func (l *link) asks(r *rpc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		return
	}
	l.asked[r] = true
	if l.timer == nil {
		l.looks = 0
		l.heard.Store(false)
		l.timer = time.AfterFunc(lookEvery, l.look)
	}
}

// over notes an answer, or that nothing waits for one any more. That is no answer, if there was time for one.
func (l *link) over(r *rpc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, asked := l.asked[r]; asked && l.looks > 0 && !l.heard.Load() {
		l.asked[r] = false
		return
	}
	delete(l.asked, r)
}

// look is made while something is asked.
func (l *link) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks++; l.heard.Swap(false) {
		l.looks = 0
		maps.DeleteFunc(l.asked, func(_ *rpc, waits bool) bool { return !waits })
	}
	if len(l.asked) == 0 {
		l.timer = nil
		return
	}
	if l.all.enough(l.addr, l.looks) {
		l.dead.Store(true)
		_ = l.Close() // gRPC's reader notices
		return
	}
	l.timer.Reset(lookEvery)
}

// enough reports whether a connection to an address is to be closed after so many looks without a word.
func (ls *links) enough(addr string, looks int) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	least := fewLooks
	if last := ls.closed[addr]; time.Since(last.at) < bears {
		least = min(2*last.looks, mostLooks)
	}
	if looks < least {
		return false
	}
	ls.closed[addr] = closed{time.Now(), looks}
	return true
}
