"""Expansion of ``pool``. Pure; what runs is imported when a lab starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from testbed.errors import Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan
from testbed.pool import check
from testbed.pool.lab import layout
from testbed.pool.spec import PoolsSpec
from testbed.progress import Progress
from testbed.subsystem import ProgramNeed

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

MOST_POOLS = 200


class PoolSubsystem:
    """Rotating server pools."""

    name = "pool"
    after: tuple[str, ...] = ()
    programs = (ProgramNeed("python3", "python3"),)
    spec = PoolsSpec

    def check(self, spec: PoolsSpec, topology: Topology) -> Iterable[Problem]:
        """See ``check``."""
        yield from check.problems(spec)
        if len(spec.root) > MOST_POOLS:
            yield Problem(("pool",), f"there are {len(spec.root)} pools", f"at most {MOST_POOLS}", at_key=True)

    def expand(self, spec: PoolsSpec, topology: Topology, build: PlanBuilder) -> None:
        """See ``layout``."""
        for number, (name, pool) in enumerate(spec.root.items(), 1):
            layout.expand(build, number, name, pool)
        build.section("pool", spec.model_dump(mode="json"))

    def lacks(self, plan: Plan) -> Iterable[tuple[str, str]]:
        """Programs that only some pools need."""
        from shutil import which

        from testbed.pool.server.serving import needs

        named = []
        for name, pool in PoolsSpec.model_validate(plan.sections["pool"]).root.items():
            servers = [plan.node(server) for server in layout.Layout.of(name, pool).servers]
            if any(server.runtime == "process" for server in servers):
                for program, package in needs(pool):
                    if which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") is None:
                        yield f"pool {name} needs the program {program}", f"apt-get install {package}"
            elif pool.service == "dns" and any(server.image is None for server in servers):
                named.append(name)
        if named:
            yield from _old_image(named)

    def start(self, lab: Lab, progress: Progress) -> Any:
        """Start store, dispatcher and agents of every pool; back when each has a server in service."""
        from testbed.pool.lab.pools import Pools

        pools = Pools(lab)
        pools.start(progress)
        return pools

    def attach(self, lab: Lab) -> Any:
        """The pools of a lab that is up already, started or not."""
        from testbed.pool.lab.pools import Pools

        return Pools(lab)


def _old_image(pools: list[str]) -> Iterator[tuple[str, str]]:
    """The image had no knot once; whether there is an image at all, or an engine, is seen to elsewhere."""
    from testbed.runtime import engine, images

    with contextlib.suppress(engine.EngineError):
        if images.state() == "outdated":
            what = f"{images.DEFAULT_IMAGE} was made from another version of images/node"
            yield f"{what}, and may lack the name server of pool {', '.join(pools)}", "run `testbed images build`"


pool = PoolSubsystem()
