// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ConnectOptions are those of Connect.
type ConnectOptions struct {
	// Login returns the user and the password. It is asked anew for each login, so that a rotated password
	// is found. nil: those of the configuration.
	Login func() (user, password string, err error)
	// Dial connects to an address. nil: as the package net does.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

const (
	// connectLimit bounds the making of a connection.
	connectLimit = 3 * time.Second
	// pongLimit is for how long gRPC's own question of a connection may have no answer. A server that checks a hundred passwords at once
	// takes long, and checks those again that lost their connection meanwhile.
	pongLimit = 20 * time.Second
	// loginLimit bounds a login, which may outlive the request that began it. Each takes a server some
	// 70 ms of a processor, and a hundred clients may begin at once.
	loginLimit = 2 * time.Minute
)

// Connect returns a client that suits locks better than that of clientv3.New:
//
//   - It waits for nothing, also with a password.
//   - It logs in once for all its requests, and again when its token is refused, as after a restart of
//     the servers. clientv3.New's logs in for each stream, and for each request with a refused token.
//   - A connection that leaves a question unanswered for two seconds, and on which nothing else is heard, is
//     closed, and another one is made. So a half-open connection is noticed though a proxy acknowledges all
//     that is sent.
//
// What the configuration leaves at zero (keep-alives of gRPC) gets values that suit locks.
func Connect(config clientv3.Config, o *ConnectOptions) (*clientv3.Client, error) {
	if o == nil {
		o = &ConnectOptions{}
	}
	config.DialKeepAliveTime = cmp.Or(config.DialKeepAliveTime, 10*time.Second) // gRPC takes no less
	config.DialKeepAliveTimeout = cmp.Or(config.DialKeepAliveTimeout, pongLimit)
	config.PermitWithoutStream = true
	ls := &links{dial: o.Dial, closed: make(map[string]closed)}
	options := []grpc.DialOption{
		grpc.WithContextDialer(ls.connect), grpc.WithStatsHandler(ls), grpc.WithChainStreamInterceptor(ls.stream),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: connectLimit,
		}),
	}
	ask := o.Login
	if user, password := config.Username, config.Password; ask == nil && user != "" {
		ask = func() (string, string, error) { return user, password, nil }
	}
	if config.Username, config.Password = "", ""; ask != nil {
		l := &login{ask: ask}
		options = append(options, grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream))
	}
	config.DialOptions = append(options, config.DialOptions...)
	client, err := clientv3.New(config)
	if err == nil {
		client.Watcher = watcher{client.Watcher}
	}
	return client, err
}

// watcher bounds the end of a client. etcd's own waits for ever for a watch that was refused, for a token that is over, while its
// stream ended.
type watcher struct{ clientv3.Watcher }

func (w watcher) Close() error {
	ended := make(chan error, 1)
	go func() { ended <- w.Watcher.Close() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(closeTime): // its connection ends next
		return nil
	}
}

// login has the token that all requests of a client share.
type login struct {
	ask func() (user, password string, err error)

	mu    sync.Mutex
	last  *token // nil: there is none
	fresh bool   // no server has refused it, as far as is known
}

// token is what a login gives, once done is closed.
type token struct {
	done chan struct{}
	text string // empty: the servers know no users
	err  error
}

const authenticate = "/etcdserverpb.Auth/Authenticate"

// unary sends a request with the token, and again with another one when that is refused.
func (l *login) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == authenticate {
		return call(ctx, method, req, reply, cc, opts...)
	}
	for again := false; ; again = true {
		tok, err := l.token(ctx, cc)
		if err != nil {
			return err
		}
		err = call(tok.on(ctx), method, req, reply, cc, opts...)
		switch {
		case !stale(err):
			return err
		case again: // in words that clientv3 does not know, since it would go on a hundred times
			return status.Errorf(codes.Unauthenticated, "etcd refused a token that it had just given: %s", status.Convert(err).Message())
		}
		l.refused(tok)
	}
}

// stream opens a stream with the token, which it keeps.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	tok, err := l.token(ctx, cc)
	if err != nil {
		return nil, err
	}
	return open(tok.on(ctx), desc, cc, method, opts...)
}

func (t *token) on(ctx context.Context) context.Context {
	if t.text == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, t.text)
}

// stale reports whether an error says that a request needs another token.
func stale(err error) bool {
	known := rpctypes.Error(err)
	return errors.Is(known, rpctypes.ErrInvalidAuthToken) || errors.Is(known, rpctypes.ErrAuthOldRevision) || errors.Is(known, rpctypes.ErrUserEmpty)
}

// token returns the token of all. It waits for the login under way, which goes on when ctx ends.
func (l *login) token(ctx context.Context, cc *grpc.ClientConn) (*token, error) {
	l.mu.Lock()
	t := l.last
	if !l.fresh {
		t = &token{done: make(chan struct{})}
		l.last, l.fresh = t, true
		go l.get(t, cc)
	}
	l.mu.Unlock()
	select {
	case <-t.done:
		return t, t.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// refused has the next request log in anew, unless another one has done so since.
func (l *login) refused(t *token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == t {
		l.fresh = false
	}
}

func (l *login) get(t *token, cc *grpc.ClientConn) {
	defer close(t.done)
	ctx, cancel := context.WithTimeout(context.Background(), loginLimit) // the end of cc ends it, too
	defer cancel()
	user, password, err := l.ask()
	if err == nil && !utf8.ValidString(user+password) {
		err = &configError{"the user or the password is no UTF-8, and etcd takes no other"}
	}
	if err == nil {
		var got *pb.AuthenticateResponse
		got, err = pb.NewAuthClient(cc).Authenticate(ctx, &pb.AuthenticateRequest{Name: user, Password: password}, grpc.WaitForReady(true))
		t.text = got.GetToken()
	}
	if errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		err = nil
	}
	if t.err = err; err != nil {
		l.refused(t)
	}
}
