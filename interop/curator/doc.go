// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package curator contains tests only: Java's programs with Curator's locks and hasp take turns on one ZooKeeper. The Java side
// is Peer.java, and the tests are skipped until it was made, in this folder, by
//
//	mvn dependency:copy-dependencies
//	javac -cp 'target/dependency/*' -d target Peer.java
package curator
