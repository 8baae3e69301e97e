// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay drives the real code through the counterexamples of package
// model, called stories here, step by step: as built the code must depart from each
// story at the very step where the model's rule was removed, and with the safeguard
// undone it must reproduce the story.
//
// Most stories are played with messages: the steps are requests to real nodes, in
// memory and on redis-server, and a client of the test counts the answers. If the
// rule belongs to the client, quorum.Driver and hasp.Client are used, over nodes whose
// messages wait at a gate until the story delivers them.
package replay
