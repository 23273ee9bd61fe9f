"""What is said of an engine that cannot be used. Each is a real socket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.runtime import engine, images


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    return tmp_path / "s"


@contextmanager
def listening(path: Path, answer: bytes) -> Iterator[None]:
    """A server that says ``answer`` to every request; nothing, and the connection stays open, if it is empty."""
    kept = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                connection.recv(4096)
                if answer:
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for connection in kept:
            connection.close()


def test_no_socket(path: Path) -> None:
    with pytest.raises(engine.EngineError, match="no Docker engine: there is no") as caught:
        engine.probe()
    assert "make setup" in caught.value.remedy
    assert "--runtime process" in caught.value.remedy
    with pytest.raises(engine.EngineError, match="no Docker engine: there is no"):
        engine.connect()


def test_nobody_listens(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    with pytest.raises(engine.EngineError, match=r"listens at .* any more"):
        engine.probe()


def test_no_answer(path: Path) -> None:
    with listening(path, b""), pytest.raises(engine.EngineError, match=r"did not answer within 0\.2 s"):
        engine.get("/version", timeout=0.2)


def test_not_http(path: Path) -> None:
    with listening(path, b"220 mail ready\r\n"), pytest.raises(engine.EngineError, match="does not speak HTTP"):
        engine.probe()


def test_refusal_is_quoted(path: Path) -> None:
    with (
        listening(path, b"HTTP/1.0 503 no\r\n\r\nshutting down"),
        pytest.raises(engine.EngineError, match="503: shutting down"),
    ):
        engine.probe()


def test_engine_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(engine.EngineError, match="another machine") as caught:
        engine.probe()
    assert "unset DOCKER_HOST" in caught.value.remedy


@pytest.mark.root
def test_no_permission() -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)  # noqa: S103
        path = Path(folder, "s")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            path.chmod(0o600)
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.setresuid(65534, 65534, 65534)
                os.environ["DOCKER_HOST"] = f"unix://{path}"
                try:
                    engine.probe()
                    words = "it worked"
                except engine.EngineError as error:
                    words = str(error)
                os.write(writer, words.encode())
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                assert "no permission" in pipe.read()
            os.waitpid(child, 0)


def test_image_digest_follows_every_file(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x")
    (tmp_path / "packages.txt").write_text("tor\n")
    first = images.digest(tmp_path)
    assert images.digest(tmp_path) == first
    (tmp_path / "packages.txt").write_text("tor\nnginx\n")
    second = images.digest(tmp_path)
    assert second != first
    (tmp_path / "packages.txt").rename(tmp_path / "other.txt")
    assert images.digest(tmp_path) not in (first, second)


def test_image_definition_is_where_it_is_looked_for() -> None:
    assert (images.DEFINITION / "Dockerfile").is_file()
    assert "tor" in (images.DEFINITION / "packages.txt").read_text().split()


@pytest.mark.engine
def test_image_is_made_once() -> None:
    assert images.build() in (True, False)
    said: list[str] = []
    assert images.build(say=said.append) is False
    assert said == []
    images.require(images.DEFAULT_IMAGE)


@pytest.mark.engine
def test_absent_image() -> None:
    assert images.state("testbed/no-such-image:0") == "absent"
    from testbed.errors import PreflightError

    with pytest.raises(PreflightError, match="no container image") as caught:
        images.require("testbed/no-such-image:0")
    assert caught.value.remedy == "docker pull testbed/no-such-image:0"
