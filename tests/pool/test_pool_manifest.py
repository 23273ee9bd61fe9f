"""What a check of files finds, the first time and later; and a store that is started again knows what it has said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.pool.agents.machine import State
from testbed.pool.agents.store import Entry, Record
from testbed.pool.daemon.store import FileStore, plain, record_of
from testbed.pool.server import manifest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A few files."""
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "passwd").write_text("root")
    (tmp_path / "root" / "page").write_text("hello")
    (tmp_path / "root" / "link").symlink_to("page")
    return tmp_path / "root"


def same_time(root: Path) -> None:
    """Other content of the same size, and the old time of modification put back."""
    before = os.stat(root / "page")
    (root / "page").write_text("HELLO")
    os.utime(root / "page", ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("etc/passwd")


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (same_time, "page has other content"),
    (replaced, "link has other content"),
    (lambda root: (root / "etc" / "passwd").unlink(), "etc/passwd is missing"),
    (lambda root: (root / "etc" / "shadow").touch(), "etc/shadow is not known"),
    (lambda root: (root / "page").chmod(0o4755), "page has another mode or owner"),
]


@pytest.mark.parametrize("change, found", CHANGES, ids=[found for _, found in CHANGES])
def test_changes_are_found(root: Path, tmp_path: Path, change: Callable[[Path], object], found: str) -> None:
    manifest.save(manifest.make(root), tmp_path / "manifest.json", "image")
    known, about = manifest.load(tmp_path / "manifest.json")
    watch = manifest.Watch(known)
    assert about == "image"
    assert watch.differences(root) == watch.differences(root) == manifest.differences(known, root) == []
    change(root)
    assert manifest.differences(known, root) == [found]
    assert watch.differences(root) == watch.differences(root) == [found]


def test_a_file_that_only_looks_otherwise_is_as_it_must_be(root: Path) -> None:
    known = manifest.make(root)
    watch = manifest.Watch(known)
    assert watch.differences(root) == []
    (root / "page").unlink()
    (root / "page").write_text("hello")
    assert watch.differences(root) == manifest.differences(known, root) == []


def test_what_is_mounted_is_left_out(root: Path) -> None:
    known = manifest.make(root, ["etc"])
    (root / "etc" / "more").touch()
    assert manifest.differences(known, root, ["etc"]) == []
    assert manifest.differences(known, root) != []


def test_the_store_keeps_what_it_said(tmp_path: Path) -> None:
    record = Record(3, "a", 5, 9, "b", 1, (2, 4), {"a": Entry(State.SERVICE, 5), "b": Entry(State.READY, 1, 2, 8)})
    store = FileStore(tmp_path / "values.json")
    change = {"op": "set", "key": "web", "version": 0, "value": plain(record)}
    assert store.answer(change) == {"done": True}
    assert store.answer(change) == {"done": False}
    again = FileStore(tmp_path / "values.json").answer({"op": "get", "key": "web"})
    assert (again["version"], record_of(again["value"])) == (1, record)
