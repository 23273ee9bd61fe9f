"""What a fault is: its settings, and how to do it, prove it and undo it. One file a fault; each registers itself.

A fault never keeps state in memory that its undoing needs. ``remember`` says, before anything is touched, what ``heal``
has to know; that goes to disk first. So a fault is healed too when the process that injected it was killed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Memory = dict[str, Any]
"""What a fault must know to undo itself; plain JSON."""


class FaultError(TestbedError):
    """A fault that did not take, or could not be undone."""


class Fault(BaseModel, ABC):
    """Base of all faults. A subclass that sets ``kind`` is known by that name in topologies and on the command line."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str] = ""
    """Its name: lower-case words joined by hyphens, such as ``link-down``."""
    _known: ClassVar[dict[str, type[Fault]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register the subclass."""
        if cls.kind:
            Fault._known[cls.kind] = cls

    def remember(self, lab: Lab) -> Memory:
        """What ``heal`` needs to know; changes nothing. FaultError if the fault makes no sense here."""
        return {}

    @abstractmethod
    def inject(self, lab: Lab, memory: Memory) -> None:
        """Do it."""

    @abstractmethod
    def verify(self, lab: Lab, memory: Memory) -> str:
        """Prove by readback or measurement that it took; what was seen. FaultError if it did not take."""

    @abstractmethod
    def heal(self, lab: Lab, memory: Memory) -> None:
        """Undo it. Must work on a fault that was injected half, and on one that is healed already."""

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """Prove that it is undone; what was seen. FaultError says what is left."""
        return ""

    def subject(self) -> str:
        """The node that the fault is about, for the timeline; empty where there is not just one."""
        return str(getattr(self, "node", ""))


def known_faults() -> dict[str, type[Fault]]:
    """All faults by kind; imports every module of this package."""
    import testbed.faults as package

    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(Fault._known.items()))


def make_fault(kind: str, settings: dict[str, Any]) -> Fault:
    """A fault from its name and settings as a topology or a journal has them. TestbedError says what is wrong."""
    from difflib import get_close_matches

    from pydantic import ValidationError

    faults = known_faults()
    if kind not in faults:
        near = get_close_matches(kind, faults, 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"faults: {', '.join(faults)}"
        raise TestbedError(f"there is no fault {kind!r}", remedy=remedy)
    try:
        return faults[kind].model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise TestbedError(
            f"fault {kind}: {where}: {message}", remedy=f"it takes: {settings_text(faults[kind])}"
        ) from None


def settings_text(fault: type[Fault]) -> str:
    """The settings of a fault in a line, those that may be left out in brackets."""
    return ", ".join(name if field.is_required() else f"[{name}]" for name, field in fault.model_fields.items())
