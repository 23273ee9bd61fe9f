"""Name servers of a running edge that are given another configuration."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from testbed.edge.dns.ask import await_names
from testbed.edge.dns.expand import configurations
from testbed.edge.modes import views_of
from testbed.runtime.base import UNPRIVILEGED_ID

if TYPE_CHECKING:
    from testbed.edge.network import Edge

TO_END = 10.0


def tell_subnets(edge: Edge, on: bool) -> None:
    """Whether resolvers tell clients' subnets from now on, and the authority goes by them. All caches are empty then.

    Every name server is ended and started anew, and all are awaited.
    """
    lab = edge.lab
    views = views_of(edge.mode, edge.world)
    for node, files in configurations(edge.world, views, client_subnet=on).items():
        folder = lab.node_folder(node)
        for file in files:
            path = folder / file.path
            path.write_text(file.text.replace("${dir}", str(folder)))
            os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        for process, service in lab.services(node).values():
            process.signal(signal.SIGTERM)
            process.wait_gone(TO_END)
            lab.spawn(node, service)
    lab.event("edge-dns", client_subnet=on)
    await_names(edge)
