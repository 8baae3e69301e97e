// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// idlePulse is for how long a stream stays open without a keep-alive.
const idlePulse = time.Minute

// mostBeats is how many keep-alives on a stream may have no answer. The server answers also those of requests that have
// ended, before the next ones: so there are few.
const mostBeats = 16

var (
	errSilent = fmt.Errorf("etcd: no answer to a keep-alive for %v", silence)
	errIdle   = fmt.Errorf("etcd: no lease was kept alive for %v", idlePulse)
)

// pulse is the stream on which all leases of a driver are kept alive: each stream may cost a login. The server
// answers in the order of the requests, so a late answer says nothing of the stream while others come.
type pulse struct {
	ctx    context.Context // ends with the stream, its cause says why
	end    context.CancelCauseFunc
	room   chan struct{} // a token for each keep-alive that may be sent now; none before stream is there
	idle   *time.Timer
	silent *time.Timer // runs from the last answer on while another one is awaited

	mu      sync.Mutex
	stream  pb.Lease_LeaseKeepAliveClient
	waiting []beat
}

// beat is a keep-alive without an answer.
type beat struct {
	id     clientv3.LeaseID
	answer chan *pb.LeaseKeepAliveResponse // has room for it
}

// keepAliveOnce sends a keep-alive. While there is no answer it is sent again on another stream, which another
// member may have.
func (d *Driver) keepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	for {
		p := d.beating()
		res, err := p.beat(ctx, id)
		if res != nil || !errors.Is(err, errSilent) && !errors.Is(err, errIdle) {
			return res, clientv3.ContextError(ctx, err)
		}
	}
}

// beating returns the stream, and opens one where there is none.
func (d *Driver) beating() *pulse {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.pulse; p != nil && p.ctx.Err() == nil {
		p.idle.Reset(idlePulse)
		return p
	}
	p := &pulse{room: make(chan struct{}, mostBeats)}
	p.ctx, p.end = context.WithCancelCause(clientv3.WithRequireLeader(d.life))
	p.idle = time.AfterFunc(idlePulse, func() { p.end(errIdle) })
	p.silent = time.AfterFunc(silence, func() { p.end(errSilent) })
	p.silent.Stop()
	d.pulse = p
	d.goes(func() {
		if p.end(p.run(d.client)); !errors.Is(context.Cause(p.ctx), errIdle) {
			d.logInSoon()
		}
	})
	return p
}

// logInSoon asks for something once there is a connection again: servers that were restarted have forgotten the token, and the time
// until the next renewal is better spent on getting another one. What goes wrong here, that renewal says.
func (d *Driver) logInSoon() {
	ctx, cancel := context.WithTimeout(d.life, loginLimit)
	defer cancel()
	_, _ = pb.NewKVClient(d.client.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(d.prefix), Serializable: true}, grpc.WaitForReady(true))
}

// run opens the stream, with the client's login if it has one, and passes the answers on.
func (p *pulse) run(client *clientv3.Client) error {
	defer p.idle.Stop()
	defer p.silent.Stop()
	stream, err := clientv3.RetryLeaseClient(client).LeaseKeepAlive(p.ctx, grpc.WaitForReady(true)) // as all requests of the client
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.stream = stream
	p.mu.Unlock()
	for range mostBeats {
		p.room <- struct{}{}
	}
	for {
		res, err := stream.Recv()
		if err != nil {
			return err
		}
		p.mu.Lock()
		if len(p.waiting) == 0 || int64(p.waiting[0].id) != res.ID {
			p.mu.Unlock()
			return fmt.Errorf("etcd: an answer about a lease that was not asked for: %x", res.ID)
		}
		p.waiting[0].answer <- res
		if p.waiting = p.waiting[1:]; len(p.waiting) > 0 {
			p.silent.Reset(silence)
		} else {
			p.silent.Stop()
		}
		p.mu.Unlock()
		p.room <- struct{}{}
	}
}

// beat sends one keep-alive, and waits for its answer.
func (p *pulse) beat(ctx context.Context, id clientv3.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	select {
	case <-p.room:
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b := beat{id, make(chan *pb.LeaseKeepAliveResponse, 1)}
	p.mu.Lock()
	if len(p.waiting) == 0 {
		p.silent.Reset(silence)
	}
	p.waiting = append(p.waiting, b)
	err := p.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)})
	p.mu.Unlock()
	if err != nil {
		<-p.ctx.Done() // the reader knows why
		return nil, context.Cause(p.ctx)
	}
	select {
	case res := <-b.answer:
		return res, nil
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
