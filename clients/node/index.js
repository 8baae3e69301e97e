// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0
// The client of hasp agent. Its protocol is docs/protocol.md; what users need to know stands in index.d.ts.
import { spawn } from 'node:child_process'; import { createRequire } from 'node:module'
import { connect } from 'node:net'; import { uptime } from 'node:os'
export class HaspError extends Error {
  constructor(kind, message, { key, holder } = {}) { super(message), Object.assign(this, { name: new.target.name, kind, key, holder }) }
}
const named = (name) => ({ [name]: class extends HaspError {} })[name] // a bundler would shorten the name of a declared one
const kinds = { __proto__: null, busy: named('Busy'), lost: named('LockLost'), unavailable: named('Unavailable'), denied: named('Denied'),
  misconfigured: named('Misconfigured'), unsupported: named('Unsupported'), closed: named('Closed') }
export const { busy: Busy, lost: LockLost, unavailable: Unavailable, denied: Denied, misconfigured: Misconfigured, unsupported: Unsupported, closed: Closed } = kinds
const failure = (kind, message, data) => new (kinds[kind] ?? HaspError)(kind, message, data)

// performance.now() stands still while Linux sleeps, and os.uptime() is CLOCK_BOOTTIME there. (Elsewhere that has whole seconds, and
// performance.now() goes on.) Date.now() also sees that a virtual machine was paused. As everywhere in hasp, what shows most is right.
const clocks = () => [performance.now(), Date.now(), process.platform === 'linux' ? uptime() * 1000 : 0]
const between = (then, now) => Math.max(...now.map((c, i) => c - then[i]))
const patience = 30_000, cancelling = 5000, longest = 2 ** 31 - 1 // ms for an answer, for that of a cancelled request, of a timer
const binary = `@hasplock/${process.platform}-${process.arch}/hasp${process.platform === 'win32' ? '.exe' : ''}` // of npm; else it is on the PATH
const program = () => { try { return createRequire(import.meta.url).resolve(binary) } catch { return 'hasp' } }
const dispose = Symbol.asyncDispose ?? Symbol('asyncDispose')

export class Lease {
  #conn; #id; #sent; #lasts; #lead; #error; #release; #lost = new AbortController(); #wanted = new AbortController()
  constructor(conn, grant, sent, lead) {
    this.#conn = conn, this.#id = grant.lease, this.#sent = sent, this.#lasts = grant.left_ms, this.#lead = lead
    this.keys = grant.keys.map((k) => ({ ...k, fence: k.fence && BigInt(k.fence) }))
    this.fence = grant.fence && BigInt(grant.fence), this.abandoned = grant.abandoned
  }
  get signal() { return this.left, this.#lost.signal } get wanted() { return this.#wanted.signal }
  get left() { return this._left(clocks()) }
  check() { if (this.left, this.#error) throw this.#error }
  release() { return this.#release ??= this.#giveBack() } [dispose]() { return this.release() }
  async #giveBack() {
    const left = this.left, lost = this.#error
    this.#error ??= failure('lost', 'this lock was released')
    this.#conn.drop(this.#id)
    const answer = this.#conn.call('release', { lease: this.#id, abandoned: lost && true }, { idle: !!lost, limit: lost ? undefined : left })
    if (lost) throw answer.catch(() => {}), lost // the loss is the news
    await answer
  }
  _left(now) {
    const left = this.#error ? 0 : Math.max(Math.min(this.#lasts - this.#lead - between(this.#sent, now), this.#conn.quiet(now[0])), 0)
    if (!left) this._end('the time of the lock is over, and the agent has not prolonged it')
    return left
  }
  _prolong(sent, lasts, now) { if (lasts - between(sent, now) > this.#lasts - between(this.#sent, now)) this.#sent = sent, this.#lasts = lasts }
  _told(method, { message }) { method === 'lost' ? this._end(message) : method === 'wanted' && this.#wanted.abort() }
  _end(message) { if (!this.#error) this.#error = failure('lost', message), this.#conn.drop(this.#id), this.#lost.abort(this.#error) }
}

// Connection is one to an agent. It has the leases: they end with it.
class Connection {
  over; #out; #handles = []; #refs; #ready; #alive; #calls = new Map(); #count = 0; #busy = 0
  #held = new Map(); #early = []; #timer; #due; #asking; #most = Infinity; #said = performance.now() // the last sign of life
  constructor(agent, store, alive) {
    const end = (kind, message) => this.end(failure(kind, message))
    let input, said = '', rest = ''
    if (agent) {
      this.#handles = [input = this.#out = connect(agent.slice('unix:'.length))]
      input.on('error', (e) => end('unavailable', `the agent at ${agent}: ${e.message}`))
      input.on('close', () => end('unavailable', `the agent at ${agent} has closed the connection`))
    } else { // all pipes are close-on-exec: no other child inherits them. The URL may have a password, and a command line has readers.
      const env = { ...process.env, ...store && { HASP_STORE: store, HASP_STORE_FILE: '' } }
      const child = spawn(program(), ['agent', '--stdio'], { env, windowsHide: true })
      child.on('error', (e) => end('misconfigured', `hasp cannot be started: ${e.message}`))
      if (!child.stdio) throw failure('unavailable', 'hasp cannot be started: this process has too many open files')
      child.on('close', (code, signal) => end({ 64: 'misconfigured', 77: 'denied', 78: 'misconfigured' }[code] ?? 'unavailable',
        said.trim() || `hasp agent has ended: ${signal ?? code}`))
      for (const s of child.stdio) s.on('error', () => {}) // the end of the child says it
      child.stderr.setEncoding('utf8').on('data', (s) => { said = (said + s).slice(-2000) })
      this.#handles = [child, ...child.stdio], this.#out = child.stdin, input = child.stdout
    }
    input.setEncoding('utf8').on('end', () => this.lose()).on('data', (s) => {
      const lines = (rest + s).split('\n') // readline would split at U+2028, too
      rest = lines.pop()
      try { for (const l of lines) if (l) this.#take(JSON.parse(l)) } catch (e) { end('unavailable', `the agent broke the protocol: ${e.message}`) }
    })
    if (alive) this.#most = alive, this.#alive = setInterval(() => this.#send({ method: '$/alive' }), alive / 3).unref()
    this.call('hello', { protocols: [1], client: 'hasplock for Node', alive_ms: alive }, { idle: true })
      .then(() => { this.#ready = true, this.#calls.forEach((c) => c.send()) }, (e) => this.end(e))
  }
  // call sends a request. limit: for how many ms it is waited for; idle: it keeps no process alive; take: has the result at once.
  call(method, params, { signal, limit = longest, idle = false, take = (result) => result } = {}) {
    return new Promise((resolve, reject) => {
      if (Buffer.byteLength(JSON.stringify(params)) > 65000) throw failure('limit', 'a request has at most 65,000 bytes')
      if (this.over) throw this.over
      const id = ++this.#count, aborted = () => quit(signal.reason, cancelling)
      let timer, sent, why
      const finish = (error, result) => {
        clearTimeout(timer), signal?.removeEventListener('abort', aborted)
        error ? reject(error) : resolve(take(result, sent))
        if (!idle) idle = true, this.#busy--
        this.#ref()
      }
      const quit = (reason, grace) => { // a grant that comes all the same is released
        clearTimeout(timer), timer = setTimeout(finish, sent ? grace : 0, why = reason)
        sent ? this.#send({ method: '$/cancelRequest', params: { id } }) : this.#calls.delete(id)
      }
      const send = () => (sent = clocks(), this.#send({ id, method, params }))
      const answer = (error, result) => {
        if (why && result?.lease) this.call('release', { lease: result.lease }, { idle: true }).catch(() => {})
        finish(why ?? error, result)
      }
      this.#calls.set(id, { send, answer })
      if (limit < longest) timer = setTimeout(quit, limit, failure('unavailable', `the agent does not answer: ${method}`), 0).unref()
      signal?.addEventListener('abort', aborted), this.#busy += !idle, this.#ref()
      if (this.#ready || method === 'hello') send()
    })
  }
  quiet(now) { return this.#said + this.#most - now } // after so many ms of silence the agent ends the connection, by this very clock
  #send(message, now = performance.now()) {
    if (this.quiet(now) <= 0) return this.end(failure('unavailable', 'this process was silent for longer than `alive` allows'))
    this.#said = now, this.#out.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')
  }
  drop(id) { this.#held.delete(id), this.#ref() }
  end(why) {
    this.lose(this.over = why)
    for (const [id, c] of this.#calls) this.#calls.delete(id), c.answer(why)
    for (const h of this.#handles) h.destroy?.()
  }
  lose(why = failure('unavailable', 'the agent is gone')) {
    this.over ??= why
    clearTimeout(this.#timer), clearInterval(this.#alive)
    for (const l of this.#held.values()) l._end(`${why.message}, and the lock with it`)
  }
  // Requests and leases keep the process alive, as a server that listens does.
  #ref() {
    const refs = this.#busy + this.#held.size ? 'ref' : 'unref'
    if (!this.#busy) this.#early = []
    if (this.#refs !== refs) for (const h of this.#handles) h[this.#refs = refs]?.()
  }
  #take(m) {
    const call = this.#calls.get(m.id), l = this.#held.get(m.params?.lease)
    if (call) call.answer(m.error && failure(m.error.data?.kind ?? 'invalid', m.error.message, m.error.data), m.result)
    else if (l) l._told(m.method, m.params)
    else this.#early.push(m) // what is told of a lease can come before the lease
    this.#calls.delete(m.id) // at last: what fails above ends the connection, and the call with it
  }
  lease(grant, sent, lead) {
    const l = new Lease(this, grant, sent, lead)
    this.#held.set(grant.lease, l)
    if (this.over) l._end(this.over.message) // it came after bye, which gives it back
    for (const m of this.#early.splice(0)) this.#take(m)
    this.#watch(l.left / 3)
    return l
  }
  // watch asks for the deadlines in ms, or before.
  #watch(ms) {
    if (this.over || this.#timer && this.#due <= performance.now() + ms) return
    clearTimeout(this.#timer), this.#due = performance.now() + ms
    this.#timer = setTimeout(() => this.#ask(), Math.min(ms, longest)).unref()
  }
  // ask prolongs the leases that are held by now, as the agent says; those whose time is over end.
  #ask() {
    const first = (now = clocks()) => Math.min(...[...this.#held.values()].map((l) => l._left(now)))
    this.#watch(first(this.#timer = undefined))
    if (this.#asking || !this.#held.size) return
    const held = [...this.#held.values()], again = () => (this.#asking = false, this.#watch(first() / 3))
    const take = ({ left_ms }, sent, now = clocks()) => held.forEach((l) => l._left(now) && l._prolong(sent, left_ms, now))
    this.#asking = true, this.call('status', {}, { idle: true, take }).then(again, again)
  }
}

export class Client {
  #options; #conn; #closed
  constructor({ agent, store, alive } = {}) {
    agent ??= store ? undefined : process.env.HASP_AGENT
    if (agent && !agent.startsWith('unix:')) throw failure('misconfigured', `the agent's address is ${agent}: it is unix:PATH`)
    this.#options = [agent, store, alive]
  }
  async lock(key, { wait, ttl, shared, slots, maxHold, lead = 0, linger, reason, wanted, signal, ...others } = {}) {
    const params = { [Array.isArray(key) ? 'keys' : 'key']: key, wait_ms: wait, ttl_ms: ttl, mode: shared ? 'shared' : undefined, slots,
      max_hold_ms: maxHold, lead_ms: lead, linger_ms: linger, reason, wanted, ...others }
    const bad = Object.entries(params).find(([k, n]) => k in others || typeof n === 'number' && !(n >= 0 && n < Infinity))
    if (bad) throw failure('invalid', `the option ${bad.join(' cannot be ')}`) // JSON has no NaN, and would have the agent wait for ever
    signal?.throwIfAborted()
    if (this.#closed) throw failure('closed', 'the client was closed')
    if (!this.#conn || this.#conn.over || this.#conn.quiet(performance.now()) <= 0) this.#conn = new Connection(...this.#options)
    const conn = this.#conn, limit = wait === undefined ? undefined : wait + patience
    return conn.call('lock', params, { signal, limit, take: (grant, sent) => conn.lease(grant, sent, lead) })
  }
  async with(key, options, work = options) {
    const lease = await this.lock(key, work === options ? {} : options)
    let result
    try { result = await work(lease) } catch (e) { throw await lease.release().catch(() => {}), e } // the first error is the news
    await lease.release()
    return result
  }
  async close() {
    const conn = this.#conn, why = failure('closed', 'the client was closed')
    this.#closed = true
    if (!conn || conn.over) return
    const bye = conn.call('bye', {}, { limit: patience })
    conn.lose(why)
    await bye.finally(() => conn.end(why))
  }
  [dispose]() { return this.close() }
}
