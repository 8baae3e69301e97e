// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Carries out what it reads on its standard input by this client, over the agent at HASP_AGENT: for hasp verify --client.
import { Client, HaspError } from './index.js'

const locks = new Client()
const leases = new Map()
const waits = new Map() // AbortControllers, by id
let count = 0

const say = (m) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...m }, (_, v) => typeof v === 'bigint' ? String(v) : v) + '\n')

function find(id) {
  const lease = leases.get(id)
  if (!lease) throw new HaspError('invalid', `there is no lease ${id}`)
  return lease
}

const methods = {
  hello: () => ({ protocol: 1, client: 'hasplock for Node' }),
  async lock(p, signal) {
    const lease = await locks.lock(p.keys ?? p.key, {
      wait: p.wait_ms, ttl: p.ttl_ms, shared: p.mode === 'shared', slots: p.slots, maxHold: p.max_hold_ms, lead: p.lead_ms,
      linger: p.linger_ms, reason: p.reason, wanted: p.wanted, signal,
    })
    const id = String(++count)
    leases.set(id, lease)
    const tell = (method, message) => say({ method, params: { lease: id, keys: lease.keys.map((k) => k.key), left_ms: lease.left, message } })
    const when = (s, f) => s.aborted ? f() : s.addEventListener('abort', f)
    setImmediate(() => { // behind the grant
      when(lease.signal, () => tell('lost', lease.signal.reason.message))
      when(lease.wanted, () => tell('wanted'))
    })
    return { lease: id, keys: lease.keys, fence: lease.fence, abandoned: lease.abandoned, left_ms: Math.floor(lease.left) }
  },
  async release(p) {
    const lease = find(p.lease)
    leases.delete(p.lease)
    await lease.release()
  },
  status(p) {
    if (p.lease) find(p.lease).check()
    const held = p.lease ? [find(p.lease)] : [...leases.values()]
    const left = held.map((l) => l.left).filter((ms) => ms > 0)
    return { leases: held.length, waiting: waits.size, left_ms: left.length ? Math.floor(Math.min(...left)) : 0 }
  },
  bye: () => locks.close(),
}

async function answer({ id, method, params = {} }) {
  const wait = new AbortController()
  waits.set(id, wait)
  try {
    if (!methods[method]) throw new HaspError('unsupported', `this client has no ${method}`)
    say({ id, result: await methods[method](params, wait.signal) ?? {} })
  } catch (e) {
    if (wait.signal.aborted) say({ id, error: { code: -32800, message: 'cancelled', data: { kind: 'cancelled' } } })
    else if (e instanceof HaspError) say({ id, error: { code: -32000, message: e.message, data: { kind: e.kind, key: e.key, holder: e.holder } } })
    else throw e
  }
  waits.delete(id)
}

let rest = ''
process.stdin.setEncoding('utf8').on('data', (s) => {
  const lines = (rest + s).split('\n')
  rest = lines.pop()
  for (const m of lines.map((l) => JSON.parse(l))) {
    if (m.method === '$/cancelRequest') waits.get(m.params.id)?.abort()
    else if (m.id !== undefined) answer(m)
  }
}).on('end', () => process.exit()) // as a process that dies
