"""The hash ring: which HSDirs are responsible for an onion service (rend-spec-v3 [WHERE-HSDESC]). Pure."""

from __future__ import annotations

import base64
import bisect
import calendar
import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.tor.protocol.blinding import blinded_key
from testbed.tor.protocol.timeperiod import TimePeriods


@dataclass(frozen=True, slots=True)
class Router:
    """One relay in a consensus."""

    nickname: str
    fingerprint: str
    flags: frozenset[str]
    microdescriptor: str
    """Base64 of its SHA-256, without padding."""


@dataclass(frozen=True, slots=True)
class Consensus:
    """What the ring depends on, from a microdescriptor consensus (dir-spec 3.4.1)."""

    valid_after: int
    fresh_until: int
    params: Mapping[str, int]
    previous_srv: bytes | None
    current_srv: bytes | None
    routers: tuple[Router, ...]

    @property
    def periods(self) -> TimePeriods:
        """Time periods under this consensus; tor takes its freshness for the voting interval."""
        return TimePeriods(self.fresh_until - self.valid_after)


@dataclass(frozen=True, slots=True)
class Responsible:
    """The HSDirs of one of a service's two descriptors."""

    period: int
    blinded_key: bytes
    hsdirs: tuple[Router, ...]
    """By replica and then by place on the ring; tor uploads to exactly these."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The HSDirs of both descriptors that a service keeps."""

    current: Responsible
    next: Responsible
    clients_fetch_current: bool

    @property
    def fetched(self) -> Responsible:
        """The one that clients ask for."""
        return self.current if self.clients_fetch_current else self.next


def parse_consensus(text: str) -> Consensus:
    """A microdescriptor consensus as tor writes and serves it; ValueError if something is missing."""
    header, *entries = re.split(r"^(?=r )", text, flags=re.MULTILINE)

    def moment(keyword: str) -> int:
        found = re.search(rf"^{keyword} (\S+ \S+)$", header, re.MULTILINE)
        if found is None:
            raise ValueError(f"the consensus has no {keyword}")
        return calendar.timegm(time.strptime(found.group(1), "%Y-%m-%d %H:%M:%S"))

    def shared_random(which: str) -> bytes | None:
        found = re.search(rf"^shared-rand-{which}-value \d+ (\S+)", header, re.MULTILINE)
        return base64.b64decode(found.group(1)) if found else None

    params = re.search(r"^params (.*)$", header, re.MULTILINE)
    pairs = (pair.split("=", 1) for pair in (params.group(1).split() if params else []))
    return Consensus(
        valid_after=moment("valid-after"),
        fresh_until=moment("fresh-until"),
        params={name: int(value) for name, value in pairs},
        previous_srv=shared_random("previous"),
        current_srv=shared_random("current"),
        routers=tuple(_parse_router(entry) for entry in entries),
    )


def _parse_router(entry: str) -> Router:
    words = entry.split("\n", 1)[0].split()
    flags = re.search(r"^s(.*)$", entry, re.MULTILINE)
    digest = re.search(r"^m (\S+)$", entry, re.MULTILINE)
    if len(words) < 3 or flags is None or digest is None:
        raise ValueError(f"not an entry of a microdescriptor consensus: {entry.splitlines()[0]!r}")
    return Router(
        nickname=words[1],
        fingerprint=_unpadded(words[2]).hex().upper(),
        flags=frozenset(flags.group(1).split()),
        microdescriptor=digest.group(1),
    )


def parse_microdescriptors(text: str) -> dict[str, bytes]:
    """Ed25519 identities by microdescriptor digest, from microdescriptors one after the other (dir-spec 3.3)."""
    identities: dict[str, bytes] = {}
    for body in re.split(r"^(?=onion-key$)", text, flags=re.MULTILINE):
        identity = re.search(r"^id ed25519 (\S+)$", body, re.MULTILINE)
        if identity:
            whole = body if body.endswith("\n") else body + "\n"
            digest = base64.b64encode(hashlib.sha256(whole.encode()).digest()).decode().rstrip("=")
            identities[digest] = _unpadded(identity.group(1))
    return identities


def responsible_hsdirs(consensus: Consensus, identities: Mapping[str, bytes], public: bytes) -> Ring:
    """Where the service with this identity key publishes, as tor computes it (hs_get_responsible_hsdirs).

    ``identities`` are ed25519 identities by microdescriptor digest. The current descriptor goes by the previous shared
    random value, the next one by the current value (rend-spec-v3 [SERVICEUPLOAD]).
    """
    periods = consensus.periods
    number = periods.number(consensus.valid_after)
    in_first_half = periods.clients_fetch_current(consensus.valid_after)
    first = number if in_first_half else number - 1
    return Ring(
        current=_responsible(consensus, identities, public, first, consensus.previous_srv),
        next=_responsible(consensus, identities, public, first + 1, consensus.current_srv),
        clients_fetch_current=in_first_half,
    )


def _responsible(
    consensus: Consensus, identities: Mapping[str, bytes], public: bytes, period: int, srv: bytes | None
) -> Responsible:
    length = consensus.periods.length
    numbers = period.to_bytes(8) + length.to_bytes(8)
    # without a shared random value everybody uses this one (rend-spec-v3 2.3.1)
    value = srv or hashlib.sha3_256(b"shared-random-disaster" + length.to_bytes(8) + period.to_bytes(8)).digest()
    ring = sorted(
        (hashlib.sha3_256(b"node-idx" + identities[router.microdescriptor] + value + numbers).digest(), place)
        for place, router in enumerate(consensus.routers)
        if "HSDir" in router.flags and router.microdescriptor in identities
    )
    key = blinded_key(public, period, length)
    chosen: list[int] = []
    for replica in range(1, consensus.params.get("hsdir_n_replicas", 2) + 1):
        index = b"store-at-idx" + key + replica.to_bytes(8) + length.to_bytes(8) + period.to_bytes(8)
        start = bisect.bisect_left(ring, (hashlib.sha3_256(index).digest(), 0))
        chosen += _next_on_ring(ring, start, chosen, consensus.params.get("hsdir_spread_store", 4))
    return Responsible(period, key, tuple(consensus.routers[place] for place in chosen))


def _next_on_ring(ring: Sequence[tuple[bytes, int]], start: int, taken: Sequence[int], count: int) -> list[int]:
    """The next ``count`` from ``start`` on, round the ring, that no earlier replica has; fewer in a small network."""
    places = [ring[(start + step) % len(ring)][1] for step in range(len(ring))]
    return [place for place in places if place not in taken][:count]


def _unpadded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))
