"""Handing out prefixes from a pool, around those that a topology fixes itself."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network

from testbed.plan.types import Network


def point_to_point_length(pool: Network) -> int:
    """Prefix length of a link with two ends: /31 (RFC 3021) or /127 (RFC 6164)."""
    return pool.max_prefixlen - 1


class Allocator:
    """Gives out consecutive free prefixes of ``pool``. Every prefix has an owner, so that a clash can name both."""

    def __init__(self, pool: Network) -> None:
        self.pool = pool
        self._cursor = int(pool.network_address)
        self._taken: list[tuple[int, int, str]] = []

    def reserve(self, network: Network, owner: str) -> str | None:
        """Take ``network`` for ``owner``; if it overlaps, nothing is taken and the other owner is returned."""
        first, last = int(network.network_address), int(network.broadcast_address)
        for other_first, other_last, other in self._taken:
            if first <= other_last and other_first <= last and network.version == self.pool.version:
                return other
        self._taken.append((first, last, owner))
        return None

    def allocate(self, prefix_length: int) -> Network | None:
        """The next free prefix of that length; None when the pool is used up."""
        size = 1 << (self.pool.max_prefixlen - prefix_length)
        start = -(-self._cursor // size) * size
        end = int(self.pool.broadcast_address)
        moved = True
        while moved:
            moved = False
            for first, last, _ in self._taken:
                if start <= last and first <= start + size - 1:
                    start = -(-(last + 1) // size) * size
                    moved = True
        if start + size - 1 > end:
            return None
        self._cursor = start + size
        return (
            ip_network((start, prefix_length))
            if isinstance(self.pool, IPv4Network)
            else IPv6Network((start, prefix_length))
        )
