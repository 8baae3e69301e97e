// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/hasplock/hasp/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// configError is a configuration that cannot work.
type configError struct{ Why string }

func (e *configError) Error() string { return "etcd: " + e.Why }

// DataError reports a key in etcd below a lock's prefix that this version of hasp did not
// write, or does not understand. It is left unchanged, and the lock is not granted.
type DataError struct{ Key string }

func (e *DataError) Error() string {
	return "etcd: the key " + quote(e.Key) + " is not of a lock of this version of hasp: choose another prefix, or delete it"
}

// LayoutError reports a key in etcd that a newer hasp wrote, in a later layout than this build knows. It is left as it is.
type LayoutError struct {
	Key    string
	Layout int
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("etcd: the key %s was written by a newer hasp (layout %d; this build knows %d): upgrade this program", quote(e.Key), e.Layout, knownLayout)
}

var errOvertaken = errors.New("etcd: others changed the key again and again while this request was decided")

// Classify returns the class of an error; see [driver.Driver].
func (d *Driver) Classify(err error) driver.Class {
	var bad *configError
	var data *DataError
	var later *LayoutError
	var server rpctypes.EtcdError
	switch {
	case err == nil:
		return driver.ClassUnknown
	case errors.As(err, &data), errors.As(err, &later), errors.Is(err, driver.ErrUnsupported):
		return driver.ClassImpossible
	case errors.As(err, &bad):
		return driver.ClassMisconfigured
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return driver.ClassUnreachable
	case errors.As(err, &server):
		return classOf(server.Code(), server.Error())
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if s, ok := status.FromError(err); ok {
			return classOf(s.Code(), s.Message())
		}
	}
	return driver.ClassUnknown
}

// classes are what etcd says with a code that means something else, too.
var classes = map[string]driver.Class{
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace):                driver.ClassFull,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed):             driver.ClassLogin,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):              driver.ClassLogin,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision):        driver.ClassUnknown, // the client asks for a new token
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTooManyOps):             driver.ClassMisconfigured,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooLarge):        driver.ClassImpossible,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseTTLTooLarge):       driver.ClassImpossible,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests): driver.ClassUnreachable,
	context.DeadlineExceeded.Error():                           driver.ClassUnreachable, // the server noticed first
}

// classOf reads a status of gRPC.
func classOf(code codes.Code, text string) driver.Class {
	if class, ok := classes[text]; ok {
		return class
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted:
		return driver.ClassUnreachable
	case codes.PermissionDenied:
		return driver.ClassDenied
	case codes.Unauthenticated:
		return driver.ClassLogin
	case codes.Unimplemented:
		return driver.ClassMisconfigured
	}
	return driver.ClassUnknown
}
