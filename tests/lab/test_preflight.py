"""What a plan lacks on a machine. Machines that lack it are made, as far as a test may."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.errors import PreflightError
from testbed.lab import programs
from testbed.lab.preflight import preflight
from testbed.plan.types import Plan
from testbed.tor.spec import OnionsSpec, TorSpec

MakePlan = Callable[..., Plan]
TOR = {"tor": TorSpec(relays=3)}


def with_shop(runtime: str) -> dict[str, object]:
    return {**TOR, "onions": OnionsSpec.model_validate({"shop": {"instances": 1, "runtime": runtime}})}


def message(plan: Plan) -> str:
    with pytest.raises(PreflightError) as caught:
        preflight(plan)
    return str(caught.value)


def as_nobody(work: Callable[[], str]) -> str:
    """What ``work`` returns in a child process without root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_without_root(make_plan: MakePlan) -> None:
    plan = make_plan(nodes={"a": None})

    def words() -> str:
        try:
            preflight(plan)
        except PreflightError as error:
            return str(error)
        return "nothing is lacking"

    assert "a lab needs root" in as_nobody(words)


@pytest.mark.root
def test_plain_plan_lacks_nothing(make_plan: MakePlan) -> None:
    preflight(make_plan(nodes={"a": None, "b": None}, links=[["a", "b"]]))


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Makes a machine that has nothing but the given programs, each a shell script."""

    def make(scripts: dict[str, str]) -> None:
        for name, script in scripts.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        monkeypatch.setattr(programs, "SEARCH_PATH", str(tmp_path))

    return make


def test_every_lack_is_named_at_once(make_plan: MakePlan, only: Callable[[dict[str, str]], None]) -> None:
    only({})
    text = message(make_plan(sections=with_shop("process")))
    for program in ("nsenter", "setpriv", "tor", "nginx"):
        assert f"there is no program {program}\n" in text
    assert "apt-get install nginx-light" in text


def test_old_tor(make_plan: MakePlan, only: Callable[[dict[str, str]], None]) -> None:
    only({"tor": "echo 'Tor version 0.4.7.16.'", "tor-gencert": "", "nsenter": "", "setpriv": ""})
    text = message(make_plan(sections=TOR))
    assert "tor is 0.4.7.16; 0.4.8 or newer is needed" in text
    assert "backports" in text
    only({"tor": "exit 1"})
    programs.version.cache_clear()
    assert "tor is of unknown version" in message(make_plan(sections=TOR))


def test_nginx_is_not_asked_for_where_it_runs_in_a_container(
    make_plan: MakePlan, only: Callable[[dict[str, str]], None]
) -> None:
    only({})
    assert "nginx" not in message(make_plan(sections=with_shop("container")))


def test_program_of_a_plain_service(make_plan: MakePlan) -> None:
    services = {"web": {"command": ["no-such-server", "-v"]}}
    text = message(make_plan(nodes={"a": {"services": services}}))
    assert "there is no program 'no-such-server', which service 'web' of node 'a' runs" in text


def test_containers_without_engine(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    text = message(make_plan(nodes={"a": {"runtime": "container"}, "b": None}, links=[["a", "b"]]))
    assert "no Docker engine" in text
    assert "(nodes in containers: a)" in text
    assert "--runtime process" in text


@pytest.mark.root
@pytest.mark.engine
def test_containers_without_image(make_plan: MakePlan) -> None:
    plan = make_plan(nodes={"a": {"runtime": "container", "image": "testbed/no-such-image:0"}})
    assert message(plan) == "there is no container image testbed/no-such-image:0\n  docker pull testbed/no-such-image:0"


@pytest.mark.root
def test_full_disk(make_plan: MakePlan, tmp_path: Path) -> None:
    """A state folder on a small file system, in a mount namespace of its own."""
    plan = tmp_path / "plan.json"
    plan.write_text(make_plan(nodes={"a": None}).model_dump_json())
    program = (
        "from testbed.plan.types import Plan; from testbed.lab.preflight import preflight;"
        f"preflight(Plan.model_validate_json(open({str(plan)!r}).read()))"
    )
    small = tmp_path / "small"
    small.mkdir()
    script = f'mount -t tmpfs -o size=1m tmpfs {small} && TESTBED_STATE={small}/state {sys.executable} -c "$0"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, program], capture_output=True, text=True, check=False
    )
    assert "the disk is nearly full: 1 MiB are free" in done.stderr
    assert "TESTBED_STATE" in done.stderr


def test_limit_of_open_files_is_raised(make_plan: MakePlan) -> None:
    plan = make_plan(nodes={"a": None})

    def limits() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048))
        with suppress(PreflightError):
            preflight(plan)
        return str(resource.getrlimit(resource.RLIMIT_NOFILE))

    def too_few() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))
        try:
            preflight(plan)
        except PreflightError as error:
            return str(error)
        return "nothing is lacking"

    assert as_nobody(limits) == "(2048, 2048)"
    assert "may open only 512 files" in as_nobody(too_few)


@pytest.mark.root
def test_a_state_folder_that_programs_cannot_enter(
    make_plan: MakePlan, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = state / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setenv("TESTBED_STATE", str(private / "below"))
    assert message(make_plan(sections=TOR)) == (
        f"{private}: programs in nodes, which run as user 10001, cannot get through this folder\n"
        f"  chmod o+x {private}, or set TESTBED_STATE to a folder elsewhere"
    )
    preflight(make_plan(nodes={"a": None}))  # nothing runs in it
    private.chmod(0o711)
    preflight(make_plan(sections=TOR))
