// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/internal/people"
)

// Options are those of one connection. The zero value is usable.
type Options struct {
	Hello   Hello         // what the agent says of itself: Hasp, Store and Promise; the rest is filled in
	Label   *driver.Label // the process at the other end; nil: this one
	TTL     time.Duration // of a lock that names none; 0: hasp.DefaultTTL
	MaxHold time.Duration // of a lock that names none; 0: no bound
	Grace   time.Duration // for how long clients may go on once ctx has ended
	// Explain returns the text of an error for people; nil: the error's own.
	Explain func(error) string
}

// Serve answers the client at the other end of a connection until that closes it, breaks the protocol, or ctx ends. Then its leases
// are released: as finished after bye, else as abandoned. It returns when they are, jsonrpc.ErrBroken for a client that broke the
// protocol, and nil otherwise. c stays open.
func Serve(ctx context.Context, c *hasp.Client, rwc io.ReadWriteCloser, o *Options) error {
	s := &server{locks: c, o: o, ctx: ctx, leases: map[string]*lease{}}
	s.conn = jsonrpc.New(rwc, s.handle, s.heard)
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	err := s.conn.Serve(context.WithoutCancel(ctx), s.over)
	s.given.Wait()
	return err
}

// server is the agent's end of one connection.
type server struct {
	locks *hasp.Client
	o     *Options
	conn  *jsonrpc.Conn
	given sync.WaitGroup // releases without a request

	ctx context.Context //nolint:containedctx // ends when the agent is to end: no request's

	mu      sync.Mutex
	met     bool // hello came
	bye     bool
	ending  bool // nothing more is granted
	closed  bool // the connection has ended
	leases  map[string]*lease
	keys    int // of the leases, and those that are asked for
	waiting int // requests for a lock under way
	others  int // requests of other kinds
	last    uint64
	alive   *time.Timer // ends a silent connection
	silence time.Duration
	silent  int       // how many eighths of it have passed
	due     time.Time // when the next has
}

// lease is a grant to the client.
type lease struct {
	*hasp.Leases
	linger  time.Duration
	granted chan struct{} // closed when the client was told of it
	forget  func() bool   // of its end
	told    atomic.Bool   // the client was told that it is lost
}

// heard notes a sign of life.
func (s *server) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive != nil {
		s.silent = 0
		s.listen()
	}
}

// eighths are the parts in which a silence is measured.
const eighths = 8

// leastSilence bounds how often a part is measured: a client that names less would have the agent do nothing else.
const leastSilence = time.Second

// listen measures one more part of a silence.
func (s *server) listen() {
	s.due = time.Now().Add(s.silence / eighths)
	s.alive.Reset(s.silence / eighths)
}

// unheard closes a connection on which nothing came for too long. What came while the agent stood still it has not read yet, so it begins anew.
func (s *server) unheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch late := time.Since(s.due); {
	case late < 0 || s.closed: // a line came meanwhile, or the end
		return
	case late > s.silence/eighths:
		s.silent = 0
	default:
		s.silent++
	}
	if s.silent == eighths {
		s.conn.Close()
		return
	}
	s.listen()
}

// handle answers a request.
func (s *server) handle(ctx context.Context, method string, params json.RawMessage, notification bool) (any, error) {
	came := clock.System()
	if notification { // a client that lives may say so, and no more
		return nil, nil
	}
	do := methods[method]
	if do == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethod, Message: fmt.Sprintf("there is no method %.100q", method), Data: ErrorData{Kind: Unsupported}}
	}
	if err := s.begin(method); err != nil {
		return nil, err
	}
	defer s.done(method)
	result, err := do(s, ctx, params, came)
	return result, s.errorOf(ctx, err)
}

// begin counts a request in, unless there are too many.
func (s *server) begin(method string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.met && method != "hello":
		return failure(Invalid, "the first request is hello")
	case method == "lock" && s.waiting >= MaxWaiting:
		return failure(Limit, "a connection waits for at most %d locks", MaxWaiting)
	case method == "lock":
		s.waiting++
	case s.others >= MaxWaiting:
		return failure(Limit, "%d requests are under way", s.others)
	default:
		s.others++
	}
	return nil
}

func (s *server) done(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == "lock" {
		s.waiting--
	} else {
		s.others--
	}
}

// method answers a request that came at a time.
type method func(s *server, ctx context.Context, params json.RawMessage, came clock.Instant) (any, error)

var methods = map[string]method{
	"hello": with((*server).hello), "lock": with((*server).lock), "release": with((*server).release), "extend": with((*server).extend),
	"status": with((*server).status), "show": with((*server).show), "list": with((*server).list), "bye": with((*server).sayBye),
}

// with has a method's parameters read.
func with[P any](do func(s *server, ctx context.Context, p *P, came clock.Instant) (any, error)) method {
	return func(s *server, ctx context.Context, params json.RawMessage, came clock.Instant) (any, error) {
		p := new(P)
		if len(params) > 0 {
			err := json.Unmarshal(params, p)
			if of := (*json.UnmarshalTypeError)(nil); errors.As(err, &of) {
				return nil, failure(Invalid, "the parameter %q cannot be a %s", of.Field, of.Value)
			} else if err != nil {
				return nil, failure(Invalid, "the parameters are no object: %v", err)
			}
		}
		return do(s, ctx, p, came)
	}
}

func (s *server) hello(_ context.Context, p *helloParams, _ clock.Instant) (any, error) {
	if len(p.Protocols) > 0 && !slices.Contains(p.Protocols, Version) {
		return nil, failure(Unsupported, "this agent speaks version %d of the protocol", Version)
	}
	if p.Alive < 0 || p.Alive > maxMillis {
		return nil, failure(Invalid, "alive_ms is %v", float64(p.Alive))
	}
	s.mu.Lock()
	if s.met = true; p.Alive > 0 && s.alive == nil {
		s.silence = max(p.Alive.duration(), leastSilence)
		s.alive = time.AfterFunc(s.silence, s.unheard)
		s.listen()
	}
	s.mu.Unlock()
	tr, h := s.locks.Traits(), s.o.Hello
	h.Protocol, h.Engine, h.Fences, h.Queue, h.Shared, h.Slots, h.Abandoned = Version, tr.Engine, tr.Fencing, tr.Queue != driver.QueueNone, tr.Shared, tr.Slots, tr.MarksAbandoned
	h.MinTTL, h.MaxTTL, h.TTL, h.MaxHold = tr.MinTTL.Milliseconds(), tr.MaxTTL.Milliseconds(), s.o.ttl().Milliseconds(), s.o.MaxHold.Milliseconds()
	return h, nil
}

func (o *Options) ttl() time.Duration {
	if o.TTL != 0 {
		return o.TTL
	}
	return hasp.DefaultTTL
}

func (s *server) lock(ctx context.Context, p *LockParams, came clock.Instant) (result any, err error) {
	items, err := p.items(s.locks, s.o)
	if err == nil {
		err = s.count(len(items))
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.count(-len(items))
		}
	}()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.ctx, func() { end(hasp.ErrClosed) })()
	take := items.Lock
	switch {
	case p.Wait == nil:
	case *p.Wait < 0 || *p.Wait > maxMillis:
		return nil, failure(Invalid, "wait_ms is %v", float64(*p.Wait))
	case *p.Wait == 0:
		take = items.TryLock
	default:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.Wait.duration(), errWaited)
		defer cancel()
	}
	leases, err := take(ctx)
	if err != nil {
		return nil, err
	}
	id, l := s.add(leases, p)
	if l == nil { // the client does not know of it, and finishes nothing that another left
		for _, one := range leases.All() {
			if one.Abandoned() {
				_ = one.Abandon()
			}
		}
		_ = leases.Release()
		return nil, failure(Closed, "the connection, or the agent, ends")
	}
	return jsonrpc.Then{Result: granted(id, leases, s.locks.Traits(), p.Slots > 0, came), Do: func() { close(l.granted) }}, nil
}

// count counts keys in, unless there are too many.
func (s *server) count(keys int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys+keys > MaxLeases {
		return failure(Limit, "a connection has at most %d leases: one of each key", MaxLeases)
	}
	s.keys += keys
	return nil
}

var errWaited = errors.New("wait_ms is over")

// add notes a grant; nil: nothing more is granted.
func (s *server) add(leases *hasp.Leases, p *LockParams) (id string, l *lease) {
	l = &lease{Leases: leases, linger: p.Linger.duration(), granted: make(chan struct{})}
	ended := leases.Context(context.Background())
	var wanted <-chan struct{}
	if p.Wanted {
		wanted = leases.Wanted()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ending || s.bye {
		return "", nil
	}
	s.last++
	id = strconv.FormatUint(s.last, 10)
	s.leases[id] = l
	l.forget = context.AfterFunc(ended, func() { s.lost(id, l) })
	if wanted != nil {
		go func() {
			select {
			case <-wanted:
				<-l.granted
				s.conn.Notify("wanted", Notice{Lease: id, Keys: keysOf(leases), Left: max(time.Until(leases.Deadline()), 0).Milliseconds()})
			case <-ended.Done():
			}
		}()
	}
	return id, l
}

func keysOf(leases *hasp.Leases) (keys []string) {
	for _, l := range leases.All() {
		keys = append(keys, l.Key())
	}
	return keys
}

// lost tells the client of a loss. The lease is the client's until it releases it.
func (s *server) lost(id string, l *lease) {
	<-l.granted
	if err := l.Err(); errors.Is(err, hasp.ErrLost) || errors.Is(err, hasp.ErrClosed) {
		left := max(time.Until(l.Deadline()), 0)
		if errors.Is(err, hasp.ErrNotHeld) { // it is another's
			left = 0
		}
		s.conn.Notify("lost", Notice{Lease: id, Keys: keysOf(l.Leases), Left: left.Milliseconds(), Message: s.text(err)})
		l.told.Store(true)
	}
}

// leaseParams name a lease.
type leaseParams struct {
	Lease string `json:"lease"`
	TTL   Millis `json:"ttl_ms"` // of extend

	Abandoned bool `json:"abandoned,omitempty"` // of release: as Lease.Abandon of package hasp
}

// find returns a lease; take: it is the client's no more.
func (s *server) find(id string, take bool) (*lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil {
		return nil, failure(Invalid, "this connection has no lease %.100q", id)
	}
	if take {
		delete(s.leases, id)
		s.keys -= len(l.All())
		l.forget()
	}
	return l, nil
}

func (s *server) release(_ context.Context, p *leaseParams, _ clock.Instant) (any, error) {
	l, err := s.find(p.Lease, true)
	if err != nil {
		return nil, err
	}
	return nil, l.giveBack(p.Abandoned)
}

func (s *server) extend(ctx context.Context, p *leaseParams, came clock.Instant) (any, error) {
	l, err := s.find(p.Lease, false)
	if err != nil {
		return nil, err
	}
	if p.TTL <= 0 || p.TTL > maxMillis {
		return nil, failure(Invalid, "ttl_ms is %v", float64(p.TTL))
	}
	for _, one := range l.All() {
		if err := one.Extend(ctx, p.TTL.duration()); err != nil {
			return nil, err
		}
	}
	return until(clock.System(), l.Deadline(), came), nil
}

// status says until when a lease may be relied on, or all. It asks the clock, not the store.
func (s *server) status(_ context.Context, p *leaseParams, came clock.Instant) (any, error) {
	if p.Lease != "" {
		l, err := s.find(p.Lease, false)
		if err == nil {
			err = l.Err()
		}
		if err != nil {
			return nil, err
		}
		return Status{Leases: 1, Until: until(clock.System(), l.Deadline(), came)}, nil
	}
	s.mu.Lock()
	st := Status{Leases: len(s.leases), Waiting: s.waiting}
	all := make([]*lease, 0, len(s.leases))
	for _, l := range s.leases {
		all = append(all, l)
	}
	s.mu.Unlock()
	now, first := clock.System(), time.Time{}
	for _, l := range all {
		if d := l.Deadline(); !l.told.Load() && (first.IsZero() || d.Before(first)) { // the client knows what it was told
			first = d
		}
	}
	if !first.IsZero() {
		st.Until = until(now, first, came)
	}
	return st, nil
}

// end has the client told that the agent ends, and its connection closed after the grace.
func (s *server) end() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.conn.Notify("ending", Notice{Left: s.o.Grace.Milliseconds()})
	time.AfterFunc(s.o.Grace, s.conn.End)
}

// sayBye releases all that the client has as finished, and closes the connection behind the answer.
func (s *server) sayBye(context.Context, *struct{}, clock.Instant) (any, error) {
	s.mu.Lock()
	s.bye = true
	s.mu.Unlock()
	return jsonrpc.Then{Do: s.conn.End}, s.releaseAll()
}

// over releases all that the client has when its connection has ended.
func (s *server) over() {
	s.mu.Lock()
	s.closed = true
	if s.alive != nil {
		s.alive.Stop()
	}
	s.mu.Unlock()
	_ = s.releaseAll() // no client is left to be told; the TTL ends what stays
}

// releaseAll releases all leases at once.
func (s *server) releaseAll() error {
	s.mu.Lock()
	all, bye := s.leases, s.bye
	s.leases = map[string]*lease{}
	s.mu.Unlock()
	errs := make(chan error, len(all))
	for _, l := range all {
		l.forget()
		s.given.Go(func() {
			if bye || l.lingers() {
				errs <- l.giveBack(!bye)
			}
		})
	}
	if !bye {
		return nil
	}
	var joined error
	for range all {
		joined = errors.Join(joined, <-errs)
	}
	return joined
}

// lingers waits for linger_ms, also when the agent ends: what the lease protects has no fence. False: all keys were lost
// before, and what the store still has of them stays until its TTL is over.
func (l *lease) lingers() bool {
	over := time.After(l.linger)
	for _, one := range l.All() {
		select {
		case <-over:
			return true
		case <-one.Done():
		}
	}
	return l.linger == 0
}

func (l *lease) giveBack(abandoned bool) error {
	if abandoned {
		return l.Abandon()
	}
	return l.Release()
}

// keyParams name a key.
type keyParams struct {
	Key string `json:"key"`
}

func (s *server) show(ctx context.Context, p *keyParams, _ clock.Instant) (any, error) {
	info, err := s.locks.Operator().Inspect(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	info.Key = p.Key
	k := people.ToKeyJSON(info)
	for most := 50; ; most /= 2 { // labels of the largest size have fewer of them fit
		k.Holders, k.Queue = k.Holders[:min(len(k.Holders), most)], k.Queue[:min(len(k.Queue), most)]
		if line, err := json.Marshal(k); err != nil || len(line) < maxPage || most == 0 {
			return k, err
		}
	}
}

// listParams are those of list.
type listParams struct {
	Prefix string `json:"prefix"`
	After  []byte `json:"after"` // Listing.Next
}

// Listing is the answer to list.
type Listing struct {
	Keys []people.KeyJSON `json:"keys"`
	Next []byte           `json:"next,omitempty"` // what to list after; none: that was all
}

const (
	maxListed = 200             // keys of a listing
	maxPage   = MaxLine * 3 / 4 // bytes of it
)

// list lists keys in their order, as many as a line has room for.
func (s *server) list(ctx context.Context, p *listParams, _ clock.Instant) (any, error) {
	var found []hasp.Info // the first ones after p.After
	for info, err := range s.locks.Operator().List(ctx, p.Prefix) {
		if err != nil {
			return nil, err
		}
		at, twice := slices.BinarySearchFunc(found, info.Key, func(i hasp.Info, key string) int { return strings.Compare(i.Key, key) })
		if info.Key <= string(p.After) || twice || at > maxListed {
			continue
		}
		found = slices.Insert(found, at, info)
		found = found[:min(len(found), maxListed+1)]
	}
	l, size := Listing{Keys: []people.KeyJSON{}}, 0
	for i, info := range found {
		k := people.ToKeyJSON(info)
		line, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		if size += len(line); i == maxListed || i > 0 && size > maxPage {
			l.Next = []byte(found[i-1].Key)
			break
		}
		l.Keys = append(l.Keys, k)
	}
	return l, nil
}

// text is an error for people.
func (s *server) text(err error) string {
	text := err.Error()
	if s.o.Explain != nil {
		text = s.o.Explain(err)
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// maxText bounds a text, in bytes: in JSON each may become six, and a notice without room in a line would not be sent.
const maxText = 4000

// errorOf is what the client is told of an error. ctx is the request's.
func (s *server) errorOf(ctx context.Context, err error) error {
	if err == nil || errors.As(err, new(*jsonrpc.Error)) {
		return err
	}
	e := &jsonrpc.Error{Code: codeFailed, Message: s.text(err)}
	d := ErrorData{Kind: kindOf(err)}
	if ctx.Err() != nil {
		e.Code, d.Kind = jsonrpc.CodeCancelled, Cancelled
	}
	if of := (*hasp.Error)(nil); errors.As(err, &of) {
		d.Key = of.Key
	}
	if held := (*hasp.HeldError)(nil); errors.As(err, &held) {
		d.Holder = people.Holding(held.Holder)
	}
	e.Data = d
	return e
}

// kindOfError is what an error of package hasp is to a client.
type kindOfError struct {
	err  error
	kind Kind
}

var kinds = []kindOfError{{hasp.ErrLost, Lost}, {hasp.ErrClosed, Closed}, {hasp.ErrUnsupported, Unsupported}, {hasp.ErrHeld, Busy}}

func kindOf(err error) Kind {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	if errors.Is(err, hasp.ErrNotHeld) {
		return Lost
	}
	class := driver.ClassUnknown
	if e := (*hasp.Error)(nil); errors.As(err, &e) {
		class = e.Class
	}
	switch class {
	case driver.ClassLogin, driver.ClassDenied:
		return Denied
	case driver.ClassReadOnly, driver.ClassFull, driver.ClassMisconfigured:
		return Misconfigured
	case driver.ClassImpossible:
		return Invalid
	}
	return Unavailable
}
