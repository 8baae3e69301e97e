// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package ballot counts the votes of one owner on the nodes of a quorum. It is the
// whole of the Redlock algorithm that decides anything: which fence is proposed, when a
// majority has granted it, which votes are withdrawn, and when a renewal or a release
// counts.
//
// A Ballot is told what happens (an answer, silence, the time), and says what is to be
// sent. It does no I/O, holds no lock, reads no clock and starts nothing: package quorum
// does that, and package verify/model drives the same Ballots through every order of
// events. It is a value without pointers, so that one can be copied and compared.
//
// Time is counted on a clock of the caller's that never goes back, from any moment on.
// Nodes are numbered from 0.
package ballot
