"""The redirector's nginx: for each provider one master with one worker, and one listening address. Pure text.

Which network a user is in has been decided by the routers; here the Host header alone decides. A site that is not in
the table gets 421 (RFC 9110, 15.5.20), so that nothing a client writes becomes part of the address it is sent to but
the path and query, which follow after host and port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from testbed.edge.plan.world import Network, PublicAddress, Site, World
from testbed.model.quantities import SECOND
from testbed.plan.types import Service

UNPRIVILEGED_PORTS = ("net/ipv4/ip_unprivileged_port_start", "0")


def service_of(isp: str) -> Service:
    """The nginx for users of one provider."""
    return Service(name=f"nginx-{isp}", argv=("nginx", "-p", "${dir}", "-c", f"${{dir}}/{isp}.conf", "-e", "stderr"))


def configuration(
    isp: str,
    listener: IPv4Address,
    ports: Iterable[int],
    status: int,
    folder: str = "${dir}",
    extra: Iterable[str] = (),
) -> str:
    """The nginx.conf of one provider's listener; it includes ``ISP.sites``. ``extra``: directives for ``http``."""
    kept = 308 if status in (301, 308) else 307
    temporary = "".join(
        f"  {kind}_temp_path {folder}/temp-{isp};\n" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    listens = "".join(f"    listen {listener}:{port} backlog=4096;\n" for port in ports)
    further = "".join(f"  {line}\n" for line in extra)
    return f"""\
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pcre_jit on;
pid {folder}/{isp}.pid;
error_log stderr warn;
events {{
  worker_connections 8000;
}}
http {{
  access_log off;
  server_tokens off;
  default_type text/plain;
{temporary}{further}  map_hash_max_size 65536;
  map_hash_bucket_size 512;
  # where a site is in this provider's network
  map $host:$server_port $place {{
    include {folder}/{isp}.sites;
  }}
  map $request_method $kept {{
    default 1;
    GET 0;
    HEAD 0;
  }}
  server {{
{listens}    server_name "";
    keepalive_requests 10000;
    lingering_time 5s;
    lingering_timeout 1s;
    if ($place = "") {{
      return 421;
    }}
    # the target is raw, as the client wrote it, without scheme and host; it must never go on with the host before it
    if ($request_uri !~ ^/) {{
      return {kept} $place/$request_uri;
    }}
    if ($kept) {{
      return {kept} $place$request_uri;
    }}
    return {status} $place$request_uri;
  }}
}}
"""


def places(sites: Iterable[Site], isp: str, instead: Mapping[str, str] | None = None) -> str:
    """``ISP.sites``: the table from host and port to the address in the provider's network.

    ``instead`` names for a provider the one whose addresses its users are sent to at the moment.
    """
    chosen = (instead or {}).get(isp, isp)
    lines = []
    for site in sites:
        if chosen in site.public:
            lines.append(f"{site.host}:{site.port} {place(site, chosen, site.public[chosen])};")
    return "\n".join([*lines, ""])


def place(site: Site, isp: str, public: PublicAddress) -> str:
    """Scheme, host and port that users of a provider are sent to."""
    address, port = public
    if isp in site.https:
        return f"https://{site.https[isp]}" + ("" if port == 443 else f":{port}")
    return f"http://{address}" + ("" if port == 80 else f":{port}")


def files(world: World, isp: Network, extra: Iterable[str] = ()) -> dict[str, str]:
    """The configuration of one provider's nginx, by file name."""
    redirect = world.spec.redirect
    if redirect.keep is not None:  # private: a cache that users of several networks share has no use for it
        extra = [*extra, f'add_header Cache-Control "private, max-age={redirect.keep // SECOND}";']
    conf = configuration(isp.name, isp.listener.ip, world.ports, redirect.status, extra=extra)
    return {f"{isp.name}.conf": conf, f"{isp.name}.sites": places(world.sites, isp.name)}
