"""Many connections that are opened and left open."""

from __future__ import annotations

from typing import ClassVar

from testbed.faults.tools.load import Flood


class ConnectionFlood(Flood):
    """Nothing is sent over them: a server that gives each client a slot runs out of slots."""

    kind: ClassVar[str] = "connection-flood"
