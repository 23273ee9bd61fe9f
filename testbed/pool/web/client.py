"""Clients of a file server that look at every byte and at every pause; ``python3 -m web.client``.

Each connection makes one request after another until the time is up: downloads, whose content must have the SHA-256
that the ETag says, or uploads, whose SHA-256 the server must answer. One JSON object is printed at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import selectors
import signal
import socket
import sys
import time
from typing import Any

PIECE = 1 << 16


class Client:
    """One connection."""

    def __init__(self, number: int, options: argparse.Namespace) -> None:
        self.number = number
        self.options = options
        self.body = random.Random(number).randbytes(options.upload) if options.upload else b""
        self.sock = socket.create_connection((options.address, options.port), 10)
        self.sock.setblocking(False)
        self.done = self.count = self.bytes = 0
        self.gap = self.gap_at = 0.0
        self.wrong: list[str] = []
        self.servers: dict[str, int] = {}
        self.idle_until = 0.0
        self.trace: list[float] = []  # the longest gap of each stretch of time
        self.born = 0.0

    def begin(self) -> None:
        """Prepare the next request."""
        what = f"PUT /{self.number}" if self.body else f"GET {self.options.path}"
        head = f"{what} HTTP/1.1\r\nHost: pool\r\n"
        if self.body:
            head += f"Content-Length: {len(self.body)}\r\n"
        self.request = memoryview(head.encode() + b"\r\n" + self.body)
        self.answer = bytearray()
        self.fields: dict[str, str] = {}
        self.left = -1
        self.hash = hashlib.sha256()
        self.text = b""
        self.last = time.monotonic()

    def send(self) -> None:
        """Send what the socket takes."""
        sent = self.sock.send(self.request[:PIECE])
        self.request = self.request[sent:]
        self.bytes += sent
        if self.body:
            self.seen()

    def seen(self) -> None:
        """Something moved: how long has nothing?"""
        now = time.monotonic()
        gap = now - self.last
        if gap > self.gap:
            self.gap, self.gap_at = gap, now
        if self.options.trace:
            stretch = int((now - self.born) / self.options.trace)
            self.trace += [0.0] * (stretch + 1 - len(self.trace))
            self.trace[stretch] = max(self.trace[stretch], gap)
        self.last = now

    def receive(self) -> bool:
        """Read; whether a response is complete."""
        data = self.sock.recv(PIECE)
        self.seen()
        if not data:
            raise ConnectionError("the server closed the connection in the middle")
        self.bytes += len(data)
        if self.left < 0:
            self.answer += data
            head, found, rest = self.answer.partition(b"\r\n\r\n")
            if not found:
                return False
            lines = head.decode().split("\r\n")
            self.fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if lines[0].split()[1] not in ("200", "201"):
                self.wrong.append(lines[0])
            self.left, data = int(self.fields["content-length"]), bytes(rest)
        self.hash.update(data)
        self.left -= len(data)
        if self.body:
            self.text += data
        if self.left > 0:
            return False
        self.complete()
        return True

    def complete(self) -> None:
        """Compare what came with what should have come."""
        self.count += 1
        server = self.fields.get("x-server", "?")
        self.servers[server] = self.servers.get(server, 0) + 1
        got = json.loads(self.text)["sha256"] if self.body else self.hash.hexdigest()
        wanted = hashlib.sha256(self.body).hexdigest() if self.body else self.fields.get("etag", "").strip('"')
        if self.left or got != wanted:
            self.wrong.append(f"content {got[:12]}, not {wanted[:12]}, {self.left} left")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Open the connections, use them until the time is up and the last responses are there."""
    poll = selectors.DefaultSelector()
    clients = [Client(number, options) for number in range(options.connections)]
    for client in clients:
        client.born = time.monotonic()
        client.begin()
        poll.register(client.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
    errors: list[str] = []
    print("ready", flush=True)
    until = time.monotonic() + options.seconds
    limit = until + options.patience
    told: list[int] = []  # SIGTERM: begin nothing more; SIGINT: break off, what was complete counts
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    active, idle = set(clients), set[Client]()
    while active:
        now = time.monotonic()
        if signal.SIGINT in told:
            break
        if told and until > now:
            until, limit = now, now + options.patience
        if now > limit:
            errors += [f"connection {item.number} hangs for {now - item.last:.1f} s" for item in active]
            break
        for client in [item for item in idle if item.idle_until <= now]:
            idle.discard(client)
            if now > until:
                active.discard(client)
            else:
                client.begin()
                poll.register(client.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
        for key, events in poll.select(0.002 if idle else 0.2):
            client = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    client.send()
                    if not client.request:
                        poll.modify(client.sock, selectors.EVENT_READ, client)
                if events & selectors.EVENT_READ and client.receive():
                    poll.unregister(client.sock)
                    client.idle_until = time.monotonic() + options.pause
                    idle.add(client)
            except BlockingIOError:
                continue
            except (OSError, ValueError) as error:
                errors.append(f"connection {client.number}: {error}")
                poll.unregister(client.sock)
                active.discard(client)
    servers: dict[str, int] = {}
    for client in clients:
        for name, count in client.servers.items():
            servers[name] = servers.get(name, 0) + count
        client.sock.close()
    return {
        "connections": len(clients),
        "requests": sum(client.count for client in clients),
        "bytes": sum(client.bytes for client in clients),
        "errors": errors,
        "wrong": [text for client in clients for text in client.wrong],
        "gaps": [round(client.gap, 6) for client in clients],
        "gap_at": [round(client.gap_at, 6) for client in clients],
        "trace": clients[0].trace,
        "servers": servers,
    }


def main(arguments: list[str]) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="clients that verify every byte and time every pause")
    parser.add_argument("address")
    parser.add_argument("--port", type=int, default=80)
    parser.add_argument("--path", default="/")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long requests are begun")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between requests of a connection")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for the last responses")
    parser.add_argument("--upload", type=int, default=0, help="bytes to PUT in each request, instead of GET")
    parser.add_argument("--trace", type=float, default=0.0, help="seconds; the longest pause of each such stretch")
    print(json.dumps(run(parser.parse_args(arguments))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
