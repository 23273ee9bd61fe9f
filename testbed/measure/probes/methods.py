"""The probes as methods of ``measure``: the same functions, with the run as the recorder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from testbed.measure.probes import conntrack as tracking
from testbed.measure.probes import counters as interfaces
from testbed.measure.probes import usage as using
from testbed.measure.probes.availability import Availability
from testbed.measure.probes.dns import DnsResult, dns_query
from testbed.measure.probes.http import HttpResult, http_get
from testbed.measure.probes.path import PORT, Method, PathResult, path
from testbed.measure.probes.ping import PingSeries, ping
from testbed.measure.probes.tcp import Connect, tcp_connect
from testbed.measure.probes.throughput import Protocol, Throughput, throughput
from testbed.measure.sampler import Sampler

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.measure.capture import Capture
    from testbed.measure.probes.asking import Kind
    from testbed.measure.store import Run


class ProbeMethods:
    """Base of ``Measure``. Each method returns what it saw and records it in the run."""

    run: Run
    _samplers: list[Sampler | Capture]

    def ping(
        self,
        lab: Lab,
        source: str,
        target: str,
        *,
        count: int = 10,
        interval: float = 0.2,
        timeout: float = 1.0,
        size: int = 56,
    ) -> PingSeries:
        """Echo requests in a row; see ``probes.ping.ping``."""
        return ping(lab, source, target, count=count, interval=interval, timeout=timeout, size=size, recorder=self.run)

    def tcp_connect(self, lab: Lab, source: str, target: str, *, timeout: float = 5.0) -> Connect:
        """How long a connection to ``b:80`` takes; see ``probes.tcp.tcp_connect``."""
        return tcp_connect(lab, source, target, timeout=timeout, recorder=self.run)

    def http(
        self,
        lab: Lab,
        source: str,
        url: str,
        *,
        follow: bool = True,
        most_redirects: int = 10,
        timeout: float = 10.0,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        address: str | None = None,
    ) -> HttpResult:
        """One HTTP request; see ``probes.http.http_get``."""
        return http_get(
            lab,
            source,
            url,
            follow=follow,
            most_redirects=most_redirects,
            timeout=timeout,
            method=method,
            headers=headers,
            address=address,
            recorder=self.run,
        )

    def throughput(
        self,
        lab: Lab,
        source: str,
        target: str,
        *,
        protocol: Protocol = "tcp",
        seconds: float = 2.0,
        warm_up: float = 0.3,
        rate_bps: int | None = None,
        size: int | None = None,
    ) -> Throughput:
        """How much goes through; see ``probes.throughput.throughput``."""
        return throughput(
            lab,
            source,
            target,
            protocol=protocol,
            seconds=seconds,
            warm_up=warm_up,
            rate_bps=rate_bps,
            size=size,
            recorder=self.run,
        )

    def dns(
        self,
        lab: Lab,
        source: str,
        server: str,
        name: str,
        *,
        type: str = "A",
        timeout: float = 2.0,
        tries: int = 1,
        recursion: bool = True,
    ) -> DnsResult:
        """One DNS query; see ``probes.dns.dns_query``."""
        return dns_query(
            lab,
            source,
            server,
            name,
            type=type,
            timeout=timeout,
            tries=tries,
            recursion=recursion,
            recorder=self.run,
        )

    def trace(
        self,
        lab: Lab,
        source: str,
        target: str,
        *,
        method: Method = "udp",
        port: int = PORT,
        most: int = 30,
        timeout: float = 1.0,
        tries: int = 2,
    ) -> PathResult:
        """Which nodes a packet crosses; see ``probes.path.path``."""
        return path(
            lab, source, target, method=method, port=port, most=most, timeout=timeout, tries=tries, recorder=self.run
        )

    def availability(
        self,
        lab: Lab,
        source: str,
        target: str,
        *,
        kind: Kind | None = None,
        period: float = 0.1,
        timeout: float = 1.0,
    ) -> Availability:
        """Ask at a fixed period while the ``with`` block runs; see ``probes.availability.Availability``."""
        return Availability(lab, source, target, kind=kind, period=period, timeout=timeout, recorder=self.run)

    def counters(self, lab: Lab, node: str) -> Mapping[str, interfaces.Counters]:
        """A node's interface counters now, by interface; see ``probes.counters.counters``."""
        return interfaces.counters(lab, node, recorder=self.run)

    def conntrack(self, lab: Lab, node: str) -> list[tracking.Connection]:
        """The connections that a node tracks; see ``probes.conntrack.conntrack``."""
        return tracking.conntrack(lab, node, recorder=self.run)

    def conntrack_count(self, lab: Lab, node: str) -> int:
        """How many they are; see ``probes.conntrack.conntrack_count``."""
        return tracking.conntrack_count(lab, node, recorder=self.run)

    def usage(self, lab: Lab, node: str) -> using.Usage:
        """CPU time and memory of a node now; see ``probes.usage.usage``."""
        return using.usage(lab, node, recorder=self.run)

    def watch_nodes(
        self, lab: Lab, nodes: Iterable[str], *, counters: bool = True, usage: bool = True, period: float = 0.5
    ) -> Sampler:
        """Sample from now on the interface counters of ``nodes``, and what their processes use."""
        names = list(nodes)
        sampler = Sampler(self.run, period=period, cpu=False)
        if counters:
            for name in names:
                lab.node(name)
                sampler.interfaces(lab.namespace(name), interfaces.series_of(lab.plan, name))
        if usage:
            sampler.source(using.UsageReader(lab, names).take)
        sampler.start()
        self._samplers.append(sampler)
        return sampler
