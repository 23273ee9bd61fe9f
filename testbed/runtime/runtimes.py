"""The runtimes by name; each is imported when first used, since the engine's library is slow to load."""

from __future__ import annotations

from typing import cast, get_args

from testbed.errors import TestbedError
from testbed.plan.types import RuntimeName
from testbed.runtime.base import Runtime


def check_name(name: str | None) -> RuntimeName | None:
    """``name`` as a runtime's, None as itself; TestbedError otherwise."""
    if name is not None and name not in get_args(RuntimeName):
        raise TestbedError(f"there is no runtime {name!r}", remedy=f"use one of {', '.join(get_args(RuntimeName))}")
    return cast("RuntimeName | None", name)


def make(name: RuntimeName) -> Runtime:
    """A runtime for one lab handle."""
    if name == "container":
        from testbed.runtime.container import ContainerRuntime

        container: Runtime = ContainerRuntime()
        return container
    from testbed.runtime.process import ProcessRuntime

    return ProcessRuntime()
