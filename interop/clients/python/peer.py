# Copyright 2026 The hasp Authors
# SPDX-License-Identifier: Apache-2.0

"""A program that locks with Python's clients, for tests.

What it is told, and what it answers, is in ../../peers/internal/lines/lines.go. Its kinds are redis-py (redis.lock.Lock), pottery
(pottery.Redlock over one master) and redlock-py (redlock.Redlock over one server).
"""

import logging
import queue
import sys
import threading
import time

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
        self.lock = server.lock(key, timeout=ttl / 1000)

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
        return "unknown"


KINDS = {"redis-py": RedisPy, "pottery": Pottery, "redlock-py": RedlockPy}
say = threading.Lock()


def answer(thread, text):
    with say:
        print(thread, text, flush=True)


def now():
    return time.time_ns() // 1000


def carry_out(held, verb, kind, key, *rest):
    numbers = [int(n) for n in rest[:2]]
    if verb == "lock":
        lock = KINDS[kind](key)
        if not lock.acquire(FOREVER if numbers[0] < 0 else numbers[0] / 1000):
            return "timeout"
        held[kind, key] = lock
        return f"locked {now()} 0"
    if verb == "unlock":
        at = now()
        return f"unlocked {at}" if held.pop((kind, key)).release() else "lost"
    if verb == "held":
        return held[kind, key].held()
    if verb == "count":
        n, end, number = 0, time.monotonic() + numbers[1] / 1000, rest[2]
        while n < numbers[0] and time.monotonic() < end:
            lock = KINDS[kind](key)
            lock.acquire(FOREVER)
            server.set(number, int(server.get(number) or 0) + 1)
            if not lock.release():
                return "failed: lost it"
            n += 1
        return f"counted {n}"
    return "failed: no such verb"


def run(name, orders):
    held = {}
    while True:
        try:
            text = carry_out(held, *orders.get())
        except Exception as e:  # the test is told
            text = "failed: " + repr(e).replace("\n", " ")
        answer(name, text)


server.ping()
answer("-", "ready")
threads = {}
for line in sys.stdin:
    name, *order = line.split()
    if name not in threads:
        threads[name] = queue.Queue()
        threading.Thread(target=run, args=(name, threads[name]), daemon=True).start()
    threads[name].put(order)
