# Copyright 2026 The hasp Authors
# SPDX-License-Identifier: Apache-2.0
"""Tries the client on a real agent, with a store of SQLite: `hasp` must be on the PATH."""

from __future__ import annotations

import asyncio, json, math, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time, unittest
from typing import Callable, Optional

FOLDER = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(FOLDER))
import hasplock

SOON = 120.0  # bounds what must happen, far above what it takes


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not what():
        if time.monotonic() > end:
            raise AssertionError("it does not happen")
        time.sleep(0.005)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.store = f"sqlite:{self.folder}/locks.db"
        self.env = {**os.environ, "HASP_STORE": self.store, "PYTHONPATH": str(FOLDER)}
        self.env.pop("HASP_STORE_FILE", None)
        self.env.pop("HASP_AGENT", None)

    def client(self, agent: Optional[str] = None) -> hasplock.Client:
        locks = hasplock.Client(agent=agent, store=None if agent else self.store)
        self.addCleanup(locks.close)
        return locks

    def agent(self) -> tuple[subprocess.Popen[bytes], str]:
        address = f"unix:{self.folder}/agent"
        agent = subprocess.Popen(["hasp", "agent", "--listen", address], env=self.env, stderr=subprocess.PIPE)
        for end in agent.communicate, agent.kill:  # the last is done first
            self.addCleanup(end)
        assert agent.stderr
        self.assertIn(b"the locks of", agent.stderr.readline())
        return agent, address

    def program(self, text: str) -> subprocess.Popen[str]:
        """A program in Python that has a client."""
        line = [sys.executable, "-c", "import os, sys, hasplock\nlocks = hasplock.Client()\n" + text]
        program = subprocess.Popen(line, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for end in program.communicate, program.kill:
            self.addCleanup(end)
        return program

    def says(self, program: subprocess.Popen[str]) -> str:
        assert program.stdout
        return program.stdout.readline()

    def break_(self, lease: hasplock.Lease) -> None:
        subprocess.run(["hasp", "break", "k", "--owner", lease.grants[0].owner, "--yes"], env=self.env, check=True, capture_output=True)


class TestLock(Case):
    def test_with(self) -> None:
        one, two = self.client(), self.client()
        with one.lock("k", reason="a test") as lease:
            self.assertGreater(lease.fence, 0)
            self.assertGreater(lease.left, 0)
            self.assertFalse(lease.abandoned)
            lease.check()
            for wait in 0, 0.05:
                with self.assertRaises(hasplock.Busy) as busy:
                    two.lock("k", wait=wait).acquire()
                self.assertEqual((busy.exception.kind, busy.exception.key, busy.exception.holder.reason), ("busy", "k", "a test"))
                self.assertEqual(busy.exception.holder.pid, os.getpid())
        with two.lock("k", wait=SOON) as after:
            self.assertGreater(after.fence, lease.fence)
            self.assertFalse(after.abandoned)
        lease.release()  # again
        with self.assertRaises(hasplock.LockLost):
            lease.check()
        self.assertEqual(lease.left, 0)
        self.assertFalse(lease.lost.is_set())
        with self.assertRaises(RuntimeError):
            lease.acquire()

    def test_modes(self) -> None:
        one, two = self.client(), self.client()
        with one.lock("r", shared=True), two.lock("r", shared=True), one.lock("s", slots=2) as a, two.lock("s", slots=2) as b:
            self.assertEqual({a.grants[0].slot, b.grants[0].slot}, {0, 1})
            for lock in two.lock("r", wait=0), two.lock("s", slots=2, wait=0), two.lock("free", "r", wait=0):
                with self.assertRaises(hasplock.Busy):
                    lock.acquire()
        with two.lock("b", "a", ttl=20, max_hold=60, lead=1, linger=1, cohort=1) as lease:
            self.assertEqual([g.key for g in lease.grants], ["b", "a"])
            self.assertTrue(all(g.fence for g in lease.grants))

    def test_wrong(self) -> None:
        locks = self.client()
        for lock in locks.lock(""), locks.lock("k", ttl=-1), locks.lock("x" * 70000):
            with self.assertRaises(hasplock.HaspError) as error:
                lock.acquire()
            self.assertEqual(error.exception.kind, "invalid")
        with self.assertRaises(ValueError):
            locks.lock("k", wait=math.nan).acquire()
        locks.lock("k", wait=0).acquire().release()  # the connection goes on
        with self.assertRaises(hasplock.Unavailable):
            hasplock.Client(agent=f"unix:{self.folder}/none")
        for agent, store in ("tcp:x", None), (None, "mongo:x"), ("unix:x", "sqlite:x"):
            with self.assertRaises(hasplock.Misconfigured):
                hasplock.Client(agent, store)

    def test_close(self) -> None:
        one, two = self.client(), self.client()
        lease = one.lock("k").acquire()
        one.close()
        self.assertFalse(lease.lost.is_set())  # nobody took it
        with two.lock("k", wait=0) as after:  # it is free by then
            self.assertFalse(after.abandoned)
        with self.assertRaises(hasplock.LockLost):
            lease.release()
        with self.assertRaises(hasplock.Closed):
            one.lock("k").acquire()

    def test_nested_without_end(self) -> None:
        def agent() -> None:
            conn, _ = server.accept()
            with conn:
                conn.recv(1 << 16)
                conn.sendall(b"[" * 100_000 + b"\n")  # json has a RecursionError for it
                while conn.recv(1 << 16):
                    pass

        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{self.folder}/fake")
            server.listen()
            threading.Thread(target=agent, daemon=True).start()
            with self.assertRaises(hasplock.Unavailable) as raised:
                hasplock.Client(f"unix:{self.folder}/fake")
            self.assertIn("ended at once", str(raised.exception))  # not after a patience

    def test_refused_client_leaves_nothing(self) -> None:
        before = threading.active_count()
        gone = threading.Event()
        def agent() -> None:
            conn, _ = server.accept()
            with conn:
                asked = json.loads(conn.recv(1 << 16))
                conn.sendall(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": "no", "data": {"kind": "unsupported"}}}).encode() + b"\n")
                while conn.recv(1 << 16):
                    pass
            gone.set()

        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{self.folder}/fake")
            server.listen()
            threading.Thread(target=agent, daemon=True).start()
            with self.assertRaises(hasplock.Unsupported):
                hasplock.Client(f"unix:{self.folder}/fake")
            self.assertTrue(gone.wait(SOON))
            until(lambda: threading.active_count() == before)

    def test_lead(self) -> None:
        locks = self.client()
        with locks.lock("k", ttl=60, lead=20) as lease:
            self.assertLess(lease.left, 41)  # also where the agent falls silent

    def test_close_crosses_a_grant(self) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{self.folder}/fake")
            server.listen()
            asked, looked = threading.Event(), threading.Event()
            got: list[float] = []

            def agent() -> None:
                conn, _ = server.accept()
                with conn, conn.makefile("rw") as f:
                    for line in f:
                        m = json.loads(line)
                        if m["method"] == "lock":
                            waits = m["id"]
                            asked.set()
                            continue
                        if m["method"] == "bye":  # that gives back what was granted before it, and takes its time
                            grant = {"lease": "1", "keys": [{"key": "k"}], "left_ms": 600_000}
                            f.write(json.dumps({"id": waits, "result": grant}) + "\n")
                            f.flush()
                            looked.wait(SOON)
                        f.write(json.dumps({"id": m["id"], "result": {}}) + "\n")
                        f.flush()
                        if m["method"] == "bye":
                            return

            def wait() -> None:
                got.append(locks.lock("k").acquire().left)
                looked.set()

            threads = [threading.Thread(target=agent, daemon=True)]
            threads[0].start()
            locks = hasplock.Client(f"unix:{self.folder}/fake")
            threads.append(threading.Thread(target=wait, daemon=True))
            threads[1].start()
            asked.wait(SOON)
            locks.close()
            for thread in threads:
                thread.join(SOON)
            self.assertEqual(got, [0.0])

    def test_wanted(self) -> None:
        one, two = self.client(), self.client()
        with one.lock("k", on_wanted=hasplock.Lease.release):
            two.lock("k", wait=SOON).acquire().release()

    def test_prolongs(self) -> None:
        with self.client().lock("k", ttl=12) as lease:
            first = lease._deadline
            until(lambda: lease._deadline > first)
            lease.check()


class TestLoss(Case):
    def test_broken(self) -> None:
        locks, told = self.client(), threading.Event()
        with self.assertRaises(hasplock.LockLost):
            with locks.lock("k", ttl=3, on_lost=lambda lease: told.set()) as lease:
                self.break_(lease)
                self.assertTrue(lease.lost.wait(SOON))
                self.assertRaises(hasplock.LockLost, lease.check)
                self.assertTrue(told.wait(SOON))
        with self.assertRaises(KeyError):  # the block's own error goes on
            with locks.lock("k", ttl=3) as lease:
                self.break_(lease)
                self.assertTrue(lease.lost.wait(SOON))
                raise KeyError

    def test_holder_killed(self) -> None:
        holder = self.program("locks.lock('k', ttl=3600).acquire(); print('held', flush=True); sys.stdin.read()")
        self.assertEqual(self.says(holder), "held\n")
        holder.kill()
        with self.client().lock("k", wait=SOON) as lease:
            self.assertTrue(lease.abandoned)

    def test_agent_killed(self) -> None:
        agent, address = self.agent()
        locks = self.client(address)
        with self.assertRaises(hasplock.LockLost):
            with locks.lock("k", ttl=3600) as lease:
                agent.kill()
                self.assertTrue(lease.lost.wait(SOON))
        with self.assertRaises(hasplock.Closed):
            locks.lock("k").acquire()

    def test_agent_stopped(self) -> None:
        agent, address = self.agent()
        with self.assertRaises(hasplock.LockLost):
            with self.client(address).lock("k", ttl=3) as lease:
                agent.send_signal(signal.SIGSTOP)
                deadline = lease._deadline
                self.assertTrue(lease.lost.wait(SOON))
                self.assertGreaterEqual(hasplock._now(), deadline)
                self.assertRaises(hasplock.LockLost, lease.check)
        agent.send_signal(signal.SIGCONT)

    def test_fork(self) -> None:
        parent = self.program("""
lease = locks.lock('k', ttl=3600).acquire()
def refused(what):
    try: what()
    except hasplock.HaspError as e: return e.kind
child = os.fork()
if not child:
    print(refused(lease.check), refused(locks.lock('l').acquire), refused(lease.release), lease.lost.is_set(), flush=True)
    with hasplock.Client() as own, own.lock('l'): pass
    print('child', flush=True)
    sys.stdin.read()
    os._exit(0)
lease.check()
sys.stdin.read()
""")
        self.assertEqual(self.says(parent), "lost closed lost True\n")
        self.assertEqual(self.says(parent), "child\n")
        parent.kill()  # the child lives on
        with self.client().lock("k", wait=SOON) as lease:
            self.assertTrue(lease.abandoned)


class TestTogether(Case):
    def test_threads(self) -> None:
        locks, n = self.client(), 0

        def add() -> None:
            nonlocal n
            for _ in range(10):
                with locks.lock("k"):
                    seen = n
                    time.sleep(0)
                    n = seen + 1

        threads = [threading.Thread(target=add) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(n, 80)

    def waiting(self, locks: hasplock.Client, n: int) -> Callable[[], bool]:
        return lambda: bool(locks._call("status", {}, SOON)["waiting"] == n)

    def test_interrupt(self) -> None:
        holder, locks = self.client(), self.client()
        with holder.lock("k"):
            def interrupt() -> None:
                until(self.waiting(locks, 1))
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt, daemon=True).start()
            with self.assertRaises(KeyboardInterrupt):
                locks.lock("k").acquire()
            until(self.waiting(locks, 0))
        holder.lock("k", wait=SOON).acquire().release()

    def test_interrupt_of_a_grant(self) -> None:
        locks = self.client()
        for granted_first in False, True:
            lock, answer = locks.lock("k"), None
            with self.assertRaises(KeyboardInterrupt):
                with lock._asked() as answer:
                    if granted_first:
                        answer.result(SOON)
                    raise KeyboardInterrupt
            until(lambda: not locks._held and not locks._pending)
            locks.lock("k", wait=SOON).acquire().release()

    def test_asyncio(self) -> None:
        holder, locks = self.client(), self.client()

        async def main() -> None:
            lease = await holder.lock("k")
            waiter = asyncio.create_task(use())
            while not await asyncio.to_thread(self.waiting(locks, 1)):  # the loop goes on meanwhile
                pass
            cancelled = asyncio.create_task(use())
            while not await asyncio.to_thread(self.waiting(locks, 2)):
                pass
            cancelled.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await cancelled
            with self.assertRaises(hasplock.Busy):
                await locks.lock("k", wait=0)
            while not await asyncio.to_thread(self.waiting(locks, 1)):
                pass
            await lease.release_async()
            await waiter

        async def use() -> None:
            async with locks.lock("k") as lease:
                lease.check()

        asyncio.run(main())

    def test_exit(self) -> None:
        program = self.program("locks.lock('k').acquire()")
        self.assertEqual((program.communicate(timeout=SOON), program.returncode), (("", ""), 0))

    def test_readme(self) -> None:
        blocks = re.findall(r"(?ms)^```python\n(.*?)^```", (FOLDER / "README.md").read_text())
        self.assertEqual(len(blocks), 2)
        for block, says in zip(blocks, ["holding with fence", "one of three, among readers\n"]):
            out = subprocess.run([sys.executable, "-c", block], env=self.env, check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertIn(says, out)


if __name__ == "__main__":
    unittest.main()
