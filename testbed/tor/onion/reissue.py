"""An instance's descriptor at the HSDirs again, without a new start of its tor.

tor itself publishes again after an hour or two, or when its introduction points change. HSDirs take only what has a
higher counter than what they hold. Counters count seconds from a moment that follows from the consensus, and the second
consensus of a testing network may move that moment on by the time since the first: then all that is new looks old. So
the instance's own descriptor is signed anew, with a counter above theirs, and uploaded by relays (HSPOST); its
introduction points stay, and clients that use them notice nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.tor.distribute.document import Content, make_descriptor
from testbed.tor.onion.hsdirmap import HSDirEntry, read_hsdirs
from testbed.tor.onion.readers import readers
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.hsdir import Router

if TYPE_CHECKING:
    from testbed.tor.onion.services import OnionServices


def held_of(onions: OnionServices, service: str, *instances: str) -> list[HSDirEntry]:
    """What each responsible HSDir holds: whose descriptor, where it is that of one of these instances as it runs now.

    Empty of all others, also of what the same instance published before it was started anew. TestbedError if one does
    not run, or an HSDir does not answer.
    """
    hsdirs = onions.responsible(service).hsdirs
    return _held(onions, service, hsdirs, {name: onions.content(name) for name in instances})


def _held(
    onions: OnionServices, service: str, hsdirs: Sequence[Router], contents: Mapping[str, Content]
) -> list[HSDirEntry]:
    owners = {key: name for name, content in contents.items() for key in (content.signing_key, *content.keys)}
    return read_hsdirs(onions.network, onions.address(service), hsdirs, owners)


def reissue(onions: OnionServices, service: str, instance: str, *, beside: Sequence[str] = ()) -> list[str]:
    """Give the descriptor of a running instance to every responsible HSDir that holds another one, or none; which.

    HSDirs keep that of an instance ``beside`` it. Empty where there is nothing to be done. TestbedError as from
    ``held_of``, or if an HSDir does not take it.
    """
    directory, key = onions.network.directory(), onions.key(service)
    ring = directory.ring(key.public).fetched
    contents = {name: onions.content(name) for name in dict.fromkeys((instance, *beside))}
    held = _held(onions, service, ring.hsdirs, contents)
    lacking = [entry for entry in held if not entry.instance]
    if not lacking:
        return []
    content = contents[instance]
    # what tor itself publishes later has a counter of that moment, thousands higher
    revision = max([content.revision, *(entry.revision for entry in held if entry.revision is not None)]) + 1
    signer = BlindedSigner.make(key.expanded, ring.period, directory.consensus.periods.length)
    made = make_descriptor(
        content.header, content.points, signer=signer, identity=key.public, revision=revision, now=time.time()
    )
    with readers(onions.network, onions.lab.folder / "publish" / "reissue") as agents:
        label = onions.address(service).removesuffix(".onion")
        answers = agents.post(label, {entry.fingerprint: made.text for entry in lacking})
    names = {entry.fingerprint: entry.nickname for entry in lacking}
    refused = [f"{names[fingerprint]}: {why}" for fingerprint, why in answers.items() if why]
    if refused:
        raise TestbedError(f"the descriptor of {instance} was not taken: {'; '.join(refused)}", where="onions")
    onions.lab.event("onion_reissued", instance, service=service, hsdirs=sorted(names.values()), revision=revision)
    return sorted(names.values())
