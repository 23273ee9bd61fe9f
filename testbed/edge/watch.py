"""The program that looks after a campus edge: ``python -m testbed.edge.watch LAB_FOLDER``, in the inner router.

It asks every provider's router for an echo, out by that provider's border; hears of interfaces that lose their carrier;
asks every listener of the redirector for an answer; starts an nginx that has ended; and finds rulesets of the campus'
routers that lost something. Whatever changes is an event ``edge`` of the lab. Everything runs in one thread.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from testbed.edge import control, redirector, rulesets
from testbed.edge.health import EDUCATION, Probes, ways
from testbed.edge.network import STATE, Edge
from testbed.edge.plan import names
from testbed.edge.plan.world import Network
from testbed.edge.probing import Echo, Question, ping_socket
from testbed.edge.spec import HealthSpec
from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.lab.state import Folder, write_atomically
from testbed.net import readback, ruleset
from testbed.net.namespace import inside
from testbed.net.netlink import in_namespace
from testbed.plan.types import Plan

_LINK_GROUP = 1  # RTMGRP_LINK, rtnetlink(7)
_RULES_EVERY = 1.0
"""Seconds between two looks at the rulesets."""
_SILENCES = 2
"""Questions in a row without answer that make a listener down, at most: each takes as long as two probes."""


class Watch:
    """What is known, and what is done about it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.edge = Edge(lab)
        self.world = self.edge.world
        self.health = self.edge.spec.redirect.health or HealthSpec()
        self.echo = {isp.name: Probes(self.health.misses, self.health.answers) for isp in self.world.isps}
        silences = min(_SILENCES, self.health.misses)
        self.listening = {isp.name: Probes(silences, self.health.answers) for isp in self.world.isps}
        self.carrier = {isp.name: True for isp in self.world.isps}
        self.sent: dict[str, str] = {isp.name: isp.name for isp in self.world.isps}
        self.asked: dict[str, int] = {}
        self.heard: dict[str, int] = {}
        self.questions: dict[str, Question] = {}
        self.selector = selectors.DefaultSelector()
        self.number = 0
        self.stopping = False
        self._open()

    def _open(self) -> None:
        for isp in self.world.isps:
            pinger = inside(self.lab.namespace(names.INNER), ping_socket)
            pinger.connect((str(isp.uplink_router.ip), 0))
            self.selector.register(pinger, selectors.EVENT_READ, self._reader(isp.name, pinger))
        for node in (names.CAMPUS, *(isp.border for isp in self.world.isps)):
            listener = inside(self.lab.namespace(node), _link_socket)
            self.selector.register(listener, selectors.EVENT_READ, self._links_changed(listener))
        for isp in self.world.isps:
            self._hold(isp)

    def run(self) -> None:
        """Work until SIGTERM."""
        self._look_at_carriers()
        self._decide("start")
        self._write()
        next_probe = next_rules = time.monotonic()
        while not self.stopping:
            now = time.monotonic()
            if now >= next_probe:
                self._probe()
                next_probe = max(next_probe + self.health.interval / 1e6, now)
            if now >= next_rules:
                self._check_rules()
                next_rules = now + _RULES_EVERY
            for key, _ in self.selector.select(max(0.0, next_probe - time.monotonic())):
                key.data()

    def _probe(self) -> None:
        """Judge the probes before, and send the next ones."""
        changed = False
        for isp in self.world.isps:
            if isp.name in self.asked:
                changed |= self.echo[isp.name].heard(self.heard.get(isp.name) == self.asked[isp.name])
        self.number = (self.number + 1) % 0x10000
        for key in list(self.selector.get_map().values()):
            reader = key.data
            if isinstance(reader, Echo):
                self.asked[reader.isp] = self.number
                reader.send(self.number)
        for isp in self.world.isps:
            question = self.questions.get(isp.name)
            if question is None or question.over():
                if question is not None:
                    question.close(self.selector)
                    changed |= self.listening[isp.name].heard(question.answered)
                self.questions[isp.name] = Question(self.lab, isp, self.world.ports[0], self.selector)
        if changed:
            self._decide("probes")

    def _reader(self, isp: str, pinger: socket.socket) -> Echo:
        return Echo(isp, pinger, self.heard)

    def _links_changed(self, listener: socket.socket) -> Callable[[], None]:
        def changed() -> None:
            try:
                while listener.recv(65536):
                    pass
            except BlockingIOError:
                pass
            except OSError:
                pass  # more changes than the socket could hold: the state is looked up anyway
            if self._look_at_carriers():
                self._decide("carrier")

        return changed

    def _look_at_carriers(self) -> bool:
        """Whether the carrier of an uplink, or of the cable to its border router, has changed."""
        inner = self._devices(names.CAMPUS)
        changed = False
        for isp in self.world.isps:
            outer = self._devices(isp.border)
            both = [inner.get(isp.name), outer.get(names.UPLINK), outer.get(names.INSIDE)]
            carrier = all(device is not None and device.up and device.carrier for device in both)
            changed |= carrier != self.carrier[isp.name]
            if not carrier:  # a link that comes back shows by its answers that it carries
                self.echo[isp.name].fail()
            self.carrier[isp.name] = carrier
        return changed

    def _devices(self, node: str) -> dict[str, readback.Device]:
        return in_namespace(self.lab.namespace(node), readback.devices)

    def _hold(self, isp: Network) -> None:
        """Hear of the end of a listener's nginx."""
        try:
            descriptor = os.pidfd_open(control.master(self.lab, isp.name).pid)
        except ProcessLookupError:
            self._start_again(isp)
            return

        def ended() -> None:
            self.selector.unregister(descriptor)
            os.close(descriptor)
            self._start_again(isp)

        self.selector.register(descriptor, selectors.EVENT_READ, ended)

    def _start_again(self, isp: Network) -> None:
        service = redirector.service_of(isp.name)
        self._event("redirector", isp.name, message=f"{service.name} has ended and is started again")
        try:
            control.end_orphans(self.lab, self.world)
            self.lab.spawn(names.REDIRECTOR, service)
        except TestbedError as error:
            self._event("redirector", isp.name, message=f"{service.name} does not start: {error.what}")
            self.listening[isp.name].up = False
            self._decide("redirector")
            return
        self._hold(isp)

    def _check_rules(self) -> None:
        for node in control.ruled_nodes(self.lab):
            path, text = self.lab.namespace(node), self.lab.plan.node(node).nft
            try:
                lacks = ruleset.missing(path, text, f"node {node}")
                if node == names.INNER:  # chains of users who are let through are empty on purpose
                    through = {rulesets.chain_of(isp) for isp, way in self.sent.items() if way == EDUCATION}
                    lacks = [what for what in lacks if not any(f"chain {chain} " in what for chain in through)]
                if not lacks:
                    continue
                ruleset.load(path, text, f"node {node}")
                self.lab.event("edge", node, what="rules", lacked=lacks)
                if node == names.INNER:
                    for isp in self.world.isps:
                        if self.sent[isp.name] == EDUCATION:
                            control.bypass(self.lab, self.world, isp, True)
            except (TestbedError, OSError) as error:
                self.lab.event("edge", node, what="rules", message=str(error))

    def _decide(self, reason: str) -> None:
        """Send users by the ways that are best now."""
        links = {isp.name: self.echo[isp.name].up and self.carrier[isp.name] for isp in self.world.isps}
        serving = {isp for isp, probes in self.listening.items() if probes.up}
        wanted = ways(self.world, links, serving, self.edge.spec.redirect.failover)
        for isp in self.world.isps:
            before, way = self.sent[isp.name], wanted[isp.name]
            if before == way:
                continue
            try:
                if way != EDUCATION:
                    control.send_to(self.lab, self.world, isp.name, way)
                if EDUCATION in (before, way):
                    control.bypass(self.lab, self.world, isp, way == EDUCATION)
            except (TestbedError, OSError) as error:
                self._event("way", isp.name, message=str(error))
                continue
            self.sent[isp.name] = way
            self._event("way", isp.name, way=way, before=before, reason=reason, link=links[isp.name])
        self._write()

    def _write(self) -> None:
        write_atomically(self.lab.node_folder(names.INNER) / STATE, json.dumps(self.sent))

    def _event(self, what: str, isp: str, **detail: object) -> None:
        self.lab.event("edge", self.world.by_name[isp].border, what=what, network=isp, **detail)


def _link_socket() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    opened.bind((0, _LINK_GROUP))
    return opened


def main() -> None:
    """Watch the lab whose folder is named."""
    folder = Folder(Path(sys.argv[1]).name)
    record = folder.read()
    if record is None:
        raise SystemExit(f"there is no lab in {sys.argv[1]}")
    watch = Watch(Lab(folder, record, Plan.model_validate_json(folder.plan.read_text())))

    def stop(*_: object) -> None:
        watch.stopping = True

    signal.signal(signal.SIGTERM, stop)
    watch.run()


if __name__ == "__main__":
    main()
