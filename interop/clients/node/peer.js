// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// A program that locks with node-redlock over one ioredis, for tests. What it is told, and what it answers, is in
// ../../peers/internal/lines/lines.go. Its kind is node-redlock, which asks every 100 to 300 ms by default. It renews within using(),
// but not what acquire() returns, which is used here.
"use strict";

const readline = require("node:readline");
const { performance } = require("node:perf_hooks");
const { default: Redlock, ExecutionError } = require("redlock");
const Redis = require("ioredis");

const ttl = Number(process.argv[2]);
const [host, port] = process.argv[3].split(":");
const server = new Redis({ host, port: Number(port) });

const say = (thread, text) => process.stdout.write(`${thread} ${text}\n`);
const now = () => Math.floor((performance.timeOrigin + performance.now()) * 1000);

/** acquire returns a lock, or null if somebody else held it all the time. wait is in milliseconds, -1 without a bound. */
async function acquire(key, wait) {
  const manager = new Redlock([server], { retryCount: wait < 0 ? -1 : Math.floor(wait / 200) });
  manager.on("error", () => {}); // each refusal is one
  try {
    return await manager.acquire([key], ttl);
  } catch (e) {
    if (e instanceof ExecutionError) return null;
    throw e;
  }
}

/** release says whether it still held the lock. */
async function release(lock) {
  try {
    await lock.redlock.release(lock, { retryCount: 0 });
    return true;
  } catch (e) {
    if (e instanceof ExecutionError) return false;
    throw e;
  }
}

async function carryOut(held, verb, kind, key, ...rest) {
  switch (verb) {
    case "lock": {
      const lock = await acquire(key, Number(rest[0]));
      if (!lock) return "timeout";
      held.set(key, lock);
      return `locked ${now()} 0`;
    }
    case "unlock": {
      const at = now();
      return (await release(held.get(key))) ? `unlocked ${at}` : "lost";
    }
    case "held":
      return held.get(key).expiration > Date.now() ? "held" : "lost";
    case "count": {
      const [most, limit, number] = [Number(rest[0]), Number(rest[1]), rest[2]];
      const end = Date.now() + limit;
      let n = 0;
      for (; n < most && Date.now() < end; n++) {
        const lock = await acquire(key, -1);
        await server.set(number, Number((await server.get(number)) ?? 0) + 1);
        if (!(await release(lock))) return "failed: lost it";
      }
      return `counted ${n}`;
    }
  }
  return "failed: no such verb";
}

async function main() {
  await server.ping();
  say("-", "ready");
  const threads = new Map(); // by name: the end of its latest order, and what it holds
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [name, ...order] = line.trim().split(/\s+/);
    const thread = threads.get(name) ?? { done: Promise.resolve(), held: new Map() };
    threads.set(name, thread);
    thread.done = thread.done
      .then(() => carryOut(thread.held, ...order))
      .catch((e) => `failed: ${String(e).replaceAll("\n", " ")}`)
      .then((text) => say(name, text));
  }
  process.exit(0); // what is held stays held, as when a program crashes
}

main();
