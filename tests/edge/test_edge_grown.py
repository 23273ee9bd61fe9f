"""A campus grown to many sites and prefixes, without running it."""

from __future__ import annotations

from pathlib import Path

from testbed.edge.measure.contest import load
from testbed.edge.measure.scale import grown, sizes
from testbed.edge.plan.check import world_of
from testbed.edge.spec import EdgeSpec
from testbed.plan.load import load_topology

ROOT = Path(__file__).parents[2]


def test_sizes_grow_with_sites_or_with_prefixes() -> None:
    topology, _ = load_topology(ROOT / "topologies" / "campus-scale.yaml")
    spec = topology.sections["edge"]
    assert isinstance(spec, EdgeSpec)
    found = []
    for sites, prefixes in ((100, 40), (200, 40), (100, 80)):
        world, problems = world_of(grown(spec, sites, prefixes))
        assert world is not None, problems
        assert len(world.sites) == sites
        assert sum(len(isp.prefixes) for isp in world.isps) == prefixes
        found.append(sizes(world))
    small, sites, prefixes = found
    table, views = "redirector, table of one provider", "smart DNS, views (estimated from one site)"
    assert 1.9 < sites[table] / small[table] < 2.1
    assert prefixes[table] == small[table]
    assert 1.8 < sites[views] / small[views] < 2.2
    assert 1.8 < prefixes[views] / small[views] < 2.2


def test_every_site_is_asked_for() -> None:
    script = load(["a.test", "b.test"], close=True)
    assert script.count("asked[#asked + 1]") == 2
    assert "close" in script
    assert "close" not in load(["a.test"], close=False)
