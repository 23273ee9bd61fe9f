"""The set-up scripts: what can be tried without a fresh machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [*sorted((ROOT / "setup").glob("*.sh")), ROOT / ".ci" / "run"]


def run(*argv: str, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse_and_stop_at_errors(script: Path) -> None:
    assert run("bash", "-n", str(script)).stderr == ""
    if script.name != "lib.sh":
        assert "set -euo pipefail" in script.read_text()
        assert os.access(script, os.X_OK)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_scripts_are_clean() -> None:
    assert run("shellcheck", "-x", "-P", str(ROOT), *map(str, SCRIPTS)).stdout == ""


@pytest.mark.parametrize(
    ("have", "wanted", "enough"),
    [
        ("0.4.8", "0.4.8", True),
        ("0.4.8.10", "0.4.8", True),
        ("0.4.10.1", "0.4.8", True),
        ("0.4.7.16", "0.4.8", False),
        ("0.4.7", "0.4.8", False),
        ("0", "0.4.8", False),
        ("3.9", "3.11", False),
        ("3.12", "3.11", True),
    ],
)
def test_versions_are_compared_as_numbers(have: str, wanted: str, enough: bool) -> None:
    script = f'. "{ROOT}/setup/lib.sh"; version_at_least "$1" "$2"'
    assert (run("bash", "-c", script, "-", have, wanted).returncode == 0) == enough


def test_packages_are_listed_once_and_whole() -> None:
    lines = (ROOT / "setup" / "packages.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    assert all(len(row) == 3 and row[0] in ("base", "engine", "extra") for row in rows)
    names = [row[1] for row in rows]
    assert len(names) == len(set(names))


def test_make_shows_its_targets_by_default() -> None:
    shown = run("make", "--no-print-directory", "-C", str(ROOT)).stdout
    for target in ("setup", "demo", "test", "test-fast", "lint", "bench", "clean"):
        assert f"  {target} " in shown


@contextmanager
def answering(path: Path, answer: Callable[[bytes], bytes]) -> Iterator[None]:
    """A server on a unix socket that reads a request's head and answers it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer(connection.recv(4096)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_engine_check_takes_only_a_good_answer_for_an_engine(tmp_path: Path) -> None:
    path = tmp_path / "s"
    check = (str(ROOT / "setup" / "engine.sh"), "--check")
    host = f"unix://{path}"
    assert run(*check, DOCKER_HOST=host).returncode == 1  # no such socket
    asked = []

    def good(request: bytes) -> bytes:
        asked.append(request)
        return b"HTTP/1.0 200 OK\r\n\r\nOK"

    with answering(path, good):
        assert run(*check, DOCKER_HOST=host).returncode == 0
    assert asked[0].startswith(b"GET /_ping ")
    assert run(*check, DOCKER_HOST=host).returncode != 0  # nobody listens any more
    path.unlink()
    with answering(path, lambda request: b"HTTP/1.0 500 broken\r\n\r\n"):
        assert run(*check, DOCKER_HOST=host).returncode != 0


def as_nobody() -> None:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)


def test_setup_without_root_says_so() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as copy:
        os.chmod(copy, 0o755)  # noqa: S103 - the script must be readable by the user it runs as
        shutil.copytree(ROOT / "setup", Path(copy) / "setup")
        done = subprocess.run(
            ["bash", f"{copy}/setup/setup.sh"],
            preexec_fn=as_nobody if os.geteuid() == 0 else None,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "needs root" in done.stderr
    assert "sudo make setup" in done.stderr


@pytest.mark.root
@pytest.mark.skipif(shutil.which("dockerd") is None, reason="there is no dockerd on this machine")
def test_engine_is_started_once_and_again_after_a_crash() -> None:
    """In namespaces of its own, with an empty /run and /var/lib/docker: beside whatever engine this machine runs."""
    script = ROOT / "tests" / "setup" / "engine_in_a_box.sh"
    done = run("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash", str(script), timeout=200)
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert done.returncode == 0, done.stdout + done.stderr
    assert steps == [
        "step refused: status 3, says why",
        "step first: an engine answers, docker0 was not made",
        "step second: the same process",
        "step crash: another process, stale pid file ignored",
    ]
