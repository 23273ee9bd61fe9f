"""Whose descriptor is this? By the keys in it, which each instance makes for itself alone."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from testbed.tor.distribute.document import Content, read_descriptor
from testbed.tor.distribute.journal import OWNERS, read_json
from testbed.tor.protocol.descriptor import parse_outer
from testbed.tor.protocol.keys import onion_public_key


def whose(descriptor: str, address: str, owners: Mapping[bytes, str]) -> tuple[str, ...]:
    """The instances that a descriptor of the service ``address`` leads to; empty if nobody knows its keys.

    ``owners`` are instances by signing key and by the authentication keys of introduction points. The former tells of
    a descriptor as the instance itself made it, the latter also of one that was signed anew or mixed.
    """
    outer = parse_outer(descriptor)
    if outer.signing_key in owners:
        return (owners[outer.signing_key],)
    with contextlib.suppress(ValueError):
        points = read_descriptor(descriptor, onion_public_key(address)).points
        return tuple(dict.fromkeys(owners[point.auth_key] for point in points if point.auth_key in owners))
    return ()


class Owners:
    """The keys of all instances of a lab, past and present: HSDirs hold descriptors for longer than instances live."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the lab's."""
        self._folder = folder

    def known(self) -> dict[bytes, str]:
        """Instances by key."""
        found = dict(read_json(self._folder / "onions.json"))
        for path in self._folder.glob(f"publish/*/{OWNERS}"):
            found |= read_json(path)
        return {bytes.fromhex(key): name for key, name in found.items()}

    def remember(self, contents: Mapping[str, Content]) -> None:
        """Keep the keys of these instances' descriptors."""
        found = self.known()
        for name, content in contents.items():
            found[content.signing_key] = name
            found |= dict.fromkeys(content.keys, name)
        path = self._folder / "onions.json"
        new = path.with_suffix(f".{os.getpid()}.{time.monotonic_ns()}")
        new.write_text(json.dumps({key.hex(): name for key, name in found.items()}))
        new.replace(path)
