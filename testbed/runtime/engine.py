"""The Docker engine: whether one answers, a client for it, and its errors in our words.

What only asks a question goes over the socket by plain HTTP (Docker Engine API), since importing the ``docker`` package
costs a quarter of a second; what makes or removes something uses the package.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ApplyError, PreflightError, TestbedError

if TYPE_CHECKING:
    from docker import DockerClient

DEFAULT_SOCKET = "/var/run/docker.sock"
WITHOUT = "run the lab with `--runtime process`, which needs no engine"
PROBE_SECONDS = 5.0
CALL_SECONDS = 120.0


class EngineError(PreflightError):
    """No engine that could be used: none there, no permission, no answer, or not on this machine."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine says of itself."""

    version: str
    api: str
    socket: Path


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def socket_path() -> Path:
    """The engine's socket, from ``DOCKER_HOST`` where that is set.

    Raises EngineError for an engine that is reached over a network: a node's namespace must be on this machine.
    """
    host = os.environ.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}"
    scheme, _, path = host.partition("://")
    if scheme != "unix":
        raise EngineError(
            f"DOCKER_HOST is {host}: an engine on another machine, or behind a network, cannot hold nodes of a lab",
            remedy=f"unset DOCKER_HOST to use the engine of this machine, or {WITHOUT}",
        )
    return Path(path)


def get(path: str, *, timeout: float = PROBE_SECONDS) -> Any:
    """The JSON that the engine returns for a GET of ``path``; None for 404. EngineError when it does not answer."""
    unix = socket_path()
    connection = _UnixConnection(unix, timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except OSError as error:
        raise _unreachable(unix, error, timeout) from error
    except http.client.HTTPException as error:
        raise EngineError(f"{unix} does not speak HTTP: {error!r}", remedy="is it a Docker engine's socket?") from error
    finally:
        connection.close()
    if response.status == 404:
        return None
    if response.status != 200:
        raise EngineError(f"the Docker engine answered {response.status}: {body[:200].decode(errors='replace')}")
    return json.loads(body)


def probe() -> Engine:
    """What engine answers. Raises EngineError, whose message says what is wrong and what to do."""
    answer = get("/version") or {}
    return Engine(str(answer.get("Version", "unknown")), str(answer.get("ApiVersion", "unknown")), socket_path())


def is_outlived() -> bool:
    """Whether containers go on while the engine is restarted (its option ``--live-restore``). EngineError."""
    return bool((get("/info", timeout=CALL_SECONDS) or {}).get("LiveRestoreEnabled"))


def connect(*, timeout: float = CALL_SECONDS, connections: int = 10) -> DockerClient:
    """A client of the engine; ``timeout`` is for one call, in seconds. Raises EngineError."""
    import docker

    unix = socket_path()
    try:
        client = docker.DockerClient(
            base_url=f"unix://{unix}", version="auto", timeout=timeout, max_pool_size=connections
        )
    except docker.errors.DockerException as error:
        probe()  # says it better
        raise EngineError(f"no usable Docker engine at {unix}: {error}") from error
    return client


@contextmanager
def translated(doing: str, where: str = "") -> Iterator[None]:
    """Turn what the ``docker`` package raises while ``doing`` something into ApplyError."""
    import docker.errors
    import requests

    try:
        yield
    except TestbedError:
        raise
    except docker.errors.APIError as error:
        raise ApplyError(f"{doing}: the Docker engine refused: {error.explanation or error}", where=where) from error
    except requests.exceptions.ReadTimeout as error:
        raise ApplyError(
            f"{doing}: the Docker engine did not answer in time",
            where=where,
            remedy="is the machine overloaded, or the engine stuck? See `testbed doctor`",
        ) from error
    except (requests.exceptions.RequestException, docker.errors.DockerException, OSError) as error:
        raise ApplyError(
            f"{doing}: lost the Docker engine: {error}", where=where, remedy="see `testbed doctor`"
        ) from error


def _unreachable(unix: Path, error: OSError, timeout: float) -> EngineError:
    if isinstance(error, PermissionError):
        return EngineError(
            f"no permission to use the Docker engine at {unix}", remedy=f"run as root (sudo), or {WITHOUT}"
        )
    if isinstance(error, FileNotFoundError):
        return EngineError(f"no Docker engine: there is no {unix}", remedy=f"run `sudo make setup`, or {WITHOUT}")
    if isinstance(error, ConnectionRefusedError):
        return EngineError(
            f"no Docker engine listens at {unix} any more", remedy=f"run `sudo make setup` to start it, or {WITHOUT}"
        )
    if isinstance(error, TimeoutError):
        return EngineError(
            f"the Docker engine at {unix} did not answer within {timeout:g} s",
            remedy=f"restart it (systemctl restart docker), or {WITHOUT}",
        )
    return EngineError(
        f"the Docker engine at {unix} cannot be used: {error}", remedy=f"see `testbed doctor`, or {WITHOUT}"
    )
