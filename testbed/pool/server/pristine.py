"""What servers are made from: fresh files, out of their reach, and the manifests that these are checked against.

Everything is below the pool's folder, which only root may enter.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ApplyError, TestbedError
from testbed.pool.server import manifest
from testbed.pool.server.maker import IMAGE, PRISTINE, program_paths
from testbed.pool.server.serving import files_of, program_of
from testbed.runtime.base import UNPRIVILEGED_ID

if TYPE_CHECKING:
    from testbed.pool.daemon.world import World


def lay_out(pool: World) -> None:
    """Make all of it, before any server has run."""
    top = pool.folder / PRISTINE
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(mode=0o700)
    address = str(pool.service.address)
    for server in pool.layout.servers:
        folder = str(pool.lab.node_folder(server))
        root = top / server
        root.mkdir()
        for path, content in files_of(server, folder, address, pool.spec, pool.lab.plan.seed).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        for path, folders, files in os.walk(root):
            for name in (*folders, *files):
                os.chown(f"{path}/{name}", UNPRIVILEGED_ID, UNPRIVILEGED_ID)
                os.chmod(f"{path}/{name}", 0o755 if name in folders else 0o644)
        manifest.save(manifest.make(root), top / f"{server}.json", server)
    known, about = _image(pool)
    manifest.save(known, pool.folder / IMAGE, about)


def spoil_files(pool: World, server: str) -> str:
    """Change a byte of what this server alone is made from."""
    files = sorted(path for path in (pool.folder / PRISTINE / server).rglob("*") if path.is_file())
    path = next(path for path in files if path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    return str(path)


def spoil_image(pool: World, server: str) -> str:
    """Change the image of a container behind the engine's back, in the layer that has its ``/etc/hostname``'s folder.

    It hits everybody who uses the image: only for one that was made for it. TestbedError where that cannot be done.
    """
    from testbed.runtime import engine

    image = pool.lab.node(server).image
    if image is None:
        raise TestbedError("the image of all nodes is not spoilt", remedy="give the pool an image of its own")
    found = engine.get(f"/images/{image}/json")
    layer = Path(found["GraphDriver"]["Data"]["UpperDir"]) if found else None
    if layer is None or not layer.is_dir():
        raise TestbedError(f"the layers of image {image} cannot be found")
    path = next((path for path in sorted(layer.rglob("*")) if path.is_file() and not path.is_symlink()), None)
    if path is None:
        raise TestbedError(f"the last layer of image {image} has no file")
    path.write_bytes(path.read_bytes() + b"\n")
    return str(path)


def _image(pool: World) -> tuple[manifest.Manifest, str]:
    """The manifest of what servers run beside their files, and the image's id."""
    first = pool.layout.servers[0]
    if pool.lab.node(first).runtime != "container":
        paths = program_paths(program_of(first, pool.spec, str(pool.service.address)))
        if not paths:
            raise ApplyError("the program that it should run is missing", where=f"node {first}")
        return manifest.make_of(Path("/"), paths), ""
    from testbed.pool.server.container import image_manifest
    from testbed.runtime import engine
    from testbed.runtime.container import container_name

    found = engine.get(f"/containers/{container_name(pool.lab.id, first)}/json")
    if found is None or not found["State"]["Running"]:
        raise ApplyError("its container is gone", where=f"node {first}")
    return image_manifest(int(found["State"]["Pid"])), str(found["Image"])
