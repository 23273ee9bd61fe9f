"""Names asked as a user asks them: of the resolver that the user has been given."""

from __future__ import annotations

import time
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from testbed.errors import TestbedError, WaitTimeout
from testbed.measure.probes.dns import DnsResult, dns_query

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.measure.probes.base import Recorder

TIMEOUT = 2.0
"""Seconds for one question: what a resolver may need that asks across the exchange, with room to spare."""
TRIES = 3
LIMIT = 20.0
_TICK = 0.05


class NoName(TestbedError):
    """A user got no address for a site's name."""


def query(edge: Edge, client: str, host: str, recorder: Recorder | None = None) -> DnsResult:
    """``client`` asks its resolver for the address of ``host``."""
    resolver = edge.world.by_name[edge.world.client(client).resolver].resolver
    return dns_query(edge.lab, client, resolver, host, timeout=TIMEOUT, tries=TRIES, recorder=recorder)


def resolve(edge: Edge, client: str, host: str) -> IPv4Address:
    """The address that ``client`` gets for ``host``; NoName where it gets none."""
    result = query(edge, client, host)
    if not result.addresses:
        raise NoName(f"{result.server} says of {host}: {result.outcome}", where=f"node {client}")
    return IPv4Address(result.addresses[0])


def await_names(edge: Edge) -> None:
    """Wait until every network's resolver has an answer for the first site. WaitTimeout names those that have none."""
    host = edge.world.sites[0].host
    deadline = time.monotonic() + LIMIT
    for network in edge.world.networks:
        while True:
            result = dns_query(edge.lab, network.name, network.resolver, host, timeout=TIMEOUT)
            if result.addresses:
                break
            if time.monotonic() > deadline:
                raise WaitTimeout(f"an answer of {network.resolver} for {host}", LIMIT, result.outcome)
            time.sleep(_TICK)
