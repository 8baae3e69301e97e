// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// The client on real agents over SQLite; hasp is found in PATH. A verdict hangs on events, and on what the lease itself says.
import { after, before, describe, test } from 'node:test'
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Busy, Client, Closed, HaspError, LockLost, Misconfigured, Unavailable } from '../index.js'

const long = 600_000 // ms that no test lasts
const folder = mkdtempSync(join(tmpdir(), 'hasp-'))
const store = `sqlite:${join(folder, 'hasp.db')}`
const started = [] // processes
const one = new Client({ store }), two = new Client({ store }) // an agent each
let sockets = 0

before(async () => (await one.lock('first')).release()) // makes the store
after(async () => {
  setTimeout(() => process.exit(1), 5000).unref() // a test that failed may have left a lock, which keeps a process alive
  try { await Promise.all([one.close(), two.close()]) } finally {
    for (const p of started) p.kill('SIGKILL')
    rmSync(folder, { recursive: true })
  }
})

/** A person takes the lock away. */
const take = (key, owner) => promisify(execFile)('hasp', ['break', '--yes', '--owner', owner, '--store', store, key])

function start(...line) {
  const p = spawn(line[0], line.slice(1), { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, HASP_STORE: store } })
  started.push(p)
  return p
}

/** An agent at a socket, once it listens. */
async function listening(path = join(folder, `agent${++sockets}`)) {
  const agent = start('hasp', 'agent', '--listen', `unix:${path}`)
  await once(agent.stderr, 'data')
  agent.client = () => new Client({ agent: `unix:${path}` })
  agent.path = path
  return agent
}

/** A program that imports the client, as its own process. */
const program = (text, first = ':') => start('sh', '-c', `${first}; exec "$@"`, 'sh', process.execPath, '--input-type=module', '-e', `import { Client } from ${JSON.stringify(new URL('../index.js', import.meta.url).href)}\n${text}`)

async function lost(lease) {
  if (!lease.signal.aborted) await once(lease.signal, 'abort')
  assert.ok(lease.signal.reason instanceof LockLost)
  assert.equal(lease.left, 0)
  assert.throws(() => lease.check(), LockLost)
  await assert.rejects(lease.release(), LockLost)
}

describe('hasplock', { concurrency: true, timeout: 300_000 }, () => {
  test('lock, refuse, release', async () => {
    const lease = await one.lock('k', { wait: 0, reason: 'a test' })
    lease.check()
    await assert.rejects(two.lock('k', { wait: 0 }), (e) => e instanceof Busy && e.kind === 'busy' && e.holder.reason === 'a test')
    const waiting = two.lock('k')
    await lease.release()
    await lease.release()
    assert.throws(() => lease.check(), LockLost)
    assert.ok(!lease.signal.aborted)
    const next = await waiting
    assert.ok(next.fence > lease.fence && !next.abandoned)
    await next[Symbol.asyncDispose]()
  })

  test('with', async () => {
    assert.equal(await one.with('with', async (lease) => (lease.check(), 42)), 42)
    await assert.rejects(one.with('with', { wait: 0 }, () => { throw new RangeError('mine') }), RangeError)
    await assert.rejects(one.with('with', { wait: 0 }, (lease) => take('with', lease.keys[0].owner)), LockLost)
  })

  test('several keys, shared, slots', async () => {
    const all = await one.lock(['a', 'b'])
    assert.deepEqual(all.keys.map((k) => [k.key, typeof k.fence]), [['a', 'bigint'], ['b', 'bigint']])
    assert.equal(all.fence, undefined)
    await assert.rejects(two.lock('b', { wait: 0 }), Busy)
    const readers = await Promise.all([one.lock('s', { shared: true }), two.lock('s', { shared: true })])
    const slots = await Promise.all([one.lock('n', { slots: 2 }), two.lock('n', { slots: 2 })])
    assert.deepEqual(slots.map((l) => l.keys[0].slot).sort(), [0, 1])
    await Promise.all([all, ...readers, ...slots].map((l) => l.release()))
  })

  test('wanted', async () => {
    const lease = await one.lock('wanted', { wanted: true })
    const waiting = two.lock('wanted')
    if (!lease.wanted.aborted) await once(lease.wanted, 'abort')
    await lease.release()
    await (await waiting).release()
  })

  test('what is no lock', async () => {
    await assert.rejects(one.lock(''), (e) => e instanceof HaspError && e.kind === 'invalid')
    await assert.rejects(one.lock('k', { wait: NaN }), (e) => e.kind === 'invalid')
    await assert.rejects(one.lock('k', { waitMs: 0 }), (e) => e.kind === 'invalid')
    await assert.rejects(one.lock('k'.repeat(70_000)), (e) => e.kind === 'limit')
    await assert.rejects(new Client({ store: 'nonsense:' }).lock('k'), (e) => e instanceof Misconfigured && /nonsense/.test(e.message))
    await assert.rejects(new Client({ agent: `unix:${folder}/none` }).lock('k'), Unavailable)
    const path = process.env.PATH
    process.env.PATH = folder
    const without = new Client({ store }).lock('k')
    process.env.PATH = path
    await assert.rejects(without, Misconfigured)
  })

  test('a wait is cancelled, and leaves nothing', async () => {
    const lease = await one.lock('c')
    const cancel = new AbortController()
    const waiting = two.lock('c', { signal: cancel.signal })
    cancel.abort(new RangeError('enough'))
    await assert.rejects(waiting, RangeError)
    await assert.rejects(two.lock('c', { signal: cancel.signal }), RangeError)
    await lease.release()
    await (await one.lock('c')).release()
  })

  test('close gives all back', async () => {
    const client = new Client({ store })
    const lease = await client.lock('close', { ttl: long })
    await client.close()
    await client.close()
    await lost(lease)
    await assert.rejects(client.lock('close'), Closed)
    const next = await one.lock('close')
    assert.equal(next.abandoned, false)
    await next.release()
  })

  test('a holder that is killed frees its locks, and a child of it keeps none', async () => {
    const holder = program(`
      import { spawn } from 'node:child_process'
      const lease = await new Client().lock('killed', { ttl: ${long} })
      const child = spawn('sleep', ['600'], { stdio: 'ignore' })
      console.log(child.pid)`)
    const [pid] = await once(holder.stdout.setEncoding('utf8'), 'data')
    const waiting = one.lock('killed')
    holder.kill('SIGKILL')
    const lease = await waiting
    process.kill(Number(pid), 'SIGKILL') // fails if the child had ended
    assert.ok(lease.abandoned)
    await lease.release()
  })

  test('a lock that is broken is lost', async () => {
    const lease = await one.lock('broken'), other = await one.lock('other')
    await take('broken', lease.keys[0].owner)
    await lost(lease)
    other.check()
    await other.release()
  })

  test('an agent that is killed takes the locks with it, and the client goes on with the next', async () => {
    const agent = await listening(), client = agent.client()
    const lease = await client.lock('agent', { ttl: long })
    const waiting = client.lock('agent')
    agent.kill('SIGKILL')
    await assert.rejects(waiting, Unavailable)
    await lost(lease)
    const next = await listening(agent.path)
    const again = await client.lock('after')
    await again.release()
    await client.close()
    next.kill()
  })

  test('an agent that is stopped: the client ends its lock before another has it', async () => {
    const agent = await listening(), client = agent.client()
    const lease = await client.lock('stopped', { ttl: 2000 })
    agent.kill('SIGSTOP')
    const next = await two.lock('stopped')
    assert.equal(lease.left, 0)
    await lost(lease)
    await next.release()
    const cancel = new AbortController()
    const never = client.lock('stopped', { signal: cancel.signal })
    cancel.abort()
    await assert.rejects(never, { name: 'AbortError' }) // it was not answered
    agent.kill('SIGCONT')
    await (await client.lock('stopped')).release() // that of the lock before, if it was granted, was released
    await client.close()
  })

  test('an event loop that was blocked asks the clock', async () => {
    const lease = await one.lock('blocked', { ttl: 1000 })
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, lease.left + 20) // a clock of these has 10 ms
    assert.throws(() => lease.check(), LockLost)
    await lost(lease)
  })

  test('an event loop that was blocked for longer than `alive` knows that its locks are gone', async () => {
    const holder = program(`
      const client = new Client({ alive: 2000 }), lease = await client.lock('silent', { ttl: ${long} })
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2001)
      try { lease.check(), console.log('held') } catch (e) { console.log(e.name) }
      await (await client.lock('silent')).release() // over a connection that is new`)
    let said = ''
    holder.stdout.setEncoding('utf8').on('data', (s) => { said += s })
    assert.deepEqual(await once(holder, 'close'), [0, null])
    assert.equal(said, 'LockLost\n')
  })

  test('without a file descriptor to spare it says so', async () => {
    const out = program(`
      import { openSync } from 'node:fs'
      try { for (;;) openSync('/dev/null') } catch {}
      await new Client().lock('k').catch((e) => console.log(e.name))
      setImmediate(() => console.log('and lives'))`, 'ulimit -n 64')
    let said = ''
    out.stdout.setEncoding('utf8').on('data', (s) => { said += s })
    assert.deepEqual(await once(out, 'close'), [0, null])
    assert.equal(said, 'Unavailable\nand lives\n')
  })

  test('a client keeps the process alive while it holds a lock, and no longer', async () => {
    const [idle, holding] = [
      program(`const locks = new Client(); await (await locks.lock('idle')).release(); console.log('released')`),
      program(`const lease = await new Client().lock('holding'); console.log(lease.keys[0].owner); lease.signal.onabort = () => console.log('lost')`)]
    assert.deepEqual(await once(idle, 'exit'), [0, null])
    let said = ''
    holding.stdout.setEncoding('utf8').on('data', (s) => { said += s })
    await once(holding.stdout, 'data')
    const owner = said.trim()
    await take('holding', owner)
    assert.deepEqual(await once(holding, 'close'), [0, null])
    assert.equal(said, `${owner}\nlost\n`)
  })

  test('what is told before the grant, signs of life, and a grant that comes too late', async (t) => {
    const path = join(folder, 'fake'), asked = []
    let come
    const want = async (method) => {
      for (;;) {
        const m = asked.find((m) => m.method === method)
        if (m) return asked.splice(asked.indexOf(m), 1)[0]
        await new Promise((resolve) => { come = resolve })
      }
    }
    let socket
    const server = createServer((s) => {
      socket = s.on('data', (d) => {
        for (const l of String(d).split('\n').filter(Boolean)) asked.push(JSON.parse(l))
        come?.()
      })
    }).listen(path)
    t.after(() => (server.close(), socket?.destroy()))
    await once(server, 'listening')
    const say = (...all) => socket.write(all.map((m) => JSON.stringify({ jsonrpc: '2.0', ...m }) + '\n').join(''))
    const grant = (id, lease) => ({ id, result: { lease, keys: [{ key: 'k', fence: '18446744073709551615', owner: 'o', abandoned: false }], fence: '18446744073709551615', left_ms: long } })
    const client = new Client({ agent: `unix:${path}`, alive: 3000 })
    const locking = client.lock('k', { wanted: true })
    const hello = await want('hello')
    assert.deepEqual([hello.params.protocols, hello.params.alive_ms], [[1], 3000])
    say({ id: hello.id, result: {} })
    say({ method: 'wanted', params: { lease: '1' } }, { method: 'lost', params: { lease: '1', message: 'so soon' } }, grant((await want('lock')).id, '1'))
    const lease = await locking
    assert.equal(lease.fence, 18446744073709551615n)
    assert.ok(lease.wanted.aborted)
    await lost(lease)
    await want('$/alive')
    await want('release') // of what was lost
    const cancel = new AbortController()
    const waiting = client.lock('k', { signal: cancel.signal })
    const { id } = await want('lock')
    cancel.abort()
    assert.equal((await want('$/cancelRequest')).params.id, id)
    say(grant(id, '2'))
    await assert.rejects(waiting, { name: 'AbortError' })
    assert.equal((await want('release')).params.lease, '2')
    const broken = client.lock('k')
    say({ id: (await want('lock')).id, result: { lease: '3' } }) // no grant: the agent is not what it should be
    await assert.rejects(broken, Unavailable)
    const crossing = client.lock('k')
    say({ id: (await want('hello')).id, result: {} })
    const last = await want('lock'), closing = client.close(), bye = await want('bye')
    say(grant(last.id, '4')) // it has crossed the bye, which gives it back
    await lost(await crossing)
    say({ id: bye.id, result: {} })
    await closing
  })
})
