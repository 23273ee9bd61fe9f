"""The redirector beside plain redirects of nginx and, where it is there, haproxy: on one node, under the same load.

A machine that does other things meanwhile slows all of them, and wrk may be slower than they are. So besides requests a
second there are requests a second of processor time that the server used (proc(5): user and system time of its worker),
which is what a core would serve.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.edge import control, redirector
from testbed.edge.plan import names
from testbed.errors import TestbedError
from testbed.lab.programs import find
from testbed.plan.types import Service
from testbed.runtime.base import UNPRIVILEGED_ID, Process

if TYPE_CHECKING:
    from testbed.edge.network import Edge

REDIRECTOR, NGINX, HAPROXY = "redirector", "plain nginx", "plain haproxy"
NGINX_PORT, HAPROXY_PORT = 8081, 8082
_TICKS = os.sysconf("SC_CLK_TCK")
_TOTAL = re.compile(r"(\d+) requests in ([0-9.]+)(ms|s|m)")
_WRONG = re.compile(r"Non-2xx or 3xx responses: \d+|Socket errors: .*")

_PLAIN_NGINX = """\
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {folder}/plain.pid;
error_log stderr warn;
events {{ worker_connections 8000; }}
http {{
  access_log off;
  server_tokens off;
  default_type text/plain;
{temporary}  server {{
    listen {listener}:{port} backlog=4096;
    keepalive_requests 10000;
    return 302 {place}$request_uri;
  }}
}}
"""
_PLAIN_HAPROXY = """\
global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
frontend plain
  bind {listener}:{port} backlog 4096
  http-request redirect prefix {place} code 302
"""
_LOAD = """\
local asked, number = {{}}, 0
function init(args)
{requests}end
function request()
  number = number % #asked + 1
  return asked[number]
end
"""


@dataclass(frozen=True, slots=True)
class Score:
    """One server under load for a while."""

    server: str
    requests: int
    seconds: float
    cpu: float
    """Seconds of processor time of the server."""
    wrong: str
    """What wrk says of answers that failed; empty: none did."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def rate_of_a_core(self) -> float:
        """Requests a second of the server's processor time."""
        return self.requests / self.cpu if self.cpu else 0.0


class Contest:
    """The servers of one provider's listener, started; they end with the lab."""

    def __init__(self, edge: Edge, hosts: Sequence[str] = ()) -> None:
        """``hosts``: the sites that are asked for in turn, all if none is named.

        TestbedError where wrk is missing, or a server does not redirect users to the right place.
        """
        if find("wrk") is None:
            raise TestbedError("there is no program wrk", remedy="run `apt-get install wrk`")
        self._edge = edge
        isp = edge.world.isps[0]
        self._listener = isp.listener.ip
        self._folder = edge.lab.node_folder(names.REDIRECTOR)
        place = redirector.place(edge.world.sites[0], isp.name, edge.world.sites[0].public[isp.name])
        keys = {"listener": self._listener, "folder": self._folder, "place": place}
        temporary = "".join(
            f"  {kind}_temp_path {self._folder}/temp-plain;\n"
            for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
        )
        self._write("plain.conf", _PLAIN_NGINX.format(port=NGINX_PORT, temporary=temporary, **keys))
        self._write("plain.cfg", _PLAIN_HAPROXY.format(port=HAPROXY_PORT, **keys))
        nginx = ("nginx", "-p", "${dir}", "-c", "${dir}/plain.conf", "-e", "stderr")
        haproxy = ("haproxy", "-db", "-f", "${dir}/plain.cfg")
        spawn = edge.lab.spawn
        self.servers: dict[str, tuple[int, Process]] = {
            REDIRECTOR: (
                edge.world.ports[0],
                edge.lab.services(names.REDIRECTOR)[redirector.service_of(isp.name).name][0],
            ),
            NGINX: (NGINX_PORT, spawn(names.REDIRECTOR, Service(name="plain-nginx", argv=nginx))),
        }
        if find("haproxy"):
            self.servers[HAPROXY] = HAPROXY_PORT, spawn(names.REDIRECTOR, Service(name="plain-haproxy", argv=haproxy))
        for server, (port, _) in self.servers.items():
            edge.await_answer(names.INNER, IPv4Address(int(self._listener)), port, names.REDIRECTOR)
            led = control.location(edge.lab, isp.listener.ip, edge.world.sites[0], port)
            if not led.startswith(place):
                raise TestbedError(f"the {server} sends users to {led!r} instead of {place}")
        self._load = edge.lab.node_folder(names.INNER) / "load.lua"
        self._close = edge.lab.node_folder(names.INNER) / "load-close.lua"
        asked = hosts or [site.host for site in edge.world.sites]
        self._load.write_text(load(asked, close=False))
        self._close.write_text(load(asked, close=True))

    def run(self, server: str, seconds: float, connections: int, *, close: bool = False) -> Score:
        """Load one server from the inner router; ``close``: a connection for each request."""
        port, process = self.servers[server]
        before = _cpu(process.pid)
        script = self._close if close else self._load
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script)]
        url = f"http://{self._listener}:{port}/"
        done = self._edge.lab.exec(names.INNER, [*command, url], timeout=seconds + 30, root=False, check=True)
        found = _TOTAL.search(done.stdout)
        if found is None:
            raise TestbedError(f"wrk said: {done.stdout[-300:]}")
        unit = {"ms": 0.001, "s": 1.0, "m": 60.0}[found[3]]
        wrong = "; ".join(_WRONG.findall(done.stdout))
        return Score(server, int(found[1]), float(found[2]) * unit, _cpu(process.pid) - before, wrong)

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.write_text(text)
        os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)


def load(hosts: Sequence[str], *, close: bool) -> str:
    """A script for wrk that asks for every site in turn."""
    more = ', ["Connection"] = "close"' if close else ""
    lines = "".join(
        f'  asked[#asked + 1] = wrk.format("GET", "/page?from=load", {{["Host"] = "{host}"{more}}})\n' for host in hosts
    )
    return _LOAD.format(requests=lines)


def _cpu(pid: int) -> float:
    """Seconds of user and system time of a process and of its children that live."""
    total = 0
    for one in (pid, *control.children(pid)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS
