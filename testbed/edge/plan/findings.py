"""What is found wrong with an edge while its parts are looked at. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, ip_address

from testbed.edge.plan.world import network_specs
from testbed.edge.spec import EdgeSpec
from testbed.errors import Path, Problem, halves, nearest
from testbed.plan.addresses import parse_network


class Findings:
    """The section, what is known of it so far, and its problems."""

    def __init__(self, spec: EdgeSpec) -> None:
        self.spec = spec
        self.problems: list[Problem] = []
        self.specs = network_specs(spec)
        self.prefixes: dict[str, tuple[IPv4Network, ...]] = {}

    def problem(self, path: Path, message: str, remedy: str, *, other: Path | None = None, key: bool = False) -> None:
        """Note a mistake of the user."""
        self.problems.append(Problem(path, message, remedy, at_key=key, other=other))

    def network_of(self, text: str, path: Path) -> IPv4Network | None:
        """A prefix as written at ``path``; None where it is none, which is noted."""
        try:
            network = parse_network(text)
        except ValueError as error:
            self.problem(path, *halves(error))
            return None
        if not isinstance(network, IPv4Network):
            self.problem(path, f"{text} is IPv6; a campus edge is IPv4 so far", "write a prefix such as 61.128.0.0/16")
            return None
        return network

    def address_of(self, text: str, path: Path) -> IPv4Address | None:
        """An address as written at ``path``, likewise."""
        try:
            address = ip_address(text)
        except ValueError:
            address = None
        if not isinstance(address, IPv4Address):
            self.problem(path, f"{text!r} is not an IPv4 address", "write one such as 61.128.200.2")
            return None
        return address

    def known_name(self, name: str, known: list[str], path: Path, what: str = "network") -> bool:
        """Whether ``name`` is one of ``known``; if not, that is noted."""
        if name in known:
            return True
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        self.problem(path, f"there is no {what} {name!r}", nearest(name, known, f"there are: {shown}"))
        return False
