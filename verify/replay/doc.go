// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay drives the real code through the counterexamples of package
// model, step by step: as it is built each story must come to a stop, at the very
// step where the model's rule was taken out, and with the safeguard undone it must
// come true.
//
// Most are played with messages: the steps are requests to real nodes, in memory
// and on redis-server, and a client of the test's own counts the answers. Where
// the rule is the client's, quorum.Driver and hasp.Client are played, over nodes
// whose messages wait at a gate until the story has them arrive.
package replay
