"""What is kept of a private Tor network after its bring-up, so that the same network starts sooner the next time.

Kept are the keys of authorities and relays and the directory documents: consensus, certificates, descriptors and
microdescriptors, and the consensus as relays compress it for others (``diff-cache``; to do that anew takes each 35 ms
of processor time, as much as all the rest of its start but the keys). Not kept is what tor learns by running: guards,
circuits, statistics (its ``state`` file). One zip file a network lies in the folder ``warm`` under the state folder; it
is written beside its place and then renamed, so that there is a whole one or none, and its checksums tell when it has
been damaged.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.lab.state import state_root
from testbed.plan.types import Plan
from testbed.tor.directory import Directory
from testbed.tor.node import TorNode
from testbed.tor.protocol.hsdir import Consensus
from testbed.tor.protocol.timeperiod import require_current
from testbed.tor.torrc import Voting, dir_authority

FORMAT = 3
"""Changes whenever a file of an earlier testbed cannot be used any more."""
MOST_KEPT = 4
"""Networks; the one that was used longest ago is removed first. The paper's network takes 0.24 MB."""
VOTE_MARGIN = 120
"""Seconds that there must be before the next vote, so that it finds a network that is up."""

_FACTS = "network.json"
_SHARED = "directory"
_DOCUMENTS = ("cached-certs", "cached-microdesc-consensus", "cached-microdescs.new", "cached-consensus")
_DESCRIPTORS = "cached-descriptors.new"
_COMPRESSED = "diff-cache"
_OWN_OF_AUTHORITY = ("sr-state",)
_MICRODESCRIPTORS = "microdescriptors"


class Unusable(Exception):
    """A kept network cannot be used: the message says why."""


@dataclass(frozen=True)
class Kept:
    """A network as it was after a bring-up."""

    voting: Voting
    directory: Directory
    documents: Mapping[str, bytes]
    """Directory documents for every authority and relay, by name in the DataDirectory."""
    own: Mapping[str, Mapping[str, bytes]]
    """Files of each authority and relay alone, by node and path under the DataDirectory."""

    def files(self, node: str) -> dict[str, bytes]:
        """The DataDirectory of an authority or relay."""
        return {**self.documents, **self.own[node]}

    def authority_line(self, node: TorNode) -> str:
        """The value of DirAuthority for one of the authorities."""
        known = next(router for router in self.directory.consensus.routers if router.nickname == node.name)
        certificate = self.own[node.name]["keys/authority_certificate"].decode()
        fingerprint = next(line for line in certificate.splitlines() if line.startswith("fingerprint "))
        return dir_authority(node.name, node.address, known.fingerprint, fingerprint.split()[1])


def digest(plan: Plan) -> str:
    """Names the network of a plan: its nodes, their addresses, the section ``tor``, the seed, and the program tor.

    How long it shall live is left out: whether it can is for ``recall`` to say.
    """
    nodes = [(node.name, node.role, str(plan.address(node.name))) for node in plan.nodes if node.subsystem == "tor"]
    section = {key: value for key, value in plan.sections["tor"].items() if key != "lifetime"}
    facts = [FORMAT, plan.seed, section, nodes, _program()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _program() -> list[Any]:
    """Size and time of the tor that nodes run; another version makes other descriptors."""
    found = shutil.which("tor")
    if found is None:
        return []
    facts = os.stat(found)
    return [os.path.realpath(found), facts.st_size, facts.st_mtime_ns]


def place(plan: Plan) -> Path:
    """Where the network of a plan is kept."""
    return _folder() / f"{digest(plan)}.zip"


def _folder() -> Path:
    return state_root() / "warm"


def keep(plan: Plan, nodes: Sequence[TorNode], voting: Voting, directory: Directory) -> Path:
    """Keep a network that is up. ``nodes`` are its authorities and relays, authorities first. OSError if it cannot be
    written; what was kept before is then as it was."""
    first = nodes[0].paths.data
    members: dict[str, bytes] = {
        _FACTS: json.dumps({"voting": asdict(voting)}).encode(),
        _MICRODESCRIPTORS: directory.microdescriptors.encode(),
    }
    for name, content in directory.files().items():
        members[f"{_SHARED}/{name}"] = content
    members[f"{_SHARED}/cached-consensus"] = (first / "cached-consensus").read_bytes()
    members[f"{_SHARED}/{_DESCRIPTORS}"] = _descriptors(first)
    for path in (first / _COMPRESSED).glob("*"):
        members[f"{_SHARED}/{_COMPRESSED}/{path.name}"] = path.read_bytes()
    for node in nodes:
        paths = [path for path in (node.paths.data / "keys").iterdir() if path.is_file()]
        if node.role == "authority":
            paths += [path for name in _OWN_OF_AUTHORITY if (path := node.paths.data / name).exists()]
        for path in paths:
            members[f"nodes/{node.name}/{path.relative_to(node.paths.data)}"] = path.read_bytes()
    target = place(plan)
    with _locked(target.parent):
        fresh = target.with_suffix(".part")
        try:
            with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for name, content in members.items():
                    archive.writestr(name, content)
            fresh.chmod(0o600)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
        _forget_oldest(target.parent)
    return target


def _descriptors(data: Path) -> bytes:
    """A tor's store of descriptors: the journal, and what it was last folded into."""
    parts = (data / "cached-descriptors", data / _DESCRIPTORS)
    return b"".join(path.read_bytes() for path in parts if path.exists())


def _forget_oldest(folder: Path) -> None:
    """Remove all but the last used, and the halves that interrupted processes left: the lock is ours."""
    kept = sorted(folder.glob("*.zip"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in (*kept[MOST_KEPT:], *folder.glob("*.part")):
        path.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def forget(plan: Plan) -> None:
    """Remove what is kept of a plan's network, if anything is."""
    place(plan).unlink(missing_ok=True)


def recall(plan: Plan, now: float, needed: float) -> Kept:
    """The kept network of a plan, if it can be used from ``now`` (UTC) for ``needed`` seconds; else Unusable.

    It can if its consensus would be the latest had the network stayed up, and no vote is near; clients fetch current
    descriptors for all of the time (see ``timeperiod``), and every authority and relay is in the consensus and has its
    keys.
    """
    path = place(plan)
    try:
        kept = _read(path)
    except FileNotFoundError:
        raise Unusable("nothing is kept of this network") from None
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, NotImplementedError) as error:
        raise Unusable(f"what is kept of this network is damaged: {error}") from error
    consensus = kept.directory.consensus
    check_consensus(consensus, kept.voting, now, needed)
    nodes = {node.name for node in plan.nodes if node.subsystem == "tor" and node.role != "client"}
    lacking = sorted(nodes - {router.nickname for router in consensus.routers if "Running" in router.flags})
    lacking += sorted(name for name in nodes if "keys/secret_id_key" not in kept.own.get(name, ()))
    if lacking:
        raise Unusable(f"what is kept of this network lacks {', '.join(lacking)}")
    os.utime(path)
    return kept


def check_consensus(consensus: Consensus, voting: Voting, now: float, needed: float) -> None:
    """Unusable if a network cannot start with this consensus at ``now`` (UTC) and go on for ``needed`` seconds."""
    if now < consensus.valid_after:
        raise Unusable("the kept consensus is not valid yet: the clock has been set back")
    if now > min(consensus.fresh_until, voting.next_vote(consensus.valid_after)) - VOTE_MARGIN:
        raise Unusable(f"the kept consensus is expired or about to be: {now - consensus.valid_after:.0f} s old")
    try:
        require_current(consensus.periods.interval, now, needed=needed, valid_after=consensus.valid_after)
    except TestbedError as error:
        raise Unusable(error.what) from error


def _read(path: Path) -> Kept:
    own: dict[str, dict[str, bytes]] = {}
    documents: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            kind, _, rest = name.partition("/")
            if kind == "nodes":
                node, _, inside = rest.partition("/")
                own.setdefault(node, {})[inside] = archive.read(name)
            elif kind == _SHARED:
                documents[rest] = archive.read(name)
        if lacking := {*_DOCUMENTS, _DESCRIPTORS} - documents.keys():
            raise KeyError(*lacking)
        facts = json.loads(archive.read(_FACTS))
        microdescriptors = archive.read(_MICRODESCRIPTORS).decode()
    consensus = documents["cached-microdesc-consensus"].decode()
    directory = Directory(consensus, microdescriptors, documents["cached-certs"])
    directory.consensus  # noqa: B018  a ValueError if it is none
    return Kept(Voting(**facts["voting"]), directory, documents, own)
