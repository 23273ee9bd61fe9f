"""An onion service whose instance is a container, on the smallest network that carries one."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.lab.up import up
from testbed.measure.fetch import Download
from testbed.measure.load import run_load
from testbed.plan.load import load_text

pytestmark = [pytest.mark.root, pytest.mark.tor, pytest.mark.engine]

TOPOLOGY = """
name: onion-container
seed: 2
tor: {authorities: 1, relays: 3, clients: 1}
onions:
  shop: {instances: 2, stagger: 1s, runtime: container, content: {size: 64KiB}}
"""


def test_instances_in_containers(state: Path) -> None:
    """They come up with the lab, serve the right bytes and say who they are; stop and start works in place."""
    topology, plan = load_text(TOPOLOGY)
    lab = up(plan)
    tor, onions = lab.subsystem("tor"), lab.subsystem("onions")
    for publish in ("naive", "simultaneous"):
        downloads: list[Download] = []
        sockets = {client: tor.socks_path(client) for client in tor.clients}
        run_load(
            sockets,
            onions.address("shop"),
            80,
            "/file",
            size=64 * 1024,
            seed=topology.seed,
            count=1,
            on_result=downloads.append,
        )
        assert [download.outcome for download in downloads] == ["ok"], publish
        entries = onions.hsdir_map("shop")
        assert len(entries) == 4, "fewer relays than six: all of them are responsible"
        assert downloads[0].instance in {entry.instance for entry in entries}
        assert onions.running("shop") == ["shop1", "shop2"]
        onions.stop("shop")
        assert onions.running("shop") == []
        if publish == "naive":
            onions.forget_descriptors()
            onions.start("shop", publish="simultaneous")
    lab.down()
