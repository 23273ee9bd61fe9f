"""The runtimes by name; each is imported when first used, since the engine's library is slow to load."""

from __future__ import annotations

from testbed.runtime.base import Runtime


def make(name: str) -> Runtime:
    """A runtime for one lab handle."""
    if name == "container":
        from testbed.runtime.container import ContainerRuntime

        return ContainerRuntime()
    from testbed.runtime.process import ProcessRuntime

    return ProcessRuntime()
