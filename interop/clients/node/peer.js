// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// A program that locks with node-redlock over one ioredis, for tests. What it is told is in ../process_test.go. Its
// kind is node-redlock, which asks every 100 to 300 ms by default. It renews within using(),
// but not what acquire() returns, which is used here.
"use strict";

const readline = require("node:readline");
const { default: Redlock, ExecutionError } = require("redlock");
const Redis = require("ioredis");

const ttl = Number(process.argv[2]);
const [host, port] = process.argv[3].split(":");
const server = new Redis({ host, port: Number(port) });

const leases = new Map();
const failure = (kind) => Object.assign(new Error(kind), { kind });

/** known is what a promise comes to, or a failure where another has the lock. */
async function known(promise, kind) {
  try {
    return await promise;
  } catch (e) {
    throw e instanceof ExecutionError ? failure(kind) : e;
  }
}

const methods = {
  async hello() {
    await server.ping();
    return { protocol: 1 };
  },
  async lock({ keys, wait_ms: wait }) {
    const manager = new Redlock([server], { retryCount: wait === undefined ? -1 : Math.floor(wait / 200) });
    manager.on("error", () => {}); // each refusal is one
    const lock = await known(manager.acquire(keys, ttl), "busy");
    leases.set(lock.value, lock);
    return { lease: lock.value };
  },
  async release({ lease }) {
    const lock = leases.get(lease);
    await known(lock.redlock.release(lock, { retryCount: 0 }), "lost");
    return {};
  },
  async status({ lease }) {
    if (leases.get(lease).expiration <= Date.now()) throw failure("lost");
    return {};
  },
};

async function answer({ id, method, params }) {
  const of = await methods[method](params).then(
    (result) => ({ result }),
    (e) => ({ error: { code: -32000, message: String(e), data: { kind: e.kind } } }),
  );
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...of }) + "\n");
}

// What is held at the end stays held, as when a program crashes.
readline
  .createInterface({ input: process.stdin })
  .on("line", (line) => answer(JSON.parse(line)))
  .on("close", () => process.exit(0));
