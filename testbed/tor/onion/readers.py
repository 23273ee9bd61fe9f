"""The tors of a network that ask HSDirs, and upload to them, for everybody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.tor.distribute.agent import Agents
from testbed.tor.distribute.journal import Journal
from testbed.tor.distribute.settings import Member
from testbed.tor.network import TorNetwork
from testbed.tor.onion.hsdirmap import default_readers


def reader_members(network: TorNetwork) -> tuple[Member, ...]:
    """The network's ``default_readers``, by their control sockets."""
    return tuple(Member(name=name, control=str(network.control_path(name))) for name in default_readers(network))


@contextmanager
def readers(network: TorNetwork, folder: Path) -> Iterator[Agents]:
    """They at work for the block; what they say goes into ``folder``. TestbedError if one cannot be reached."""
    agents = Agents(reader_members(network), cookie="", journal=Journal(folder))
    agents.open()
    try:
        yield agents
    finally:
        agents.close()
