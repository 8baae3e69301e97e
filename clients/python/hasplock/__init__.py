# Copyright 2026 The hasp Authors
# SPDX-License-Identifier: Apache-2.0
"""hasp's locks, which `hasp agent` holds for this process. Begin with Client."""

from __future__ import annotations

import asyncio, contextlib, functools, itertools, json, math, os, shutil, socket, subprocess, threading, time, weakref
from concurrent.futures import Future, InvalidStateError, TimeoutError as _Timeout
from typing import Any, Callable, Dict, Generator, Iterator, List, Mapping, NamedTuple, Optional, Tuple

Holder = NamedTuple("Holder", [("host", str), ("pid", int), ("user", str), ("reason", str), ("since", str), ("owner", str)])
Grant = NamedTuple("Grant", [("key", str), ("fence", int), ("owner", str), ("slot", Optional[int]), ("abandoned", bool)])

class HaspError(Exception):
    """What hasp could not do: `kind` is for programs, the text for people. `key` and `holder` are filled in where they are known."""
    def __init__(self, kind: str, message: str, data: Mapping[str, Any] = {}) -> None:
        super().__init__(message)
        holder = data.get("holder") or {}
        self.kind, self.key = kind, str(data.get("key", ""))
        self.holder = Holder(*(holder.get(name, 0 if name == "pid" else "") for name in Holder._fields))

class Busy(HaspError): """Another holds the key, or waits for it in front: `holder` says who."""
class LockLost(HaspError): """The lease ended before it was released: another may have the key."""
class Unavailable(HaspError): """The store, or the agent, does not answer; whether a release arrived is not known."""
class Denied(HaspError): """The store refused the login, or the permission."""
class Misconfigured(HaspError): """A person must mend the store, its URL, or the installation of hasp."""
class Unsupported(HaspError): """The store, or the agent, cannot do that."""
class Closed(HaspError): """The agent is gone, the client was closed, or the process was forked: a new client is needed."""

_KINDS: Dict[str, Callable[..., HaspError]] = {"busy": Busy, "lost": LockLost, "unavailable": Unavailable, "denied": Denied,
                                               "misconfigured": Misconfigured, "unsupported": Unsupported, "closed": Closed}
_PATIENCE, _LINE = 30.0, 64 << 10  # seconds that an agent has to answer, beyond a wait; bytes
_CLOCK: Optional[int] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

def _error(kind: str, message: str, data: Mapping[str, Any] = {}) -> HaspError:
    return _KINDS.get(kind, HaspError)(kind, message, data)
def _now() -> float:  # by a clock that goes on while the machine sleeps
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
def _spawn(target: Callable[..., object], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread

class Lease:
    """A lock. `with` and `async with` acquire and release it; or acquire() and `await` do the one, and release() the other. Once."""
    fence: int  # of the only key; 0: the store has none, or there are several keys
    grants: List[Grant]  # one for each key, in order
    abandoned: bool  # an earlier holder of a key did not finish
    def __init__(self, client: Client, params: Dict[str, Any], on_lost: Any, on_wanted: Any) -> None:
        self._client, self._params, self._on_lost, self._on_wanted = client, params, on_lost, on_wanted
        self._id, self._why, self._released, self._deadline, self._ask = "", "", False, 0.0, 0.0
        self._patience = params["wait_ms"] / 1000 + _PATIENCE if "wait_ms" in params else None
        self.lost = threading.Event()  # set when the lock is lost
    @property
    def left(self) -> float:
        """For how many seconds the lock may be relied on, if nothing more is heard of the agent."""
        return max(self._deadline - _now(), 0.0) if self._id and not self._why and not self._released else 0.0
    def check(self) -> None:
        """Raises LockLost unless the lock is held. It asks a clock, not the agent."""
        with self._client._mu:
            self._expire()
            if not self.left:
                raise _error("lost", self._why or "this lock is not held", {"key": self._params["keys"][0]})
    def acquire(self) -> Lease:
        """Waits for the lock."""
        with self._asked() as answer:
            return answer.result(self._patience)
    async def _acquire(self) -> Lease:
        with self._asked() as answer:
            return await asyncio.wait_for(asyncio.wrap_future(answer), self._patience)
    def release(self) -> None:
        """Gives the lock back, once. Raises LockLost if it had been lost."""
        patience, answer = self.left + 1, self._give_back()
        with self._client._awaited(answer):
            answer.result(patience)
    async def release_async(self) -> None:
        """Is release for asyncio."""
        patience, answer = self.left + 1, self._give_back()
        with self._client._awaited(answer):
            await asyncio.wait_for(asyncio.wrap_future(answer), patience)
    def __await__(self) -> Generator[Any, None, Lease]: return self._acquire().__await__()
    def __enter__(self) -> Lease: return self.acquire()
    async def __aenter__(self) -> Lease: return await self._acquire()
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with contextlib.suppress(*([HaspError] if kind else [])):  # the block's own error says more
            self.release()
    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        with contextlib.suppress(*([HaspError] if kind else [])):
            await self.release_async()
    @contextlib.contextmanager
    def _asked(self) -> Iterator[Future[Lease]]:
        if self._deadline:
            raise RuntimeError("a lock is acquired once: call lock() for each")
        self._deadline, answer = math.inf, Future[Lease]()
        with self._client._awaited(answer):
            self._client._send(answer, "lock", self._params, self._granted)
            yield answer
    def _granted(self, result: Dict[str, Any], sent: float) -> Lease:
        self.abandoned, self._id, self._deadline = bool(result.get("abandoned")), str(result["lease"]), sent
        self.grants = [Grant(k["key"], int(k.get("fence") or 0), k.get("owner", ""), k.get("slot"), bool(k.get("abandoned")))
                       for k in result["keys"]]
        self.fence = self.grants[0].fence if len(self.grants) == 1 else 0
        with self._client._mu:
            self._move(result, sent)
            self._client._held[self._id], self._why = self, self._client._closing  # bye gives back what is granted before it
            if self._ask < self._client._next:
                self._client._mu.notify_all()
        return self
    def _give_back(self) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._client._mu:
            self._expire()
            again, self._released = self._released or not self._id, True
            self._client._held.pop(self._id, None)
        if again:
            answer.set_result(None)
            return answer
        if not self._why:
            self._client._send(answer, "release", {"lease": self._id})
        else:
            _spawn(self._client._tell, "release", {"lease": self._id, "abandoned": True})
            raise _error("lost", self._why, {"key": self._params["keys"][0]})
        return answer
    def _expire(self) -> None:  # this and what follows needs the client's mu
        if _now() >= self._deadline:
            self._end("the lease's time is over, and the agent has not prolonged it")
    def _end(self, why: str) -> None:
        if not self._released and not self._why:
            self._why = why
            self.lost.set()
            if self._on_lost:
                _spawn(self._on_lost, self)
    def _move(self, result: Dict[str, Any], sent: float) -> None:
        self._deadline = max(self._deadline, sent + (result["left_ms"] - self._params.get("lead_ms", 0)) / 1000)
        self._ask = sent + (self._deadline - sent) / 4

class Client:
    """The locks of the agent at `agent` (unix:PATH), or of one that it starts for `store`, a URL. Without either the agent is the one at
    HASP_AGENT, or one that it starts for the store of HASP_STORE. Threads may share it; after a fork the child needs its own."""
    def __init__(self, agent: Optional[str] = None, store: Optional[str] = None) -> None:
        self._mu, self._writing, self._ids, self._next, self._gone = threading.Condition(), threading.Lock(), itertools.count(1), math.inf, ""
        self._held: Dict[str, Lease] = {}
        self._closing = ""
        self._pending: Dict[int, Tuple[Future[Any], float, Callable[[Any, float], Any]]] = {}
        self._in, self._out, self._started = _connect(agent, store)
        self._reader = _spawn(self._read)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda this=weakref.ref(self): this() and this()._forked())
        try:
            self.hello: Dict[str, Any] = self._call("hello", {"protocols": [1], "client": "hasplock for Python"}, _PATIENCE)
        except BaseException as error:
            self._hang_up()
            if not isinstance(error, Closed):
                raise
            code = self._started.wait() if self._started else 69  # as of hasp's other commands
            raise _error({69: "unavailable", 77: "denied"}.get(code, "misconfigured"), f"the agent ended at once ({code})") from error
        _spawn(self._watch)
    def lock(self, *keys: str, wait: Optional[float] = None, ttl: Optional[float] = None, shared: bool = False, slots: Optional[int] = None,
             max_hold: Optional[float] = None, lead: Optional[float] = None, linger: Optional[float] = None, cohort: Optional[float] = None,
             reason: Optional[str] = None, on_lost: Optional[Callable[[Lease], object]] = None,
             on_wanted: Optional[Callable[[Lease], object]] = None) -> Lease:
        """A lock of a key, or of several, all or none. Times are in seconds; wait=None is for ever, and 0 once. `slots` makes it a
        semaphore of so many; `reason` is for people; on_lost, and on_wanted when another waits, are called in a thread of their own."""
        times = {"wait": wait, "ttl": ttl, "max_hold": max_hold, "lead": lead, "linger": linger, "cohort": cohort}
        params = {"mode": "shared" if shared else None, "slots": slots, "reason": reason, "wanted": True if on_wanted else None,
                  **{f"{name}_ms": None if t is None else t * 1000 for name, t in times.items()}}
        return Lease(self, {"keys": keys, **{name: v for name, v in params.items() if v is not None}}, on_lost, on_wanted)
    def close(self) -> None:
        """Gives back all that is held, and ends the connection."""
        with self._mu:
            left, self._closing = max((lease.left for lease in self._held.values()), default=0.0), "its client was closed"
            for lease in self._held.values():
                lease._why = lease._why or self._closing
        try:
            self._call("bye", {}, left + 1)
            self._reader.join(1)
        except HaspError:
            if left:  # what was held may still be
                raise
        finally:
            self._hang_up()
            self._end("this client was closed")
    def __enter__(self) -> Client: return self
    def __exit__(self, *error: Any) -> None: self.close()
    def _call(self, method: str, params: Dict[str, Any], patience: float) -> Any:
        answer: Future[Any] = Future()
        with self._awaited(answer):
            self._send(answer, method, params)
            return answer.result(patience)
    @contextlib.contextmanager
    def _awaited(self, answer: Future[Any]) -> Iterator[None]:
        """Has a request cancelled for which nobody waits any longer, and a grant given back that came."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(HaspError):
                if answer.cancel():
                    for n in [n for n, p in list(self._pending.items()) if p[0] is answer]:
                        self._write({"method": "$/cancelRequest", "params": {"id": n}})
                elif not answer.exception() and isinstance(answer.result(), Lease):
                    answer.result()._give_back()
            if isinstance(error, (_Timeout, asyncio.TimeoutError)):
                raise _error("unavailable", "the agent does not answer; whether a release arrived is not known") from None
            raise
    def _send(self, answer: Future[Any], method: str, params: Any, take: Callable[[Any, float], Any] = lambda result, _: result) -> None:
        n, sent = next(self._ids), _now()
        with self._mu:
            if self._gone:
                raise _error("closed", self._gone)
            self._pending[n] = answer, sent, take
        try:
            self._write({"id": n, "method": method, "params": params})
        except Exception:  # it is no JSON, or too long
            self._pending.pop(n, None)
            raise
    def _write(self, message: Dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, allow_nan=False).encode() + b"\n"
        if len(line) >= _LINE:
            raise _error("invalid", f"the request has {len(line)} bytes: a line has less than {_LINE}")
        with self._writing, contextlib.suppress(OSError):  # the reader finds the end of file
            while line and self._out >= 0:
                line = line[os.write(self._out, line):]
    def _read(self) -> None:
        rest, data, fd = b"", b"-", self._in
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError):  # who breaks the protocol is gone
            while data:
                data = os.read(fd, _LINE)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._heard(json.loads(line))
        self._end("the agent is gone, and the lock with it")
        with self._writing:
            self._close()
        if self._started:
            self._started.wait()
    def _hang_up(self) -> None:  # the reader finds the end of file, and closes what is left
        if self._writing.acquire(timeout=1):
            with contextlib.suppress(OSError):
                if self._in == self._out:
                    with socket.socket(fileno=os.dup(self._in)) as s:
                        s.shutdown(socket.SHUT_RDWR)
                else:
                    out, self._out = self._out, -1
                    os.close(out)
            self._writing.release()
    def _close(self) -> None:
        fds, self._in, self._out = {self._in, self._out} - {-1}, -1, -1
        for fd in fds:
            os.close(fd)
    def _heard(self, m: Dict[str, Any]) -> None:
        with self._mu:
            lease = self._held.get(str((m.get("params") or {}).get("lease")))
            if lease and m.get("method") == "lost":
                lease._end(str(m["params"].get("message")))
        if lease and m.get("method") == "wanted" and lease._on_wanted:
            _spawn(lease._on_wanted, lease)
        if "method" in m or m.get("id") not in self._pending:
            return
        answer, sent, take = self._pending[m["id"]]
        error = m.get("error") or {}
        data: Dict[str, Any] = error.get("data") or {}
        result = _error(str(data.get("kind")), str(error.get("message")), data) if error else take(m["result"], sent)
        del self._pending[m["id"]]
        if answer.set_running_or_notify_cancel():
            answer.set_exception(result) if error else answer.set_result(result)
        elif isinstance(result, Lease):  # it was granted all the same
            with contextlib.suppress(HaspError):
                result._give_back()
    def _end(self, why: str) -> None:
        with self._mu:
            self._gone, pending, self._pending = self._gone or why, self._pending, {}
            for lease in self._held.values():
                lease._end(why)
            self._mu.notify_all()
        for answer, _, _ in pending.values():
            with contextlib.suppress(InvalidStateError):  # it was cancelled
                answer.set_exception(_error("closed", why))
    def _watch(self) -> None:  # asks for the deadlines in time, and ends the leases whose time is over
        with self._mu:
            while not self._gone:
                for lease in self._held.values():
                    lease._expire()
                live, now = [lease for lease in self._held.values() if not lease._why], _now()
                self._next = min((min(lease._ask, lease._deadline) for lease in live), default=math.inf)
                if self._next > now:
                    self._mu.wait(min(self._next - now, 3600))
                    continue
                for lease in live:
                    lease._ask = now + max((lease._deadline - now) / 4, 0.01)
                _spawn(self._tell, "status", {}, functools.partial(self._prolong, live))
    def _prolong(self, live: List[Lease], result: Dict[str, Any], sent: float) -> None:
        with self._mu:
            for lease in live:
                lease._expire()
                lease._move(result, sent)
    def _tell(self, *request: Any) -> None:  # in a thread of its own: an agent that is stopped reads nothing
        with contextlib.suppress(HaspError):
            self._send(Future(), *request)
    def _forked(self) -> None:  # in the child, where no other thread is that could unlock anything
        self._mu, self._writing, self._pending = threading.Condition(), threading.Lock(), {}
        self._close()
        for lease in self._held.values():
            lease.lost, lease._on_lost = threading.Event(), None
        self._end("this process was forked: the connection and its locks are the parent's")

def _connect(agent: Optional[str], store: Optional[str]) -> Tuple[int, int, Optional[subprocess.Popen[bytes]]]:
    agent = agent or (None if store else os.environ.get("HASP_AGENT"))
    if agent:
        if store or not agent.startswith("unix:"):
            raise _error("misconfigured", f"the agent's address is {agent!r}: it is unix:PATH, and its store is its own")
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(_PATIENCE)
            try:
                s.connect(agent[len("unix:"):])
            except OSError as error:
                raise _error("unavailable", f"no agent answers at {agent}: {error}") from error
            s.settimeout(None)
            fd = s.detach()
            return fd, fd, None
    hasp = shutil.which("hasp", path=os.path.dirname(__file__)) or shutil.which("hasp")
    if not hasp:
        raise _error("misconfigured", "the program hasp is not on the PATH")
    env = None if not store else {**{k: v for k, v in os.environ.items() if k != "HASP_STORE_FILE"}, "HASP_STORE": store}
    (read, its_out), (its_in, write) = os.pipe(), os.pipe()
    with open(its_out, "wb"), open(its_in, "rb"):
        return read, write, subprocess.Popen([hasp, "agent", "--stdio"], stdin=its_in, stdout=its_out, env=env)
