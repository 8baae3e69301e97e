# Copyright 2026 The hasp Authors
# SPDX-License-Identifier: Apache-2.0
"""Speaks the protocol of hasp agent on its standard input and output, by the client: hasp verify --client 'python3 conformance.py'."""

from __future__ import annotations

import asyncio, json, sys
from typing import Any, Dict

import hasplock

locks = hasplock.Client()
leases: Dict[str, hasplock.Lease] = {}
running: Dict[Any, asyncio.Task[None]] = {}


def write(message: Dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def grant(lease: hasplock.Lease) -> Dict[str, Any]:
    keys = [{**k._asdict(), "fence": str(k.fence) if k.fence else ""} for k in lease.grants]
    return {"lease": str(id(lease)), "keys": keys, "fence": str(lease.fence), "abandoned": lease.abandoned, "left_ms": int(lease.left * 1000)}


async def lock(p: Dict[str, Any], loop: asyncio.AbstractEventLoop) -> Dict[str, Any]:
    def tell(method: str, lease: hasplock.Lease) -> None:
        notice = {"method": method, "params": {"lease": str(id(lease)), "keys": [k.key for k in lease.grants], "left_ms": 0}}
        loop.call_soon_threadsafe(loop.call_soon, write, notice)  # behind the answer

    names = {"wait": "wait_ms", "ttl": "ttl_ms", "max_hold": "max_hold_ms", "lead": "lead_ms", "linger": "linger_ms"}
    options = {name: p[ms] / 1000 for name, ms in names.items() if ms in p}
    lease = await locks.lock(
        *([p["key"]] if p.get("key") else []), *p.get("keys", []), shared=p.get("mode") == "shared", slots=p.get("slots"),
        reason=p.get("reason"), on_lost=lambda lease: tell("lost", lease),
        on_wanted=(lambda lease: tell("wanted", lease)) if p.get("wanted") else None, **options)  # fmt: skip
    leases[str(id(lease))] = lease
    return grant(lease)


async def do(method: str, p: Dict[str, Any]) -> Dict[str, Any]:
    if method == "hello":
        return locks.hello
    if method == "lock":
        return await lock(p, asyncio.get_running_loop())
    if method == "bye":
        await asyncio.to_thread(locks.close)
        return {}
    if method == "status" and p.get("lease") in leases:
        leases[p["lease"]].check()
        return {"leases": 1, "left_ms": int(leases[p["lease"]].left * 1000)}
    if method == "release" and p.get("lease") in leases:
        await leases.pop(p["lease"]).release_async()
        return {}
    raise hasplock.Unsupported("unsupported", f"the client has no {method} for {p}")


async def answer(m: Dict[str, Any]) -> None:
    try:
        write({"id": m["id"], "result": await do(m["method"], m.get("params") or {})})
    except asyncio.CancelledError:
        write({"id": m["id"], "error": {"code": -32800, "message": "cancelled", "data": {"kind": "cancelled"}}})
    except hasplock.HaspError as e:
        holder = {k: v for k, v in e.holder._asdict().items() if v}
        data = {"kind": e.kind, "key": e.key, **({"holder": holder} if holder else {})}
        write({"id": m["id"], "error": {"code": -32000, "message": str(e), "data": data}})
    finally:
        running.pop(m["id"], None)


async def main() -> None:
    lines = asyncio.StreamReader(limit=1 << 17)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        m = json.loads(line)
        if "id" in m:
            running[m["id"]] = asyncio.create_task(answer(m))
        elif m["method"] == "$/cancelRequest" and m["params"]["id"] in running:
            running[m["params"]["id"]].cancel()


if __name__ == "__main__":
    asyncio.run(main())
