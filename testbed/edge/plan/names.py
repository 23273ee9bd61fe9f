"""Names of the nodes and interfaces that an edge brings."""

from __future__ import annotations

CAMPUS = "campus"
"""The campus router."""
INNER = "inner"
"""The inner router, which tells users' networks apart by their source addresses."""
REDIRECTOR = "redirector"
NAME_SERVER = "ns"
"""Where the authority for the sites' names runs, on the campus."""

UPLINK = "uplink"
"""A border router's interface to its network."""
INSIDE = "campus"
"""A border router's interface to the campus."""
SITES = "sites"
"""A web server's interface."""


def border(network: str) -> str:
    """The campus' border router at a network."""
    return f"border-{network}"


def client(network: str, number: int) -> str:
    """A user, counted from 1."""
    return f"{network}-{number}"


def resolver(network: str) -> str:
    """The network's resolver."""
    return f"{network}-dns"


def mirror(network: str) -> str:
    """The mirror in a network, in mode `cdn`."""
    return f"{network}-mirror"
