"""Introduction points of a service as clients find them: in the descriptors that its HSDirs hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.tor.distribute.document import Content, read_descriptor
from testbed.tor.onion.readers import readers

if TYPE_CHECKING:
    from testbed.tor.onion.services import OnionServices


@dataclass(frozen=True, slots=True)
class Introductions:
    """How clients are spread over introduction points."""

    relays: int
    """Different relays that introduce."""
    most: float
    """Share of the clients that the most used one introduces, if each picks an HSDir and then a point by chance."""
    points: int
    """Introduction points in the largest descriptor."""


def introductions(contents: Iterable[Content]) -> Introductions:
    """From the descriptors of all responsible HSDirs. Pure. ValueError of none."""
    found = list(contents)
    if not found:
        raise ValueError("no descriptors")
    load: Counter[str] = Counter()
    for content in found:
        for point in content.points:
            load[point.relay] += 1 / len(content.points) / len(found)  # type: ignore[assignment]
    return Introductions(len(load), max(load.values(), default=0.0), max(len(item.points) for item in found))


def read_introductions(onions: OnionServices, service: str) -> Introductions:
    """Ask the HSDirs; TestbedError if one does not answer or holds nothing."""
    network = onions.network
    hsdirs = onions.responsible(service).hsdirs
    with readers(network, onions.lab.folder / "publish" / "readers") as agents:
        label = onions.address(service).removesuffix(".onion")
        texts = agents.fetch(label, [hsdir.fingerprint for hsdir in hsdirs])
    silent = [hsdir.nickname for hsdir in hsdirs if not texts[hsdir.fingerprint]]
    if silent:
        raise TestbedError(f"no descriptor of {service} from {', '.join(silent)}", where="onions")
    public = onions.key(service).public
    return introductions(read_descriptor(text, public) for text in texts.values() if text)
