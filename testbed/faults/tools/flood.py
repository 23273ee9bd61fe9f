"""Helper program: opens many TCP connections from where it runs. It never does more than its job says, nor longer.

Its job: address, port, count, rate (connections a second), seconds (until it ends), interval (seconds between two
header lines of a request that never ends; 0: nothing is sent). Standard library only, so that it starts quickly.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

_AT_LAST = 2
"""Seconds after its time at which the kernel ends the program, whatever it does."""


async def flood(job: dict[str, Any]) -> None:
    """Open connections one after the other, and keep them until the time is over."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    held = set()
    for number in range(job["count"]):
        await asyncio.sleep(start + number / job["rate"] - loop.time())
        if loop.time() - start > job["seconds"]:
            break
        task = asyncio.create_task(_hold(job))
        held.add(task)
        task.add_done_callback(held.discard)
    await asyncio.sleep(start + job["seconds"] - loop.time())


async def _hold(job: dict[str, Any]) -> None:
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(job["address"], job["port"])
        try:
            if job["interval"]:
                await _dawdle(writer, job)
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()


async def _dawdle(writer: asyncio.StreamWriter, job: dict[str, Any]) -> None:
    writer.write(f"GET / HTTP/1.1\r\nHost: {job['address']}\r\n".encode())
    while not writer.is_closing():
        await writer.drain()
        await asyncio.sleep(job["interval"])
        writer.write(b"X-More: to-come\r\n")


if __name__ == "__main__":
    given = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_REAL, given["seconds"] + _AT_LAST)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(flood(given))
