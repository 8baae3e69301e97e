// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Grpc has an interceptor that lets one call at a time work on an order, on any number of servers.
//
//	go run ./examples/grpc
//
// It serves, and makes three calls at once. The two for order 42 are served one after the other, with rising fences.
package main

import (
	"cmp"
	"context"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/open"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

type fenceKey struct{}

// exclusive has each call wait for its key until the call's deadline. The handler finds the fence in its context.
func exclusive(locks *hasp.Client, key func(request any) string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		order := key(request)
		if order == "" {
			return next(ctx, request)
		}
		lease, err := locks.Mutex(order, &hasp.LockOptions{Reason: info.FullMethod}).Lock(ctx)
		if err != nil { // it names the holder
			return nil, status.Error(cmp.Or(status.FromContextError(ctx.Err()).Code(), codes.Unavailable), err.Error())
		}
		defer lease.Release()
		answer, err := next(context.WithValue(lease.Context(ctx), fenceKey{}, lease.Fence()), request)
		if lost := lease.Err(); lost != nil { // also when the handler did not notice
			err = status.Error(codes.Aborted, lost.Error())
		}
		return answer, err
	}
}

// orderKey returns the key of the order that a request works on; empty: none.
func orderKey(r any) string {
	if order, ok := r.(*health.HealthCheckRequest); ok {
		return "orders/" + order.GetService()
	}
	return ""
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(exclusive(locks, orderKey)))
	health.RegisterHealthServer(server, shipping{})
	defer server.GracefulStop() // before Close releases the orders of calls under way
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	var calls sync.WaitGroup
	for _, order := range []string{"42", "42", "7"} {
		calls.Go(func() {
			_, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: order})
			log.Printf("order %s is answered: %v", order, status.Code(err))
		})
	}
	calls.Wait()
}

// shipping stands for your service. It is the health service, which gRPC brings along; the service to check is an order here.
type shipping struct {
	health.UnimplementedHealthServer
}

func (shipping) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	log.Printf("order %s is shipped with fence %d", r.GetService(), ctx.Value(fenceKey{}))
	time.Sleep(200 * time.Millisecond)
	return &health.HealthCheckResponse{}, ctx.Err()
}
