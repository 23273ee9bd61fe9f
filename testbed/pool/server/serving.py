"""What the servers of a pool serve: their files, the program, and how one sees that it answers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from testbed.measure.content import content_blocks
from testbed.plan.types import Service
from testbed.pool.lab import fileserver
from testbed.pool.spec import PoolSpec

ZONE = "pool.test"
"""The zone that name servers of a pool have."""
CONTENT = "file"
"""Name of the large file that web servers have."""


def needs(spec: PoolSpec) -> list[tuple[str, str]]:
    """Programs that servers run, and the Debian package of each."""
    if spec.service == "dns":
        return [("knotd", "knot")]
    return [("python3", "python3")] if spec.connections == "migrate" else [("nginx", "nginx-light")]


def files_of(server: str, folder: str, address: str, spec: PoolSpec, seed: int) -> dict[str, bytes]:
    """The files in the server's folder, ``folder``, by path within it. The same at every server but for its name."""
    if spec.service == "dns":
        return {"knot.conf": _knot(server, folder).encode(), f"{ZONE}.zone": _zone(address).encode(), "db/empty": b""}
    page = "<!doctype html><title>pool</title><p>This page is as it should be.\n"
    files = {"www/index.html": page.encode(), f"www/{CONTENT}": b"".join(content_blocks(spec.content.size, seed))}
    if spec.connections == "migrate":
        return files | {path: text.encode() for path, text in fileserver.files().items()}
    return files | {"nginx.conf": _nginx(server, folder).encode(), "nginx-temp/empty": b""}


def program_of(server: str, spec: PoolSpec, address: str) -> Service:
    """The program that serves."""
    if spec.service == "dns":
        return Service(name="dns", argv=("knotd", "-c", "${dir}/knot.conf"))
    if spec.connections == "migrate":
        everywhere = "[::]:80" if ":" in address else "0.0.0.0:80"
        return fileserver.service(server, (everywhere,))
    return Service(name="web", argv=("nginx", "-p", "${dir}", "-c", "${dir}/nginx.conf", "-e", "stderr"))


def probe_of(spec: PoolSpec, address: str) -> Callable[[], bool]:
    """Whether the service answers at ``address``; to be asked inside the server's namespace."""
    return (lambda: _answers_dns(address)) if spec.service == "dns" else (lambda: _accepts(address, 80))


def _accepts(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), 1):
            return True
    except OSError:
        return False


def _answers_dns(address: str) -> bool:
    """One query (RFC 1035) for the zone's SOA."""
    name = b"".join(bytes([len(label)]) + label.encode() for label in ZONE.split(".")) + b"\0"
    query = struct.pack(">HHHHHH", 0x7462, 0, 1, 0, 0, 0) + name + struct.pack(">HH", 6, 1)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.1)
        try:
            asking.connect((address, 53))
            asking.send(query)
            answer = asking.recv(4096)
        except OSError:
            return False
    # the same number, an answer without error, and something in it
    return answer[:2] == query[:2] and bool(answer[2] & 0x80) and not answer[3] & 0x0F and answer[6:8] != b"\0\0"


def _nginx(server: str, folder: str) -> str:
    temporary = "".join(
        f"    {kind}_temp_path {folder}/nginx-temp;\n" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    return (
        "daemon off;\n"
        "master_process off;\n"
        f"pid {folder}/nginx.pid;\n"
        "error_log stderr warn;\n"
        "events { worker_connections 1024; }\n"
        "http {\n"
        f"    log_format plain '$msec $remote_addr $remote_port $request_method $uri $status';\n"
        f"    access_log {folder}/access.log plain;\n"
        "    default_type application/octet-stream;\n"
        "    types { text/html html; }\n"
        f"{temporary}"
        "    sendfile on;\n"
        "    server {\n"
        "        listen 80;\n"
        "        listen [::]:80;\n"
        f"        root {folder}/www;\n"
        f"        add_header X-Server {server} always;\n"
        "    }\n"
        "}\n"
    )


def _knot(server: str, folder: str) -> str:
    return (
        "server:\n"
        f"    identity: {server}\n"
        f"    nsid: {server}\n"
        f"    rundir: {folder}\n"
        '    listen: [0.0.0.0@53, "::@53"]\n'
        "    udp-workers: 1\n"
        "    tcp-workers: 1\n"
        "    background-workers: 1\n"
        "database:\n"
        f"    storage: {folder}/db\n"
        "log:\n"
        "  - target: stderr\n"
        "    any: warning\n"
        "zone:\n"
        f"  - domain: {ZONE}\n"
        f"    storage: {folder}\n"
        f"    file: {ZONE}.zone\n"
        "    zonefile-sync: -1\n"
        "    journal-content: none\n"
    )


def _zone(address: str) -> str:
    kind = "AAAA" if ":" in address else "A"
    return (
        f"$ORIGIN {ZONE}.\n$TTL 60\n"
        f"@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns {kind} {address}\nwww {kind} {address}\n"
    )
