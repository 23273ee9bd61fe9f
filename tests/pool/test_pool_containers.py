"""A pool of containers: destroyed, made anew, and checked against the image's manifest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from states import own_state

from testbed.lab.up import up
from testbed.plan.load import load_text
from testbed.pool.lab.pools import Pool
from testbed.runtime import engine
from testbed.runtime.container import container_name
from testbed.runtime.images import DEFAULT_IMAGE

pytestmark = [pytest.mark.root, pytest.mark.engine]

IMAGE = f"testbed/pool-test-{os.getpid()}"
TOPOLOGY = f"""
name: contained
pool: {{web: {{servers: 2, runtime: container, image: "{IMAGE}:1", timer: 300s, reinitialise: 20s}}}}
nodes: {{client: }}
links: [[client, core]]
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """On an image of its own, whose last layer has one file."""
    definition = tmp_path_factory.mktemp("image")
    (definition / "Dockerfile").write_text(f"FROM {DEFAULT_IMAGE}\nCOPY mark /usr/share/mark\n")
    (definition / "mark").write_text("as it should be\n")
    client = engine.connect()
    client.images.build(path=str(definition), tag=f"{IMAGE}:1", network_mode="none")
    try:
        with own_state():
            lab = up(load_text(TOPOLOGY)[1], f"contained-{os.getpid()}", owner=os.getpid())
            yield lab.subsystem("pool")["web"]
    finally:
        client.images.remove(f"{IMAGE}:1", force=True)
        client.close()


def test_a_container_is_made_anew_and_what_was_in_it_is_gone(pool: Pool) -> None:
    before, since = pool.await_service(), time.monotonic()
    page = pool.lab.node_folder(before) / "www" / "index.html"
    page.write_text("defaced\n")
    first = pool.lab.services(before)["web"][0].pid
    pool.kill_server(before)
    after = pool.await_service(but=before)
    pool.await_event("renewed", before, since=since)
    pool.await_state(before, "ready")
    assert after != before
    assert page.read_text().startswith("<!doctype html>")
    assert pool.lab.services(before)["web"][0].pid != first
    host = engine.get(f"/containers/{container_name(pool.lab.id, before)}/json")["HostConfig"]
    assert (host["ReadonlyRootfs"], host["CapDrop"]) == (True, ["ALL"])


def test_a_spoilt_image_never_becomes_ready(pool: Pool) -> None:
    serving, since = pool.await_service(), time.monotonic()
    other = next(server for server in pool.servers if server != serving)
    pool.await_state(other, "ready")
    pool.tamper(other, "image")
    pool.kill_server(other)
    found = pool.await_event("alarm", other, since=since)["found"]
    assert found == ["/usr/share/mark has other content"]
    pool.await_state(other, "initialising")
    assert pool.serving() == serving


def test_nothing_of_it_stays(pool: Pool) -> None:
    """The last test: agents must not make a server again while the lab is taken down."""
    lab = pool.lab
    lab.down()
    left = engine.get(f'/containers/json?all=1&filters={{"label":["testbed.lab={lab.id}"]}}')
    assert [item["Names"] for item in left] == []
