"""The web servers of the campus: nginx that serves the same two files for every site, and logs who came."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from testbed.edge.plan.world import World
from testbed.edge.spec import ServerSpec
from testbed.measure.content import content_blocks
from testbed.plan.types import Service
from testbed.runtime.base import UNPRIVILEGED_ID

SERVICE = Service(name="nginx", argv=("nginx", "-p", "${dir}", "-c", "${dir}/nginx.conf", "-e", "stderr"))
PAGE, BULK = "/page", "/bulk"


def configuration(world: World, server: str, extra: Iterable[str] = ()) -> str:
    """The nginx.conf of a server: one listening socket a port, whichever site's address was asked."""
    ports = dict.fromkeys(site.port for site in world.sites if site.server == server) or {80: None}
    spec = world.spec.campus.servers[server]
    return _configuration(ports, server, extra, (spec or ServerSpec()).connections)


def mirror_configuration(world: World, mirror: str, extra: Iterable[str] = ()) -> str:
    """The same for a server that has every site."""
    return _configuration(world.ports, mirror, extra, ServerSpec().connections)


def _configuration(ports: Iterable[int], server: str, extra: Iterable[str], slots: int) -> str:
    listens = "".join(f"    listen {port};\n" for port in ports)
    temporary = "".join(
        f"  {kind}_temp_path ${{dir}}/temp;\n" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    further = "".join(f"  {line}\n" for line in extra)
    return f"""\
daemon off;
worker_processes 1;
pid ${{dir}}/nginx.pid;
error_log stderr warn;
events {{
  worker_connections {slots};
}}
http {{
  log_format site escape=json '{{"t":$msec,"client":"$remote_addr","site":"$server_addr","port":$server_port,'
    '"host":"$http_host","uri":"$request_uri","status":$status,"bytes":$body_bytes_sent}}';
  access_log ${{dir}}/access.log site;
  server_tokens off;
  default_type application/octet-stream;
  sendfile on;
{temporary}{further}  server {{
{listens}    root ${{dir}}/www;
    add_header X-Server {server} always;
  }}
}}
"""


def write_content(folder: Path, world: World) -> None:
    """Write the files that a server serves, of the lengths that the topology says."""
    for path, size in ((PAGE, world.spec.content.page), (BULK, world.spec.content.bulk)):
        target = folder / "www" / path.lstrip("/")
        target.parent.mkdir(exist_ok=True)
        with target.open("wb") as file:
            for block in content_blocks(size, 0):
                file.write(block)
        os.chown(target.parent, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
