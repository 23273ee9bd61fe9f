"""Files that cannot be read, and what the loader gives when they can."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.errors import TopologyError
from testbed.plan.load import MAX_BYTES, load_text, load_topology

SMALL = "name: lab\nnodes: {a: , b: }\nlinks:\n  - [a, b]\n"


def refused(path: Path | str) -> str:
    with pytest.raises(TopologyError) as caught:
        load_topology(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_file_becomes_topology_and_plan(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())  # as editors elsewhere save it
    topology, plan = load_topology(path)
    assert (topology.name, plan.name, [node.name for node in plan.nodes]) == ("lab", "lab", ["a", "b"])
    assert load_topology(path, seed=7)[1].seed == 7
    assert load_topology(path, seed=7)[1].digest() != plan.digest()


def test_missing_file_directory_and_device(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.yaml")
    assert "is a directory" in refused(tmp_path)
    assert "not a regular file" in refused("/dev/zero")
    assert "cannot be read" in refused("nul\0in-the-name.yaml")
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refused(tmp_path / "fifo"), "and it does not wait for a writer"


def test_over_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    assert "larger than 512 KiB" in refused(path)


def test_column_of_a_bad_byte_counts_characters(tmp_path: Path) -> None:
    path = tmp_path / "bytes.yaml"
    path.write_bytes("name: lab\ndescription: äöü".encode() + b"\xff\n")
    assert refused(path).startswith(f"{path}:2:17: byte 0xff is not UTF-8")


def test_all_mistakes_are_in_one_error_in_the_order_of_the_file() -> None:
    text = "name: Lab\nseed: 07\nnodes: {a: {kind: hots}}\nlinks:\n  - {endpoints: [a, b], delay: 5}\n"
    with pytest.raises(TopologyError) as caught:
        load_text(text, "x.yaml")
    assert [line.split(": ")[0] for line in caught.value.lines] == [
        "x.yaml:1:7",
        "x.yaml:2:7",
        "x.yaml:3:19",
        "x.yaml:5:21",
        "x.yaml:5:32",
    ]


def test_a_mistake_in_a_section_does_not_make_its_nodes_unknown() -> None:
    with pytest.raises(TopologyError) as caught:
        load_text("name: lab\nnodes: {probe: }\nlinks:\n  - [probe, relay9]\ntor: {relays: 9, clients: few}\n")
    assert len(caught.value.lines) == 1
    assert "`clients` must be a whole number" in caught.value.lines[0]


def test_a_section_without_keys_has_its_defaults() -> None:
    assert load_text("name: lab\ntor:\n")[1] == load_text("name: lab\ntor: {}\n")[1]
