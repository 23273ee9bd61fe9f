"""The campus edge: what redirection gains each network's users, and what the redirector costs beside plain ones.

``edge-gain``: median transfer of a page after the redirection over the same page without a mode, for the worst network,
and for each one. ``redirector-ratio``: requests for each second of processor time of the generated redirector with 1000
sites, over those of an nginx that redirects everything to one place, in the same run, turn by turn; also over haproxy's
where it is there. With a connection for each request, as users come, and (``-kept``) with connections that are kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median

from bench.figure import Figure
from bench.own_state import own_state
from testbed.edge import redirector
from testbed.edge.check import world_of
from testbed.edge.compare import plan_in_mode
from testbed.edge.network import Edge
from testbed.edge.spec import EdgeSpec
from testbed.edge.world import World
from testbed.lab.lab import Lab
from testbed.lab.programs import find
from testbed.lab.up import up
from testbed.plan.load import load_text, load_topology
from testbed.plan.types import Plan, Service

CAMPUS = Path(__file__).parents[1] / "topologies" / "campus.yaml"
VISITS = 5
ROUNDS = 7
SECONDS = 2
CONNECTIONS = 64
SITES, ISPS, PREFIXES = 1000, 4, 2000
HOST = "s500.campus.test"
_COUNT = re.compile(r"([0-9]+) requests in ")
_ERRORS = re.compile(r"(Non-2xx or 3xx responses|Socket errors): (.*)")


def measure(name: str) -> list[Figure]:
    """The figures of a bench."""
    return gain() if name == "edge-gain" else ratio()


@contextmanager
def running(plan: Plan) -> Iterator[Lab]:
    """A lab with a state folder of its own."""
    with own_state():
        lab = up(plan)
        try:
            yield lab
        finally:
            lab.down()


def gain() -> list[Figure]:
    """``edge-gain``: the worst network first, then each."""
    topology, _ = load_topology(CAMPUS)
    seconds: dict[str, dict[str, list[float]]] = {}
    for mode in ("none", "redirect"):
        with running(plan_in_mode(topology, mode)) as lab:
            edge: Edge = lab.subsystem("edge")
            seconds[mode] = {isp.name: _visits(edge, isp.clients[0].node) for isp in edge.world.isps}
    ratios = {
        isp: tuple(after / median(seconds["none"][isp]) for after in afters)
        for isp, afters in seconds["redirect"].items()
    }
    worst = max(ratios, key=lambda isp: median(ratios[isp]))
    each = [Figure(f"edge-gain-{isp}", "of the transfer", 0.1, values) for isp, values in ratios.items()]
    return [Figure("edge-gain", "of the transfer", 0.1, ratios[worst]), *each]


def _visits(edge: Edge, client: str) -> list[float]:
    found = []
    for _ in range(VISITS):
        fetch = edge.fetch(client, edge.world.sites[0].host, timeout=30)
        if not fetch.ok or fetch.transfer is None:
            raise SystemExit(f"{client} got no page: {fetch.outcome}")
        found.append(fetch.transfer)
    return found


def large_world() -> World:
    """1000 sites, 4 providers, 2000 prefixes."""
    share = PREFIXES // ISPS
    isps = {
        f"isp{number}": {
            "prefixes": [f"{60 + number}.{i // 16}.{16 * (i % 16)}.0/20" for i in range(share)],
            "public": f"{60 + number}.0.8.1",
        }
        for number in range(ISPS)
    }
    sites: dict[str, dict[str, str]] = {f"s{number}.campus.test": {} for number in range(SITES)}
    campus = {"prefix": "202.112.16.0/20"}
    world, problems = world_of(EdgeSpec.model_validate({"isps": isps, "sites": sites, "campus": campus}))
    if world is None:
        raise SystemExit(problems[0].message)
    return world


@dataclass(frozen=True)
class Engine:
    """A redirector that is compared."""

    name: str
    port: int
    argv: tuple[str, ...]
    files: Mapping[str, str]


def engines(address: IPv4Address) -> list[Engine]:
    """The generated one, a plain nginx and, where it is there, a plain haproxy."""
    world = large_world()
    isp = world.isps[0]
    nginx = ("nginx", "-p", "${dir}", "-e", "stderr", "-c")
    ours = redirector.configuration(isp.name, address, [8081], 302)
    table = redirector.places(world.sites, isp.name).replace(".test:80 ", ".test:8081 ")
    location = redirector.place(world.site(HOST), isp.name, world.site(HOST).public[isp.name])
    plain = re.sub(
        r"  # where a site is.*  server \{.*?(    listen [^\n]*\n).*\Z",
        lambda match: _plain_server(match[1].replace("8081", "8082"), location),
        ours,
        flags=re.DOTALL,
    ).replace(f"{isp.name}.pid", "plain.pid")
    made = [
        Engine("ours", 8081, (*nginx, "${dir}/ours.conf"), {"ours.conf": ours, f"{isp.name}.sites": table}),
        Engine("nginx", 8082, (*nginx, "${dir}/plain.conf"), {"plain.conf": plain}),
    ]
    if find("haproxy"):
        text = HAPROXY.format(address=address, location=location)
        made.append(Engine("haproxy", 8083, ("haproxy", "-db", "-f", "${dir}/haproxy.cfg"), {"haproxy.cfg": text}))
    return made


def _plain_server(listen: str, location: str) -> str:
    return f"  server {{\n{listen}    keepalive_requests 10000;\n    return 302 {location}$request_uri;\n  }}\n}}\n"


HAPROXY = """\
global
  maxconn 8000
  nbthread 1
defaults
  mode http
  timeout client 30s
  timeout server 30s
  timeout connect 5s
frontend plain
  bind {address}:8083 backlog 4096
  http-request redirect code 302 location {location}%[capture.req.uri]
"""


def ratio() -> list[Figure]:
    """``redirector-ratio``, one connection a request and with connections kept, over nginx's and over haproxy's."""
    if find("wrk") is None:
        raise SystemExit("this bench needs wrk: `apt-get install wrk`")
    _, plan = load_text("name: ratio\nnodes: {client: {}, server: {}}\nlinks: [[client, server]]\n")
    with running(plan) as lab:
        address = IPv4Address(str(lab.plan.address("server")))
        compared = engines(address)
        for engine in compared:
            _start(lab, engine)
        rates: dict[tuple[str, bool], list[float]] = {}
        for _ in range(ROUNDS):
            for engine in compared:
                for kept in (False, True):
                    rates.setdefault((engine.name, kept), []).append(_rate(lab, address, engine, kept))
    return [
        figure
        for other in (engine.name for engine in compared if engine.name != "ours")
        for kept in (False, True)
        for figure in [_figure(rates, other, kept)]
    ]


def _figure(rates: Mapping[tuple[str, bool], list[float]], other: str, kept: bool) -> Figure:
    name = "redirector-ratio" + ("" if other == "nginx" else f"-{other}") + ("-kept" if kept else "")
    values = tuple(a / b for a, b in zip(rates["ours", kept], rates[other, kept], strict=True))
    return Figure(
        name, f"of {other}'s {median(rates[other, kept]):.0f} requests a second of processor time", 0.95, values
    )


def _start(lab: Lab, engine: Engine) -> None:
    folder = lab.node_folder("server")
    for name, text in engine.files.items():
        (folder / name).write_text(text.replace("${dir}", str(folder)))
    process = lab.spawn("server", Service(name=engine.name, argv=engine.argv))
    url = f"http://{lab.plan.address('server')}:{engine.port}/a?b"
    seen = ""
    for _ in range(100):
        options = ["-s", "-m", "2", "-o", "/dev/null", "-w", "%{redirect_url}", "-H", f"Host: {HOST}"]
        seen = lab.exec("client", ["curl", *options, url]).stdout
        if seen.endswith(":8501/a?b"):
            return
    raise SystemExit(f"{engine.name} does not redirect ({seen!r}):\n{process.log_tail()}")


def _rate(lab: Lab, address: IPv4Address, engine: Engine, kept: bool) -> float:
    """Requests for each second of the engine's own processor time, asked for by one wrk.

    Of wall time the figure would be that of whatever else runs on the machine, and where it runs alone that of wrk.
    """
    before = _processor(lab, engine)
    close = [] if kept else ["-H", "Connection: close"]
    url = f"http://{address}:{engine.port}/a?b"
    argv = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-H", f"Host: {HOST}", *close, url]
    said = lab.exec("client", argv, timeout=60, check=True).stdout
    found = _COUNT.search(said)
    if found is None or _ERRORS.search(said):
        raise SystemExit(f"wrk and {engine.name}: {said}")
    return float(found[1]) / (_processor(lab, engine) - before)


def _processor(lab: Lab, engine: Engine) -> float:
    """Seconds of processor time that an engine's processes have used."""
    first = lab.services("server")[engine.name][0].pid
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    ticks = 0
    for pid in (first, *map(int, children)):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
