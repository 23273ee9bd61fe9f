"""Nodes in hardened containers.

A container is a sandbox in the sense of Kubernetes: its first process only sleeps, and programs are started in it one
by one. It has no network of Docker's; the lab puts its own interfaces into its namespace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.errors import ApplyError, WaitTimeout
from testbed.plan.types import RuntimeName, Service
from testbed.runtime import engine
from testbed.runtime.base import LAB_VARIABLE, UNPRIVILEGED_ID, Place, Process, expand_argv, log_tail, start_time
from testbed.runtime.images import DEFAULT_IMAGE, missing_message

if TYPE_CHECKING:
    from docker import DockerClient

Result = TypeVar("Result")

LAB_LABEL = "testbed.lab"
NODE_LABEL = "testbed.node"
WORKERS = 6
"""Calls to the engine at a time; more do not make it faster on a few cores."""
MEMORY_BYTES = 256 * 2**20
PIDS = 256
"""Limits of a container whose node sets none."""

_USER = f"{UNPRIVILEGED_ID}:{UNPRIVILEGED_ID}"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TMPFS = {
    "/tmp": "rw,nosuid,nodev,noexec,size=32m,mode=1777",  # noqa: S108 - inside the container
    "/run": f"rw,nosuid,nodev,noexec,size=16m,mode=0755,uid={UNPRIVILEGED_ID},gid={UNPRIVILEGED_ID}",
    "/var/tmp": "rw,nosuid,nodev,noexec,size=16m,mode=1777",  # noqa: S108
}
# The program and its log are arguments of the shell, never part of its script.
_REDIRECT = ("/bin/sh", "-c", 'exec "$@" >>"$0" 2>&1')
_BEFORE = ("\0".join(_REDIRECT).encode(), b"runc\0init\0")
"""How the command lines of a process begin that has not become the program yet: the engine's own, then the shell's."""


def container_name(lab: str, node: str) -> str:
    """The engine's name for a node: ``tb-<lab>-<node>``."""
    return f"tb-{lab}-{node}"


@dataclass(frozen=True, slots=True)
class _Made:
    container: str
    pid: int


class ContainerRuntime:
    """Containers of the Docker engine on this machine."""

    name: RuntimeName = "container"

    def __init__(self) -> None:
        self._connected: DockerClient | None = None

    def create(self, places: Sequence[Place]) -> dict[str, int]:
        """Create and start a container for each node, several at a time; the pid of each one's first process.

        If one fails, those made in this call are removed again and ApplyError says which node failed and why.
        """
        self._client()
        made, failures = _each(self._create_one, places)
        if not failures:  # looked at once all are started, so that what dies at once has had its time to
            _, failures = _each(self._check, [place.node.name for place in places], made)
        if failures:
            _each(lambda item: self._remove_one(item.container), made)
            raise failures[0]
        return {place.node.name: item.pid for place, item in zip(places, made, strict=True)}

    def spawn(self, place: Place, service: Service) -> Process:
        """Start a program by the engine's exec, always as the unprivileged user.

        ApplyError when it cannot be executed or ends at once with a status other than 0; WaitTimeout.
        """
        where = f"node {place.node.name}"
        log = place.folder / f"{service.name}.log"
        environment = {"HOME": str(place.folder), "LC_ALL": "C.UTF-8", **service.env, LAB_VARIABLE: place.lab}
        api = self._client().api
        container = container_name(place.lab, place.node.name)
        with engine.translated(f"starting service {service.name}", where):
            self._pid(container, where)
            execution = api.exec_create(
                container,
                [*_REDIRECT, str(log), *expand_argv(service, place.folder)],
                user=_USER,
                workdir=str(place.folder),
                environment=environment,
                stdout=False,
                stderr=False,
            )["Id"]
            api.exec_start(execution, detach=True)
            pid, started = _await_exec(lambda: api.exec_inspect(execution), service, where, log)
        return Process(place.node.name, service.name, pid, started, log)

    def command(self, place: Place, argv: Sequence[str], *, root: bool, terminal: bool) -> list[str]:
        """nsenter into the container's namespaces.

        Unlike the engine's own exec this gives root its capabilities (a container has none), so that `ip` and `ping`
        work as they do in a node that is a process; and it needs no engine client.
        """
        pid = _first_process(place)
        enter = ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--"]
        environment = ["env", f"PATH={_PATH}", f"HOME={place.folder}", f"{LAB_VARIABLE}={place.lab}"]
        if root:
            return [*enter, *environment, *argv]
        identity = str(UNPRIVILEGED_ID)
        drop = ["setpriv", "--reuid", identity, "--regid", identity, "--clear-groups", "--no-new-privs"]
        return [*enter, *environment, *drop, "--bounding-set=-all", "--inh-caps=-all", "--", *argv]

    def remove(self, lab: str) -> None:
        """Remove all containers that carry the lab's label, running or not."""
        with engine.translated(f"looking for the containers of lab {lab}"):
            found = self._client().api.containers(all=True, filters={"label": f"{LAB_LABEL}={lab}"})
        _, failures = _each(lambda item: self._remove_one(str(item["Id"])), found)
        if failures:
            raise failures[0]

    def remove_node(self, place: Place) -> None:
        """Remove the container of one node, running or not; none there is fine."""
        self._remove_one(container_name(place.lab, place.node.name))

    def _client(self) -> DockerClient:
        if self._connected is None:
            self._connected = engine.connect(connections=WORKERS)
        return self._connected

    def _create_one(self, place: Place) -> _Made:
        import docker.errors

        api = self._client().api
        node = place.node
        where = f"node {node.name}"
        image = node.image or DEFAULT_IMAGE
        with engine.translated(f"creating the container {container_name(place.lab, node.name)}", where):
            try:
                identity = str(api.create_container(**definition(api, place, image))["Id"])
            except docker.errors.ImageNotFound as error:
                what, remedy = missing_message(image)
                raise ApplyError(what, where=where, remedy=remedy) from error
        try:
            with engine.translated("starting the container", where):
                api.start(identity)
                return _Made(identity, self._pid(identity, where))
        except BaseException:
            self._remove_one(identity)
            raise

    def _check(self, node: str, made: _Made) -> None:
        with engine.translated("looking at the container", f"node {node}"):
            self._pid(made.container, f"node {node}")

    def _pid(self, container: str, where: str) -> int:
        """Pid of a container's first process. ApplyError with its last words if it is dead."""
        api = self._client().api
        state = api.inspect_container(container)["State"]
        if not state["Running"]:
            raise ApplyError(_death(api, container, state), where=where)
        return int(state["Pid"])

    def _remove_one(self, identity: str) -> None:
        import docker.errors

        with engine.translated(f"removing the container {identity}"):
            try:
                self._client().api.remove_container(identity, force=True, v=True)
            except docker.errors.NotFound:
                pass
            except docker.errors.APIError as error:
                if error.status_code != 409:  # 409: another call is removing it already
                    raise
                self._await_removal(identity)

    def _await_removal(self, identity: str, timeout: float = 20) -> None:
        deadline = time.monotonic() + timeout
        while engine.get(f"/containers/{identity}/json") is not None:
            if time.monotonic() > deadline:
                raise WaitTimeout(f"the container {identity} to be removed", timeout, "still there")
            time.sleep(0.02)


def definition(api: Any, place: Place, image: str) -> dict[str, Any]:
    """Arguments of the engine's create call: everything that could be taken from a container is taken from it."""
    node = place.node
    return {
        "image": image,
        "name": container_name(place.lab, node.name),
        "hostname": node.name,
        "entrypoint": ["sleep"],  # whatever the image's own would start
        "command": ["infinity"],
        "user": _USER,
        "working_dir": "/",
        "environment": {LAB_VARIABLE: place.lab},
        "labels": {LAB_LABEL: place.lab, NODE_LABEL: node.name},
        "healthcheck": {"test": ["NONE"]},
        "host_config": api.create_host_config(
            network_mode="none",
            read_only=True,
            tmpfs=_TMPFS,
            binds=[f"{place.folder}:{place.folder}:rw"],
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=node.memory_bytes or MEMORY_BYTES,
            pids_limit=node.pids or PIDS,
            init=False,
            restart_policy={"Name": "no"},
            # Only what the first process says before it dies at start is ever in it; services have logs of their own.
            log_config={"Type": "json-file", "Config": {"max-size": "64k", "max-file": "1"}},
        ),
    }


def _death(api: Any, identity: str, state: dict[str, Any]) -> str:
    """Why a container is not running: the engine's word, the status, the last lines."""
    reason = "was killed for want of memory" if state.get("OOMKilled") else f"ended with status {state['ExitCode']}"
    said = state.get("Error") or api.logs(identity, tail=10).decode(errors="replace").strip() or "(it said nothing)"
    return f"the container {reason}; its last words:\n{said}"


def _first_process(place: Place) -> int:
    """Pid of a node's sleeping first process. ApplyError if its container is gone or does not run."""
    name = container_name(place.lab, place.node.name)
    found = engine.get(f"/containers/{name}/json")
    if found is None or not found["State"]["Running"]:
        seen = "is gone" if found is None else f"is not running ({found['State']['Status']})"
        raise ApplyError(f"its container {name} {seen}", where=f"node {place.node.name}")
    return int(found["State"]["Pid"])


def _await_exec(
    inspect: Callable[[], dict[str, Any]], service: Service, where: str, log: Path, timeout: float = 10
) -> tuple[int, int]:
    """Wait until the redirecting shell has become the program: (pid, start time), the latter -1 if it is over."""
    deadline = time.monotonic() + timeout
    while True:
        seen = inspect()
        pid, status = int(seen.get("Pid") or 0), seen.get("ExitCode")
        if status:
            raise ApplyError(
                f"service {service.name} ended at once with status {status}; its last words:\n{log_tail(log)}",
                where=where,
            )
        if status == 0 and not seen["Running"]:
            return pid, -1
        started = start_time(pid) if pid else None
        words = _command_line(pid) if started is not None else b""  # none: it is just changing, or has just ended
        if started is not None and words and not words.startswith(_BEFORE):
            return pid, started
        if time.monotonic() > deadline:
            raise WaitTimeout(f"service {service.name} to be executed", timeout, str(seen), where=where)
        time.sleep(0.002)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _each(work: Callable[..., Result], *items: Sequence[Any]) -> tuple[list[Result], list[Exception]]:
    """Like ``map``, a few at a time, and to the end whatever fails: the results and the errors, each in order."""
    results: list[Result] = []
    failures: list[Exception] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for future in [pool.submit(work, *each) for each in zip(*items, strict=True)]:
            error = future.exception()
            if isinstance(error, Exception):
                failures.append(error)
            elif error is not None:
                raise error
            else:
                results.append(future.result())
    return results, failures
