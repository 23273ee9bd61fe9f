"""A campus edge that is up: who its users are, what they fetch and by which way, where they are sent."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv4Address
from typing import Any, TypeVar
from urllib.parse import urlsplit

from testbed.edge import control, webserver
from testbed.edge.dns.ask import NoName, await_names
from testbed.edge.filters import running as filters
from testbed.edge.health import EDUCATION
from testbed.edge.measure import traffic
from testbed.edge.measure.fetch import Fetch, Memory, Traced
from testbed.edge.modes import EdgeMode, mode_of
from testbed.edge.plan import names
from testbed.edge.plan.check import world_of
from testbed.edge.plan.world import Client, Site, World
from testbed.edge.spec import EdgeSpec
from testbed.errors import TestbedError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.measure.probes.base import Recorder
from testbed.measure.probes.http import HttpResult, http_get
from testbed.net.namespace import inside
from testbed.plan.types import Service
from testbed.progress import Progress

T = TypeVar("T")
LIMIT = 20.0
"""Seconds for servers to listen."""
WATCH = "watch"
STATE = "ways.json"
"""In the inner router's folder: where users of each provider are sent at the moment."""
MOST_HOPS = 5
LEAST_ANSWER = 450
"""Bytes by which the way of a redirect is told from probes."""


class Edge:
    """The handle of a lab's campus edge."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.spec = EdgeSpec.model_validate(lab.plan.sections["edge"])
        world, problems = world_of(self.spec)
        if world is None:
            raise TestbedError(f"the lab's edge cannot be read: {problems[0].message}")
        self.world: World = world

    @classmethod
    def start(cls, lab: Lab, progress: Progress) -> Edge:
        """Make the sites' content, wait for the web servers, and start what the mode needs."""
        edge = cls(lab)
        servers = edge.world.servers
        for number, server in enumerate(servers):
            progress.update("web servers", number, len(servers))
            webserver.write_content(lab.node_folder(server), edge.world)
            site = next((site for site in edge.world.sites if site.server == server), None)
            if site is not None:
                edge.await_answer(names.CAMPUS, site.address, site.port, server)
        progress.update("web servers", len(servers), len(servers))
        edge.mode.start(edge, progress)
        filters.start(edge)
        await_names(edge)
        return edge

    @property
    def mode(self) -> EdgeMode:
        """What the mode does."""
        return mode_of(self.spec.mode)

    def clients(self, network: str | None = None) -> list[Client]:
        """All users, or those of one network; TestbedError if there is no such network."""
        if network is None:
            return list(self.world.clients)
        if network not in self.world.by_name:
            raise TestbedError(f"there is no network {network!r}", remedy=f"there are: {', '.join(self.world.by_name)}")
        return list(self.world.by_name[network].clients)

    def site(self, host: str) -> Site:
        """A site; TestbedError if there is none of that name."""
        try:
            return self.world.site(host)
        except KeyError:
            known = ", ".join(site.host for site in self.world.sites[:10])
            raise TestbedError(f"there is no site {host!r}", remedy=f"there are: {known}") from None

    def resolve(self, client: str, host: str) -> IPv4Address:
        """The address that a user gets for a site's name; NoName where it gets none."""
        return self.mode.resolve(self, client, host)

    def fetch(
        self,
        client: str,
        host: str,
        path: str = webserver.PAGE,
        *,
        follow: bool = True,
        timeout: float = 10.0,
        recorder: Recorder | None = None,
        headers: dict[str, str] | None = None,
        memory: Memory | None = None,
    ) -> Fetch:
        """Have a user ask for ``path`` of a site, and follow redirects to addresses; names are looked up as the mode
        says. With ``memory`` the user goes at once where an earlier redirect that may be kept has led to. Never raises
        for a request that fails; outcome ``no-name``: nobody had an answer for the name."""
        site = self.site(host)
        url = f"http://{host}{'' if site.port == 80 else f':{site.port}'}{path}"
        began = time.monotonic()
        ask = partial(self._ask, client, recorder=recorder, headers=headers)
        hops = [ask((memory and memory.place(url)) or url, timeout=timeout)]
        while follow and hops[-1].redirects and len(hops) <= MOST_HOPS:
            left = max(0.001, timeout - (time.monotonic() - began))
            hops.append(ask(hops[-1].redirects[-1].location, timeout=left))
        fetch = Fetch(client, host, tuple(hops))
        if memory:
            memory.note(url, fetch)
        return fetch

    def measure(self, work: Callable[[], T]) -> tuple[T, list[traffic.Carried]]:
        """Do something, and say what each link carried meanwhile; whatever else goes on is counted too."""
        nodes = self.routers
        before = traffic.counters(self.lab, nodes)
        result = work()
        return result, traffic.carried(self.lab.plan, before, traffic.counters(self.lab, nodes))

    def traced(self, client: str, host: str, path: str = webserver.PAGE, *, timeout: float = 10.0) -> Traced:
        """A user's fetch, one request after the other, each with its way read off the links' counters."""
        fetch, links = self.measure(lambda: self.fetch(client, host, path, follow=False, timeout=timeout))
        hops = list(fetch.hops)
        ways, crossed = [traffic.way_of(links, client, LEAST_ANSWER)], self.exchange_bytes(links)
        while hops[-1].redirects and len(hops) <= MOST_HOPS:
            hop, links = self.measure(partial(self._ask, client, hops[-1].redirects[-1].location, timeout=timeout))
            hops.append(hop)
            ways.append(traffic.way_of(links, client, LEAST_ANSWER))
            crossed += self.exchange_bytes(links)
        return Traced(Fetch(client, host, tuple(hops)), tuple(map(tuple, ways)), crossed)

    def _ask(
        self,
        client: str,
        url: str,
        *,
        timeout: float,
        recorder: Recorder | None = None,
        headers: dict[str, str] | None = None,
    ) -> HttpResult:
        """One request. A site's name is looked up as the mode says."""
        name = urlsplit(url).hostname or ""
        try:
            address = str(self.resolve(client, name)) if any(site.host == name for site in self.world.sites) else None
        except NoName:
            return HttpResult(client, url, time.monotonic(), "no-name", url)
        return http_get(
            self.lab, client, url, follow=False, timeout=timeout, address=address, recorder=recorder, headers=headers
        )

    def ways(self, client: str, host: str, path: str = webserver.PAGE) -> list[list[str]]:
        """The nodes on the way of each request that a user's fetch takes."""
        return [list(way) for way in self.traced(client, host, path).ways]

    def exchange_bytes(self, links: Sequence[traffic.Carried]) -> int:
        """Bytes between networks, both directions, of what ``measure`` gave."""
        return sum(link.total for link in links if link.a in self.world.by_name and link.b in self.world.by_name)

    @property
    def routers(self) -> list[str]:
        """Every router of the edge."""
        return [node.name for node in self.lab.plan.nodes if node.subsystem == "edge" and node.kind == "router"]

    def sent_to(self) -> dict[str, str]:
        """By provider, where the redirector sends its users at the moment: a provider, or ``education``."""
        try:
            told: dict[str, str] = json.loads((self.lab.node_folder(names.INNER) / STATE).read_text())
        except FileNotFoundError:
            told = {}
        return {isp.name: told.get(isp.name, isp.name) for isp in self.world.isps}

    def await_way(self, isp: str, way: str, timeout: float = 10.0) -> float:
        """Wait until users of a provider are sent by ``way``, by the redirector's answers too; seconds that took.
        WaitTimeout says where they are."""
        began = time.monotonic()
        while (seen := self.sent_to()[isp]) != way or not (way == EDUCATION or self._leads(isp, way)):
            if time.monotonic() - began > timeout:
                raise WaitTimeout(f"users of {isp} to be sent by {way}", timeout, f"they are sent by {seen}")
            time.sleep(0.01)
        return time.monotonic() - began

    def _leads(self, isp: str, way: str) -> bool:
        return control.sends_to(self.lab, self.world, isp, way)

    def await_leaving(self, isp: str, timeout: float = 10.0) -> float:
        """Wait until users of a provider are sent any other way than its own; seconds that took."""
        began = time.monotonic()
        while self.sent_to()[isp] == isp:
            if time.monotonic() - began > timeout:
                raise WaitTimeout(f"users of {isp} to be sent another way", timeout, "they are sent by their own")
            time.sleep(0.01)
        return time.monotonic() - began

    def await_redirector(self, progress: Progress) -> None:
        """Wait until every listener of the redirector answers."""
        for number, isp in enumerate(self.world.isps):
            progress.update("redirector", number, len(self.world.isps))
            self.await_answer(names.INNER, isp.listener.ip, self.world.ports[0], names.REDIRECTOR)
        progress.update("redirector", len(self.world.isps), len(self.world.isps))

    def await_answer(self, node: str, address: IPv4Address, port: int, who: str) -> None:
        """Wait until a TCP connection from ``node`` is taken; WaitTimeout with the last words of ``who``'s programs."""
        deadline = time.monotonic() + LIMIT
        while (why := self._connect(node, address, port)) is not None:
            if time.monotonic() > deadline:
                logs = "\n".join(process.log_tail(3) for process, _ in self.lab.services(who).values())
                raise WaitTimeout(f"{who} to listen at {address}:{port}", LIMIT, f"{why}\n{logs}")
            time.sleep(0.01)

    def _connect(self, node: str, address: IPv4Address, port: int) -> str | None:
        def attempt() -> None:
            with socket.create_connection((str(address), port), timeout=2):
                pass

        try:
            inside(self.lab.namespace(node), attempt)
        except OSError as error:
            return str(error)
        return None

    def start_watch(self, progress: Progress) -> None:
        """Start the program that watches links and redirector, and wait until it is at work."""
        ready = self.lab.node_folder(names.INNER) / STATE
        ready.unlink(missing_ok=True)
        argv = (sys.executable, "-m", "testbed.edge.watch", str(self.lab.folder))
        environment = {"TESTBED_STATE": str(self.lab.folder.parent.parent)}
        process = self.lab.spawn(names.INNER, Service(name=WATCH, argv=argv, env=environment, root=True))
        deadline = time.monotonic() + LIMIT
        while not ready.exists():
            if not process.alive() or time.monotonic() > deadline:
                raise WaitTimeout("the edge's watch to be at work", LIMIT, process.log_tail())
            time.sleep(0.01)

    def facts(self) -> dict[str, Any]:
        """What a report says of the edge."""
        return {"mode": self.spec.mode, "isps": [isp.name for isp in self.world.isps]}
