"""Public addresses and ports of the sites. Pure."""

from __future__ import annotations

from collections import deque
from ipaddress import IPv4Address

from testbed.edge.plan.findings import Findings
from testbed.edge.plan.world import PublicAddress
from testbed.edge.spec import FIRST_PORT, SiteSpec
from testbed.errors import Path


class Publics:
    """Public addresses and ports of the sites: those that are written, and then the rest in turn."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.found: dict[str, dict[str, PublicAddress]] = {}
        self.owners: dict[tuple[str, PublicAddress], tuple[str, Path]] = {}
        self.next: dict[tuple[str, IPv4Address], int] = {}
        self.waiting: deque[tuple[str, str, IPv4Address]] = deque()

    def take(self, host: str, site: SiteSpec) -> None:
        """What a site says of its public addresses."""
        spec = self.findings.spec
        path: Path = ("edge", "sites", host, "public")
        for isp in site.public:
            self.findings.known_name(isp, list(spec.isps), (*path, isp), "provider")
        lacking = [isp for isp, one in spec.isps.items() if one.public is None and not self._address(site, isp)]
        if lacking:
            message = f"site {host!r} has no public address in {', '.join(map(repr, lacking))}"
            remedy = "add it under `public`, or give the provider a `public` address for all sites"
            self.findings.problem(path[:-1], message, remedy, key=True)
        for isp, one in spec.isps.items():
            written = site.public.get(isp)
            text = (written.address if written else None) or one.public
            if text is None:
                continue
            own = written is not None and written.address is not None
            at = (*path, isp) if own else ("edge", "isps", isp, "public")
            address = self.findings.address_of(text, at)
            if address is None:
                continue
            prefixes = self.findings.prefixes[isp]
            if prefixes and not any(address in prefix for prefix in prefixes):
                message = f"{address} is outside of {isp!r} ({prefixes[0]}{', ...' if len(prefixes) > 1 else ''})"
                self.findings.problem(at, message, f"write an address in {prefixes[0]}")
            elif written is not None and written.port is not None:
                self._own(host, isp, (address, written.port), (*path, isp))
            else:
                self.waiting.append((host, isp, address))

    def _address(self, site: SiteSpec, isp: str) -> str | None:
        written = site.public.get(isp)
        return written.address if written else None

    def _own(self, host: str, isp: str, public: PublicAddress, path: Path) -> None:
        other = self.owners.get((isp, public))
        if other is not None:
            message = f"{public[0]}:{public[1]} of site {host!r} is that of site {other[0]!r} already"
            self.findings.problem(path, message, "give each site its own port", other=other[1])
            return
        self.owners[isp, public] = host, path
        self.found.setdefault(host, {})[isp] = public

    def of(self, host: str) -> dict[str, PublicAddress]:
        """All of a site's, by provider in the order of the topology."""
        while self.waiting:
            name, isp, address = self.waiting.popleft()
            port = self.next.get((isp, address), FIRST_PORT)
            while (isp, (address, port)) in self.owners:
                port += 1
            self.next[isp, address] = port + 1
            if port > 65535:
                self.findings.problem(
                    ("edge", "sites"), f"{address} has no port left for site {name!r}", "add addresses"
                )
                continue
            self._own(name, isp, (address, port), ("edge", "sites", name))
        mine = self.found.get(host, {})
        return {isp: mine[isp] for isp in self.findings.spec.isps if isp in mine}
