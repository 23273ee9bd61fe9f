"""Chutney's nodes, as its torrcs tell of them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from testbed.runtime.base import UNPRIVILEGED_ID
from testbed.tor.node import TorNode
from testbed.tor.torrc import Paths

DATA = "net"
"""Chutney's data folder, in the folder of the lab's node."""
_PERCENT = re.compile(r"Bootstrapped (\d+)%")


@dataclass(frozen=True, slots=True)
class ChutneyPaths(Paths):
    """Where a tor of chutney keeps its things: all in its DataDirectory, ``node``."""

    @property
    def log(self) -> Path:
        """What it logs."""
        return self.node / "notice.log"

    @property
    def data(self) -> Path:
        """DataDirectory."""
        return self.node

    @property
    def hidden_service(self) -> Path:
        """HiddenServiceDir."""
        return self.node / "hidden_service"


def read_nodes(folder: Path) -> list[TorNode]:
    """The nodes that chutney has configured in ``folder`` (its data folder), by number; none before it has."""
    found = []
    for torrc in sorted((folder / "nodes").glob("*/torrc")):
        options = parse(torrc.read_text())
        home = torrc.parent.resolve()
        found.append(TorNode(home.name, role(options), options.get("address", "127.0.0.1"), ChutneyPaths(home)))
    return found


def parse(text: str) -> dict[str, str]:
    """The last value of each option of a torrc, by its name in lower case."""
    lines = (line.strip() for line in text.splitlines())
    words = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {option[0].lower(): "".join(option[1:]) for option in words}


def role(options: dict[str, str]) -> str:
    """What a node does in its network; ``onion`` is one with an onion service."""
    if options.get("authoritativedirectory") == "1":
        return "authority"
    if "hiddenservicedir" in options:
        return "onion"
    if options.get("orport", "0") != "0":
        return "exit" if options.get("exitrelay") == "1" else "relay"
    return "client"


def add_socks(nodes: list[TorNode]) -> None:
    """Give each client a SOCKS port on a unix socket beside its own, so that it can be used from outside the lab."""
    for node in nodes:
        line = f"SocksPort unix:{node.paths.socks}\n"
        text = node.paths.torrc.read_text()
        if node.role == "client" and line not in text:
            node.paths.torrc.write_text(f"{text}\n{line}")
            os.chown(node.paths.torrc, UNPRIVILEGED_ID, UNPRIVILEGED_ID)


def bootstrapped(node: TorNode) -> int:
    """Percent, by the node's log; 0 before it has one."""
    try:
        found = _PERCENT.findall(node.paths.log.read_text(errors="replace"))
    except OSError:
        return 0
    return int(found[-1]) if found else 0


def service_port(options: dict[str, str]) -> tuple[int, str]:
    """The port of a node's onion service, and the address and port that it hands connections to."""
    words = options["hiddenserviceport"].split()
    return int(words[0]), words[1] if len(words) > 1 else f"127.0.0.1:{words[0]}"
