"""Servers as containers: destroyed and made anew by the engine.

The network namespace of such a server belongs to a second container, which only sleeps. So the server's container can
be removed and another one made without its links being made anew, which halves the time that it takes. Programs in the
server have no capabilities and cannot change the namespace.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.lab import links
from testbed.plan.types import Service
from testbed.pool.server import manifest
from testbed.pool.server.maker import Maker
from testbed.runtime import engine
from testbed.runtime.base import LAB_VARIABLE, UNPRIVILEGED_ID, Place, Process, expand_argv, start_time
from testbed.runtime.container import LAB_LABEL, ContainerRuntime, container_name, definition
from testbed.runtime.images import DEFAULT_IMAGE

if TYPE_CHECKING:
    from docker import DockerClient

    from testbed.pool.daemon.world import World

_REDIRECT = ("/bin/sh", "-c", 'exec "$@" >>"$0" 2>&1')


class ContainerMaker(Maker):
    """A server in a container with a read-only root."""

    def __init__(self, pool: World, server: str) -> None:
        super().__init__(pool, server)
        self._client: DockerClient = engine.connect()
        self._runtime = ContainerRuntime()
        self._identity = ""
        self._watch = manifest.Watch(self._image)
        self._looker = ThreadPoolExecutor(1, "image")
        self._looking: Future[list[str] | None] | None = None

    def destroy(self) -> None:
        """Remove the container. Meanwhile the image is looked at, through the holder, which has the same one."""
        self._looking = self._looker.submit(self._look_at_image)
        self._runtime.remove_node(self.place)

    def create(self) -> Process:
        """A new container whose first process is the server's program."""
        holder = self._holder()
        api = self._client.api
        with engine.translated("making the server's container", f"node {self.server}"):
            wanted = _definition(api, self.place, self.program, holder)
            self._identity = str(api.create_container(**wanted)["Id"])
            api.start(self._identity)
            pid = int(api.inspect_container(self._identity)["State"]["Pid"])
        log = self.place.folder / f"{self.program.name}.log"
        process = Process(self.server, self.program.name, pid, start_time(pid) or -1, log)
        self.lab.keep_process(process, self.program)
        return process

    def check_image(self) -> list[str]:
        """It is of the image of the manifest, whose files are those of the manifest, and has no others."""
        wrong = self._looking.result() if self._looking else None
        if wrong is None:
            wrong = self._look_at_image() or []
        found = engine.get(f"/containers/{self._identity}/json")
        if found is None or not found["State"]["Running"]:
            return wrong  # whoever waits for its answer says it better
        if found["Image"] != self._image_id:
            wrong.append(f"its image is {found['Image']}, not {self._image_id}")
        try:
            mounted = manifest.mounts(int(found["State"]["Pid"]))
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            return wrong
        for path in _written(found):
            if not any(point == path or point.startswith(f"{path}/") for point in mounted):
                wrong.append(f"/{path} is not of its image")
        return wrong

    def _look_at_image(self) -> list[str] | None:
        """What of the image's files is otherwise than in the manifest; None without a holder to look through."""
        found = engine.get(f"/containers/{holder_name(self.place)}/json")
        if found is None or not found["State"]["Running"]:
            return None
        pid = int(found["State"]["Pid"])
        return [f"/{text}" for text in self._watch.differences(engine_root(pid), manifest.mounts(pid))]

    def _holder(self) -> str:
        """The container whose network namespace the server has; made, and given the links, if it is not there."""
        name = holder_name(self.place)
        found = engine.get(f"/containers/{name}/json")
        if found is not None and found["State"]["Running"] and self._is_ours(int(found["State"]["Pid"])):
            return name
        api = self._client.api
        with engine.translated(f"making the container {name}", f"node {self.server}"):
            if found is not None:
                api.remove_container(name, force=True, v=True)
            wanted = definition(api, self.place, self.place.node.image or DEFAULT_IMAGE)
            wanted |= {"name": name, "labels": {LAB_LABEL: self.place.lab}}
            wanted["host_config"]["Binds"] = []
            identity = str(api.create_container(**wanted)["Id"])
            api.start(identity)
            pid = int(api.inspect_container(identity)["State"]["Pid"])
        links.rewire(self.lab, self.server, pid)
        return name

    def _is_ours(self, pid: int) -> bool:
        """Whether the namespace is the one that the lab's links are in; one that was left behind by a lab that was
        killed while it made a server is not."""
        try:
            return os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), os.stat(self.lab.namespace(self.server)))
        except OSError:
            return False


def holder_name(place: Place) -> str:
    """The engine's name for the container that holds a server's network namespace."""
    return f"{container_name(place.lab, place.node.name)}.net"


def image_manifest(pid: int) -> manifest.Manifest:
    """The manifest of the image of a container in which nothing has run yet, by its first process."""
    return manifest.make(engine_root(pid), manifest.mounts(pid))


def _written(found: dict[str, Any]) -> list[str]:
    """What a container's own layer has: only the places of its mounts, in one that may not write."""
    upper = found["GraphDriver"]["Data"].get("UpperDir")
    if found["GraphDriver"]["Name"] == "overlay2" and upper:
        return [str(path.relative_to(upper)) for path in Path(upper).rglob("*")]
    # other drivers: the engine compares all files, which takes half a second and more
    changes = engine.get(f"/containers/{found['Id']}/changes", timeout=engine.CALL_SECONDS)
    return [str(change["Path"])[1:] for change in changes or []]


def engine_root(pid: int) -> Path:
    """The root of a container's files, by its first process."""
    return Path(f"/proc/{pid}/root")


def _definition(api: Any, place: Place, program: Service, holder: str) -> dict[str, Any]:
    wanted = definition(api, place, place.node.image or DEFAULT_IMAGE)
    del wanted["hostname"]  # it has that of whose network it shares
    wanted["host_config"]["NetworkMode"] = f"container:{holder}"
    wanted["entrypoint"] = list(_REDIRECT)
    wanted["command"] = [str(place.folder / f"{program.name}.log"), *expand_argv(program, place.folder)]
    wanted["working_dir"] = str(place.folder)
    identity = {"HOME": str(place.folder), "LC_ALL": "C.UTF-8", **program.env, LAB_VARIABLE: place.lab}
    wanted["environment"] = identity
    wanted["user"] = f"{UNPRIVILEGED_ID}:{UNPRIVILEGED_ID}"
    return wanted
