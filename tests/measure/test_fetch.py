"""Single downloads: every way in which one can end, and the content that is served."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from socks_world import SIZE, World

from testbed.measure.content import content, content_blocks, content_digest
from testbed.measure.fetch import Download, Target, fetch


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "socks") as running:
        yield running


def get(proxy: Path, host: str, timeout: float = 30) -> Download:
    target = Target(host, 80, "/file", SIZE, content_digest(SIZE, 3))
    return asyncio.run(fetch("client1", 1, proxy, target, "user", timeout))


@pytest.mark.parametrize("host", ["ok", "named", "v6", "trickle"])
def test_a_download_that_comes_through(world: World, host: str) -> None:
    download = get(world.path, host)
    assert (download.outcome, download.bytes, download.instance) == ("ok", SIZE, "shop2")
    assert download.first_byte is not None
    assert download.last_byte is not None
    assert download.started < download.first_byte <= download.last_byte <= download.ended
    assert world.usernames == {"user": 1}


def test_an_answer_without_length_or_instance(world: World) -> None:
    download = get(world.path, "nolength")
    assert (download.outcome, download.bytes, download.instance) == ("ok", SIZE, "")


@pytest.mark.parametrize(
    ("host", "outcome", "received"),
    [
        ("refuse.1", "socks-1", 0),
        ("refuse.4", "socks-4", 0),
        ("refuse.240", "socks-240", 0),
        ("vanish", "reset", 0),
        ("status.404", "http-404", 0),
        ("status.503", "http-503", 0),
        ("status.2x0", "malformed", 0),
        ("status.2000", "malformed", 0),
        ("short", "short", SIZE - 1),
        ("shorter", "short", 1000),
        ("long", "long", SIZE + 1),
        ("corrupt", "corrupt", SIZE),
        ("mute", "reset", 0),
        ("garbage", "malformed", 0),
        ("header", "malformed", 0),
        ("halfhead", "malformed", 0),
    ],
)
def test_a_download_that_fails(world: World, host: str, outcome: str, received: int) -> None:
    download = get(world.path, host)
    assert (download.outcome, download.bytes) == (outcome, received)
    assert (download.last_byte is not None) == (outcome == "corrupt")


def test_an_endless_answer_is_cut(world: World) -> None:
    download = get(world.path, "endless")
    assert download.outcome == "long"
    assert download.bytes < SIZE + (1 << 17)


def test_a_connection_that_breaks_amid_the_body(world: World) -> None:
    download = get(world.path, "break")
    assert download.outcome in ("short", "reset")  # a unix socket that is closed hard may end like one closed softly
    assert download.last_byte is None


@pytest.mark.parametrize(("host", "first"), [("silent", False), ("stall", True)])
def test_a_download_that_takes_too_long(world: World, host: str, first: bool) -> None:
    download = get(world.path, host, timeout=0.5)
    assert download.outcome == "timeout"
    assert (download.first_byte is not None) == first
    assert download.last_byte is None
    assert download.ended - download.started >= 0.5


def test_no_proxy(tmp_path: Path) -> None:
    assert get(tmp_path / "none", "ok").outcome == "proxy"


def test_something_that_is_no_proxy(tmp_path: Path) -> None:
    async def trial() -> Download:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\x05\xff")  # no acceptable method, RFC 1928 section 3
            await writer.drain()
            writer.close()

        async with await asyncio.start_unix_server(answer, tmp_path / "socks"):
            return await fetch("c", 1, tmp_path / "socks", Target("x", 80, "/", 1, ""), "user", 30)

    assert asyncio.run(trial()).outcome == "proxy"


def test_a_cancelled_download_is_reported_as_unfinished(world: World) -> None:
    async def trial() -> Download:
        target = Target("stall", 80, "/file", SIZE, "")
        task = asyncio.create_task(fetch("c", 1, world.path, target, "user", 30))
        while not world.hosts["stall"]:
            await asyncio.sleep(0.01)
        task.cancel()
        return await task

    assert asyncio.run(trial()).outcome == "unfinished"


@given(size=st.integers(0, 3 * 2**20), seed=st.integers(0, 5))
def test_content_depends_on_size_and_seed_only(size: int, seed: int) -> None:
    data = content(size, seed)
    assert len(data) == size
    assert hashlib.sha256(data).hexdigest() == content_digest(size, seed)
    assert b"".join(content_blocks(size, seed)) == data
    if size > 16:
        assert data != content(size, seed + 1)


def test_content_cannot_be_compressed_and_stays_the_same() -> None:
    import zlib

    data = content(100_000, seed=1)
    assert len(zlib.compress(data)) > 100_000
    assert data.startswith(hashlib.shake_256(b"testbed content 1 0").digest(32))
