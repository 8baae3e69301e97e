// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

/// <reference lib="esnext.disposable" />

/** Where the locks are. Without `agent` and `store`: the agent at HASP_AGENT, or a `hasp agent --stdio` of the client's own. */
export interface ClientOptions {
  /** The socket of a running `hasp agent`, "unix:PATH". */
  agent?: string
  /** The URL of a store, such as "redis://localhost", for an agent of the client's own. Default: what HASP_STORE says. */
  store?: string
  /** After so many ms of silence the agent takes the locks from this process, as if it had been killed. Default: never. An event loop
   * that is blocked is silent. */
  alive?: number
}

/** Times are in milliseconds. */
export interface LockOptions {
  /** How long to wait. Default: for ever; 0: try once. */
  wait?: number
  /** How long the store keeps the lock without a renewal, which the agent sees to. Default: the agent's, 30 seconds. */
  ttl?: number
  /** Hold the key together with others that do. */
  shared?: boolean
  /** Be one of so many holders: a semaphore. */
  slots?: number
  /** The longest that the lock lasts. */
  maxHold?: number
  /** Be told of a loss so much before another can have the key. */
  lead?: number
  /** How long the key stays taken when this process dies, for stores that compare no fence. */
  linger?: number
  /** Why, for people who look. */
  reason?: string
  /** Have `lease.wanted` abort when another owner waits. */
  wanted?: boolean
  /** Ends the wait: `lock` throws its reason, and a grant that comes all the same is released. */
  signal?: AbortSignal
}

/** One key of a lease. */
export interface Key {
  readonly key: string
  /** Larger for each later holder of the key. Undefined where the store has none. */
  readonly fence?: bigint
  readonly owner: string
  /** Which of the slots, from 0. */
  readonly slot?: number
  /** A holder before this one did not finish. */
  readonly abandoned: boolean
}

/**
 * A lock that is held, until `release`, or it is lost. The agent renews it. While it is held the process does not end by itself.
 * With TypeScript 5.2 or Node 24: `await using lease = await locks.lock('orders/42')`.
 */
export class Lease implements AsyncDisposable {
  private constructor()
  readonly keys: readonly Key[]
  /**
   * The fence of the only key: hand it to the storage, which refuses a smaller one. It has 64 bits, which a number does not hold; it is
   * no string, since "10" < "9". `String(lease.fence)` is for JSON.
   */
  readonly fence?: bigint
  /** A holder before this one did not finish: look at what it left. */
  readonly abandoned: boolean
  /** Aborts when the lock is lost, with a LockLost as its reason; not when you release it. Hand it to fetch and the like. */
  readonly signal: AbortSignal
  /** Aborts when another owner waits for a key, if the option `wanted` asked for that. */
  readonly wanted: AbortSignal
  /** For how many ms the lock may be relied on, unless it is prolonged as usual; 0: it is lost, or released. */
  readonly left: number
  /**
   * Throws LockLost unless the lock may be relied on. It asks the clock, and no one else: after an event loop was blocked, or the machine
   * slept, `check` knows before `signal` does. Call it before a step that cannot be undone.
   */
  check(): void
  /** Gives the lock back. Throws LockLost if it had been lost, and Unavailable if no answer came: the key is free once its TTL is over. */
  release(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Gives locks. It connects when the first is asked for, and anew when the agent is gone. All leases and waits of a client share one
 * connection: when that ends, however this process ends, they are free within milliseconds.
 */
export class Client implements AsyncDisposable {
  constructor(options?: ClientOptions)
  /** Waits for a key, or for all of several. Throws Busy if the wait is over, and the other errors of this module. */
  lock(key: string | readonly string[], options?: LockOptions): Promise<Lease>
  /** Holds a lock while `work` runs, and returns its result. Throws LockLost if the lock was lost meanwhile, unless `work` throws. */
  with<T>(key: string | readonly string[], work: (lease: Lease) => T | Promise<T>): Promise<T>
  with<T>(key: string | readonly string[], options: LockOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>
  /** Gives back all that the client holds, and ends the connection. Not needed for the process to end. */
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** Who holds a key. */
export interface Holder {
  host?: string
  pid?: number
  user?: string
  reason?: string
  since?: string
  owner: string
}

/** Any error of this module. `kind` is for programs, `message` for people. */
export class HaspError extends Error {
  /** "busy", "lost", "unavailable", "denied", "misconfigured", "unsupported" and "closed" have classes; "invalid" and "limit" have not. */
  readonly kind: string
  readonly key?: string
  readonly holder?: Holder
}
/** Another has the key, or waits for it in front: `holder` says who. */
export class Busy extends HaspError {}
/** The lock ended before it was released: another may have it. */
export class LockLost extends HaspError {}
/** The store, or the agent, does not answer. */
export class Unavailable extends HaspError {}
/** The store refused the login, or the permission. */
export class Denied extends HaspError {}
/** A person must mend the store, its URL, or the installation of hasp. */
export class Misconfigured extends HaspError {}
/** The store cannot do this. */
export class Unsupported extends HaspError {}
/** The client was closed, or the agent ends. */
export class Closed extends HaspError {}
