"""Where nodes stand in a drawing: trees as rings around their centre, other graphs by stress majorization.

Deterministic; lengths are inches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Graph = Mapping[str, Sequence[str]]
"""Neighbours of each node, each once, in order."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node's position, and the direction (radians) in which there is room for its label."""

    x: float
    y: float
    outward: float


def place_nodes(graph: Graph, edge: float, spacing: float, label: float) -> dict[str, Place]:
    """Places of all nodes.

    ``edge`` is the least length of a link, ``spacing`` the least distance of neighbours, ``label`` the room that a
    node at the rim needs beyond it.
    """
    places: dict[str, Place] = {}
    right = 0.0
    for part in _components(graph):
        inner = {name: [peer for peer in graph[name] if peer in part] for name in graph if name in part}
        tree = sum(len(peers) for peers in inner.values()) // 2 == len(inner) - 1
        placed = _rings(inner, edge, spacing) if tree else _mesh(inner, edge, spacing, label)
        left = min(place.x for place in placed.values())
        shift = right - left if places else 0.0
        places.update({name: Place(p.x + shift, p.y, p.outward) for name, p in placed.items()})
        right = max(place.x for place in places.values()) + edge + 2 * label
    return places


def _components(graph: Graph) -> list[set[str]]:
    found: list[set[str]] = []
    for name in graph:
        if not any(name in part for part in found):
            found.append(set(_distances(graph, name)))
    return found


def _distances(graph: Graph, root: str) -> dict[str, int]:
    """Hops from ``root``, in breadth-first order."""
    hops = {root: 0}
    queue = deque([root])
    while queue:
        name = queue.popleft()
        for peer in graph[name]:
            if peer not in hops:
                hops[peer] = hops[name] + 1
                queue.append(peer)
    return hops


def _centre(graph: Graph) -> str:
    """The middle of a longest path from the best connected node, or that node in a star."""
    hub = max(graph, key=lambda name: len(graph[name]))
    hops = _distances(graph, hub)
    far = max(hops, key=hops.__getitem__)
    from_far = _distances(graph, far)
    other = max(from_far, key=from_far.__getitem__)
    from_other = _distances(graph, other)
    longest = from_far[other]
    middle = [name for name in graph if from_far[name] + from_other[name] == longest]
    return min(middle, key=lambda name: (abs(from_far[name] - from_other[name]), -len(graph[name])))


def _rings(graph: Graph, edge: float, spacing: float) -> dict[str, Place]:
    """A tree: every node on the ring of its depth, in a wedge as wide as its leaves need."""
    root = _centre(graph)
    hops = _distances(graph, root)
    order = list(hops)
    children = {name: [peer for peer in graph[name] if hops[peer] == hops[name] + 1] for name in order}
    leaves: dict[str, int] = {}
    for name in reversed(order):
        leaves[name] = sum(leaves[child] for child in children[name]) or 1
    wedges = {root: (math.pi / 2, 2 * math.pi)}
    for name in order:
        start, width = wedges[name]
        for child in children[name]:
            share = width * leaves[child] / leaves[name]
            wedges[child] = (start, share)
            start -= share  # clockwise
    radii = [0.0]
    for depth in range(1, max(hops.values()) + 1):
        narrow = min(wedges[name][1] for name in order if hops[name] == depth)
        radii.append(max(radii[-1] + edge, spacing / min(narrow, math.pi)))
    places = {}
    for name in order:
        start, width = wedges[name]
        angle = start - width / 2
        radius = radii[hops[name]]
        places[name] = Place(radius * math.cos(angle), radius * math.sin(angle), angle)
    return places


def _mesh(graph: Graph, edge: float, spacing: float, label: float) -> dict[str, Place]:
    """A graph with circles: its leaves fan out around the rest, which is placed by stress majorization."""
    core = {name: [peer for peer in peers if len(graph[peer]) > 1] for name, peers in graph.items() if len(peers) > 1}
    fans = {name: [peer for peer in graph[name] if peer not in core] for name in core}
    reach = {name: max(edge, spacing * len(fan) / math.pi) if fan else 0.0 for name, fan in fans.items()}
    room = {name: (reach[name] + label) * min(len(fan) / 4, 1.0) for name, fan in fans.items()}
    positions = _stress(core, edge, room)
    middle = np.mean(list(positions.values()), axis=0)
    places: dict[str, Place] = {}
    for name, (x, y) in positions.items():
        taken = sorted(math.atan2(positions[peer][1] - y, positions[peer][0] - x) for peer in core[name])
        start, gap = _widest_gap(taken, math.atan2(y - middle[1], x - middle[0]))
        places[name] = Place(float(x), float(y), start + gap / 2)
        step = min(gap / (len(fans[name]) + 1), math.pi / 3)
        first = start + gap / 2 - step * (len(fans[name]) - 1) / 2
        for number, leaf in enumerate(fans[name]):
            angle = first + number * step
            radius = max(reach[name], spacing / step)
            places[leaf] = Place(float(x + radius * math.cos(angle)), float(y + radius * math.sin(angle)), angle)
    return places


def _widest_gap(angles: Sequence[float], outward: float) -> tuple[float, float]:
    """(start, width) of the widest sector between ``angles``; among like ones the one that faces ``outward``."""
    sectors = []
    for index, start in enumerate(angles):
        width = (angles[(index + 1) % len(angles)] - start) % (2 * math.pi) or 2 * math.pi
        facing = math.cos(start + width / 2 - outward)
        sectors.append((round(width, 1), facing, start, width))
    _, _, start, width = max(sectors)
    return start, width


def _stress(graph: Graph, edge: float, room: Mapping[str, float]) -> dict[str, NDArray[np.float64]]:
    """Positions whose distances come close to the lengths of shortest paths (SMACOF; Gansner, Koren, North 2004)."""
    names = list(graph)
    number = {name: index for index, name in enumerate(names)}
    ideal = np.full((len(names), len(names)), np.inf)
    np.fill_diagonal(ideal, 0.0)
    for name, peers in graph.items():
        for peer in peers:
            ideal[number[name], number[peer]] = edge + 0.6 * (room[name] + room[peer])
    for via in range(len(names)):  # Floyd and Warshall
        ideal = np.minimum(ideal, ideal[:, via, None] + ideal[None, via, :])
    weights = np.divide(1.0, ideal**2, out=np.zeros_like(ideal), where=ideal > 0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.pinv(laplacian)
    angles = 2 * np.pi * np.arange(len(names)) / len(names)
    points = np.column_stack([np.cos(angles), np.sin(angles)]) * ideal.max() / 2
    for _ in range(300):
        apart = np.linalg.norm(points[:, None] - points[None, :], axis=2)
        ratio = np.divide(ideal * weights, apart, out=np.zeros_like(apart), where=apart > 1e-9)
        moved = inverse @ ((np.diag(ratio.sum(axis=1)) - ratio) @ points)
        settled = np.abs(moved - points).max() < 1e-4
        points = moved
        if settled:
            break
    return {name: points[index] for name, index in number.items()}
