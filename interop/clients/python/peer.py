# Copyright 2026 The hasp Authors
# SPDX-License-Identifier: Apache-2.0

"""A program that locks with Python's clients, for tests.

What it is told is in ../process_test.go. Its kinds are redis-py (redis.lock.Lock), pottery
(pottery.Redlock over one master) and redlock-py (redlock.Redlock over one server).
"""

import json
import logging
import sys
import threading

import pottery
import redis
import redlock

FOREVER = 3600.0  # seconds
logging.disable(logging.INFO)
ttl = int(sys.argv[1])
server = redis.Redis(host=sys.argv[2].split(":")[0], port=int(sys.argv[2].split(":")[1]))


class RedisPy:
    """redis.lock.Lock, which asks every 100 ms by default, and does not renew."""

    def __init__(self, key):
        self.lock = server.lock(key, timeout=ttl / 1000, thread_local=False)

    def acquire(self, wait):
        return self.lock.acquire(blocking=wait > 0, blocking_timeout=wait or None)

    def release(self):
        try:
            self.lock.release()
            return True
        except redis.exceptions.LockError:
            return False

    def held(self):
        return "held" if self.lock.owned() else "lost"


class Pottery:
    """pottery.Redlock, whose key in Redis is redlock:KEY. It asks every 0 to 200 ms, and does not renew."""

    def __init__(self, key):
        self.lock = pottery.Redlock(key=key, masters={server}, auto_release_time=ttl / 1000)

    def acquire(self, wait):
        return self.lock.acquire(timeout=wait) if wait > 0 else self.lock.acquire(blocking=False)

    def release(self):
        try:
            self.lock.release()
            return True
        except pottery.ReleaseUnlockedLock:
            return False

    def held(self):
        return "held" if self.lock.locked() else "lost"


class RedlockPy:
    """redlock.Redlock, which asks every 200 ms by default, does not renew, and says nothing of a loss."""

    def __init__(self, key):
        self.key = key

    def acquire(self, wait):
        self.manager = redlock.Redlock([server], retry_count=1 + int(wait / 0.2))
        self.lock = self.manager.lock(self.key, ttl)
        return bool(self.lock)

    def release(self):
        self.manager.unlock(self.lock)
        return True

    def held(self):
        return "unsupported"


KINDS = {"redis-py": RedisPy, "pottery": Pottery, "redlock-py": RedlockPy}
leases = {}
say = threading.Lock()


class Failure(Exception):
    """An error of a kind."""


def carry_out(method, lease=None, kind=None, keys=(), wait_ms=FOREVER * 1000, **_):
    if method == "lock":
        lock = KINDS[kind](keys[0])
        if not lock.acquire(wait_ms / 1000):
            raise Failure("busy")
        leases[str(id(lock))] = lock
        return {"lease": str(id(lock))}
    if method == "release" and not leases[lease].release():
        raise Failure("lost")
    if method == "status" and (held := leases[lease].held()) != "held":
        raise Failure(held)
    return {"protocol": 1}


def answer(id, method, params, **_):
    try:
        m = {"result": carry_out(method, **params)}
    except Exception as e:  # the test is told
        m = {"error": {"code": -32000, "message": repr(e), "data": {"kind": str(e) if isinstance(e, Failure) else ""}}}
    with say:
        print(json.dumps({"jsonrpc": "2.0", "id": id, **m}), flush=True)


server.ping()
for line in sys.stdin:
    threading.Thread(target=answer, kwargs=json.loads(line), daemon=True).start()
