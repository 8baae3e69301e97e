// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package zk is a small client of ZooKeeper: sessions, pipelined calls that end with their contexts, and
// one-shot watches. The README shows how it is used.
//
// It is exact where a lock needs it to be. A call that fails says whether it was sent. Each call is of one session:
// after that expired, nothing of it is repeated in the next. A session knows until when it cannot expire
// ([Session.Assured]), which a ping does not show. A connection that is lost fires all of its watches.
package zk
