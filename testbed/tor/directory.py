"""The directory documents of a network: read from an authority, and given to nodes that start later."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

from testbed.tor.control import Control, ControlError
from testbed.tor.protocol.hsdir import Consensus, Ring, parse_consensus, parse_microdescriptors, responsible_hsdirs

_CONSENSUS = "dir/status-vote/current/consensus-microdesc"


@dataclass(frozen=True)
class Directory:
    """A consensus with its microdescriptors and the certificates that it can be checked with."""

    consensus_text: str
    microdescriptors: str
    certificates: bytes

    @cached_property
    def consensus(self) -> Consensus:
        """The consensus, parsed."""
        return parse_consensus(self.consensus_text)

    def ring(self, public: bytes) -> Ring:
        """The HSDirs responsible for the onion service with this identity key."""
        return responsible_hsdirs(self.consensus, parse_microdescriptors(self.microdescriptors), public)

    def files(self) -> dict[str, bytes]:
        """The documents as tor keeps them in its DataDirectory.

        A tor that starts with them knows the network as one that was there before, and need not download anything;
        guards, circuits and everything else are its own.
        """
        listed = time.strftime("@last-listed %Y-%m-%d %H:%M:%S\n", time.gmtime(self.consensus.valid_after))
        return {
            "cached-certs": self.certificates,
            "cached-microdesc-consensus": self.consensus_text.encode(),
            "cached-microdescs.new": self.microdescriptors.replace("onion-key\n", f"{listed}onion-key\n").encode(),
        }


def has_consensus(control: Control) -> bool:
    """Whether a tor has a consensus to give."""
    try:
        control.getinfo(_CONSENSUS)
    except ControlError:
        return False
    return True


def read_directory(control: Control, certificates: bytes) -> Directory:
    """The documents that a tor uses now; ControlError if it has none."""
    return Directory(_document(control, _CONSENSUS), _document(control, "md/all"), certificates)


def _document(control: Control, key: str) -> str:
    text = control.getinfo(key)
    return text if text.endswith("\n") else text + "\n"
