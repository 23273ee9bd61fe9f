"""Prefixes and addresses: reading them, and handing out free ones from a pool around those that a topology fixes."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_address, ip_interface, ip_network

from testbed.errors import Path
from testbed.plan.types import Address, Interface, Network


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A prefix that somebody has."""

    first: int
    last: int
    network: Network
    owner: str
    path: Path


def parse_network(text: str) -> Network:
    """A prefix; ValueError says what is wrong and, after a semicolon, what would be right."""
    try:
        network = ip_network(text)
    except ValueError:
        try:
            right = ip_network(text, strict=False)
        except ValueError:
            raise ValueError(f"{text!r} is not a prefix; write one such as 10.1.0.0/24") from None
        raise ValueError(f"{text} has bits beyond its prefix length; write {right}") from None
    _refuse_special(network.network_address, text)
    return network


def parse_interface(text: str) -> Interface:
    """An address with prefix length that an interface can have; ValueError as above."""
    try:
        if "/" not in text:
            raise ValueError(f"{text!r} has no prefix length; write it as {ip_address(text)}/30")
        interface = ip_interface(text)
    except ValueError as error:
        if "; " in str(error):
            raise
        raise ValueError(f"{text!r} is not an address with prefix length; write one such as 10.0.0.1/30") from None
    _refuse_special(interface.ip, text)
    network = interface.network
    if network.prefixlen < network.max_prefixlen - 1:
        first, last = usable(network)
        if not first <= int(interface.ip) - int(network.network_address) <= last:
            broadcast = interface.version == 4 and interface.ip == network.broadcast_address
            what = "the broadcast address" if broadcast else "the address"
            raise ValueError(f"{interface.ip} is {what} of the subnet {network}; the first usable is {network[first]}")
    return interface


def parse_address(text: str) -> Address:
    """An address without prefix length; ValueError as above."""
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an address; write one such as 10.0.0.1, without a prefix length") from None
    _refuse_special(address, text)
    return address


def _refuse_special(address: Address, text: str) -> None:
    if "%" in text:
        raise ValueError(f"{text} has a zone; leave out what follows `%`")
    for special, what in (
        (address.is_loopback, "loopback"),
        (address.is_multicast, "multicast"),
        (address.version == 6 and address.is_link_local, "link-local"),
        (address.version == 4 and int(address) >> 24 == 0, "unspecified"),
        (address.version == 6 and int(address) >> 32 == 0, "unspecified or IPv4-mapped"),
    ):
        if special:
            raise ValueError(f"{text} is {what}; use a unicast prefix such as 10.0.0.0/8 or fd00::/48")


def usable(network: Network) -> tuple[int, int]:
    """First and last offset that an interface on ``network`` can have.

    All of a /31 (RFC 3021), /127 (RFC 6164), /32 and /128; else not the first, which is the network's own address or
    the subnet routers' anycast address, and in IPv4 not the last, which is the broadcast address.
    """
    size = 1 << (network.max_prefixlen - network.prefixlen)
    if size <= 2:
        return 0, size - 1
    return 1, size - 2 if network.version == 4 else size - 1


def point_to_point_length(pool: Network) -> int:
    """Prefix length of a link with two ends: /31 (RFC 3021) or /127 (RFC 6164)."""
    return pool.max_prefixlen - 1


def network_of(first: int, prefix_length: int, version: int) -> Network:
    """The prefix that begins at the integer ``first``."""
    return IPv4Network((first, prefix_length)) if version == 4 else IPv6Network((first, prefix_length))


def interface_of(address: int, network: Network) -> Interface:
    """The interface address with integer value ``address`` on ``network``."""
    if network.version == 4:
        return IPv4Interface((address, network.prefixlen))
    return IPv6Interface((address, network.prefixlen))


class Allocator:
    """Gives out free prefixes of ``pool``, lowest first. Every prefix has an owner, so that a clash can name both.

    Taken ranges never overlap and are kept in order, so that a look-up is a binary search; for each prefix length the
    search goes on where the last one ended, because nothing is ever given back.
    """

    def __init__(self, pool: Network) -> None:
        self.pool = pool
        self._taken: dict[int, list[Claim]] = {4: [], 6: []}
        self._next: dict[int, int] = {}

    def reserve(self, network: Network, owner: str, path: Path = ()) -> Claim | None:
        """Take ``network`` for ``owner``; if it overlaps, nothing is taken and the first other claim is returned."""
        claim = Claim(int(network.network_address), int(network.broadcast_address), network, owner, path)
        other = self._clash(claim.first, claim.last, network.version)
        if other is None:
            self._take(claim)
        return other

    def allocate(self, prefix_length: int, owner: str = "", path: Path = ()) -> Network | None:
        """The next free prefix of that length; None when the pool has none left."""
        bits = self.pool.max_prefixlen - prefix_length
        start = self._next.get(prefix_length, int(self.pool.network_address))
        first = self._free(start, bits, int(self.pool.broadcast_address), self.pool.version)
        if first is None:
            return None
        network = network_of(first, prefix_length, self.pool.version)
        self._next[prefix_length] = first + (1 << bits)
        self._take(Claim(first, first + (1 << bits) - 1, network, owner, path))
        return network

    def free_after(self, network: Network) -> Network | None:
        """A free prefix as long as ``network``: the next above it, else one from the pool; it is not taken."""
        bits = network.max_prefixlen - network.prefixlen
        first = self._free(int(network.network_address), bits, _end_of_block(network), network.version)
        if first is None and self.pool.version == network.version and network.prefixlen >= self.pool.prefixlen:
            first = self._free(
                int(self.pool.network_address), bits, int(self.pool.broadcast_address), self.pool.version
            )
        return None if first is None else network_of(first, network.prefixlen, network.version)

    def _free(self, start: int, bits: int, end: int, version: int) -> int | None:
        if bits < 0:
            return None
        size = 1 << bits
        while True:
            start = -(-start // size) * size
            if start + size - 1 > end:
                return None
            other = self._clash(start, start + size - 1, version)
            if other is None:
                return start
            start = other.last + 1

    def _clash(self, first: int, last: int, version: int) -> Claim | None:
        taken = self._taken[version]
        index = bisect_left(taken, first, key=_last)
        return taken[index] if index < len(taken) and taken[index].first <= last else None

    def _take(self, claim: Claim) -> None:
        insort(self._taken[claim.network.version], claim, key=_first)


def _first(claim: Claim) -> int:
    return claim.first


def _last(claim: Claim) -> int:
    return claim.last


_BLOCKS = [
    ip_network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
]


def _end_of_block(network: Network) -> int:
    """How far up to look for a free prefix: to the end of the private block that ``network`` is in, else of its /8."""
    for block in _BLOCKS:
        if block.version == network.version and network.network_address in block:
            return int(block.broadcast_address)
    wide = network.supernet(new_prefix=8) if network.prefixlen > 8 else network
    return int(wide.broadcast_address)
