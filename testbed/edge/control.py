"""Changing the campus' routers and redirector while they run: where users of a provider are sent."""

from __future__ import annotations

import os
import signal
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.edge import redirector, rulesets
from testbed.edge.plan import names
from testbed.edge.plan.world import Network, Site, World
from testbed.edge.webserver import PAGE
from testbed.errors import TestbedError
from testbed.lab.state import write_atomically
from testbed.measure.probes.http import http_get
from testbed.net import ruleset
from testbed.runtime.base import UNPRIVILEGED_ID, Process, wait_all_gone

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


def bypass(lab: Lab, world: World, isp: Network, on: bool) -> None:
    """Whether new connections of a provider's users go on to the sites themselves instead of to the redirector."""
    if world.spec.redirect.variant == "pbr":
        verb = ["del"] if on else ["replace"]
        via = [] if on else ["via", str(isp.listener.ip)]
        command = ["ip", "route", *verb, "default", *via, "table", str(isp.table)]
        done = lab.exec(names.INNER, command)
        if done.returncode and not on:
            lab.exec(names.INNER, command, check=True)
        return
    chain = f"chain ip {rulesets.TABLE} {rulesets.chain_of(isp.name)}"
    rule = "" if on else f"add rule {chain.removeprefix('chain ')} {rulesets.hand_over(isp)}\n"
    ruleset.run(lab.namespace(names.INNER), f"flush {chain}\n{rule}", f"node {names.INNER}")


def send_to(lab: Lab, world: World, isp: str, way: str) -> None:
    """Have the redirector send users of ``isp`` to the addresses in ``way``: a new table, and a graceful reload."""
    path = lab.node_folder(names.REDIRECTOR) / f"{isp}.sites"
    write_atomically(path, redirector.places(world.sites, isp, {isp: way}))
    os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    reload(lab, isp)


def reload(lab: Lab, isp: str) -> None:
    """Have a listener's nginx read its configuration again; connections that it has are served to their end."""
    master(lab, isp).signal(signal.SIGHUP)


def master(lab: Lab, isp: str) -> Process:
    """The nginx of a provider's listener. TestbedError if none was started."""
    name = redirector.service_of(isp).name
    try:
        return lab.services(names.REDIRECTOR)[name][0]
    except KeyError:
        raise TestbedError(f"the redirector has no {name}", remedy="it is there in mode `redirect`") from None


def location(lab: Lab, listener: IPv4Address, site: Site, port: int) -> str:
    """Where an address and port at the redirector send who asks for a site's page; else what came of asking."""
    url = f"http://{site.host}:{port}{PAGE}"
    answer = http_get(lab, names.INNER, url, follow=False, timeout=5, address=str(listener))
    return answer.headers.get("location", answer.outcome)


def sends_to(lab: Lab, world: World, isp: str, way: str) -> bool:
    """Whether the redirector sends all new users of ``isp`` to the addresses in ``way``.

    A reload has nginx take connections by the old table for a tenth of a second more, beside the new one.
    """
    site = world.sites[0]
    wanted = redirector.place(site, way, site.public[way]) + PAGE
    if location(lab, world.by_name[isp].listener.ip, site, site.port) != wanted:
        return False
    return len([pid for pid in children(master(lab, isp).pid) if "shutting down" not in _title(pid)]) == 1


def children(pid: int) -> list[int]:
    """The processes that one has started and that are there."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "shutting down"


def end_orphans(lab: Lab, world: World, timeout: float = 2.0) -> None:
    """End workers whose master was killed: they serve on by the table of then, and hold the address that a new master
    needs. WaitTimeout if one does not go."""
    masters = {master(lab, isp.name).pid for isp in world.isps}
    orphans = [
        Process(names.REDIRECTOR, "nginx worker", pid, started, lab.node_folder(names.REDIRECTOR))
        for pid, started in lab.pids(names.REDIRECTOR).items()
        if pid not in masters and _is_orphan(pid, masters)
    ]
    for orphan in orphans:
        orphan.signal(signal.SIGKILL)
    wait_all_gone(orphans, timeout)


def _is_orphan(pid: int, masters: set[int]) -> bool:
    """Whether a process is an nginx without one of ``masters`` above it."""
    try:
        name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return name == "nginx" and int(fields.split()[1]) not in masters


def ruled_nodes(lab: Lab) -> list[str]:
    """The campus' routers that have a ruleset."""
    return [node.name for node in lab.plan.nodes if node.subsystem == "edge" and node.nft]
