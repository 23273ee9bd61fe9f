"""What a fault is: its settings, and how to do it, prove it and undo it. One file a fault; each registers itself.

A fault never keeps state in memory that its undoing needs. ``remember`` says, before anything is touched, what ``heal``
has to know; that goes to disk first. So a fault is healed too when the process that injected it was killed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from testbed.errors import Problem, TestbedError, nearest
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Memory = dict[str, Any]
"""What a fault must know to undo itself; plain JSON. Its key ``id`` is the fault's own name in the lab."""


TIMING = frozenset({"fault", "at", "for", "every", "times", "when", "random"})
"""What a timeline says of a fault beside its settings."""


class FaultError(TestbedError):
    """A fault that did not take, or could not be undone."""


class FaultBusy(FaultError):
    """A fault that cannot be injected now, because another one holds what it would change."""

    def __init__(self, what: str, holder: str) -> None:
        """``holder``: id of the other one."""
        super().__init__(what, remedy="heal that one first")
        self.holder = holder


class Fault(BaseModel, ABC):
    """Base of all faults. A subclass that sets ``kind`` is known by that name in topologies and on the command line.

    Settings with these names are checked against the plan: ``node``, ``nodes``, ``groups`` (of nodes), ``link`` (two
    endpoints), ``target`` (a node or an address) and ``service`` (a program of ``node``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str] = ""
    """Its name: lower-case words joined by hyphens, such as ``link-down``."""
    momentary: ClassVar[bool] = False
    """Whether it is over as soon as it has been verified, such as a restart; nothing is left to be healed then."""
    combines: ClassVar[bool] = False
    """Whether it only wraps other faults: usable from Python, not named in topologies."""
    _known: ClassVar[dict[str, type[Fault]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register the subclass."""
        if cls.kind:
            assert cls.combines or not TIMING & set(cls.model_fields), "a timeline has keys of that name"
            Fault._known[cls.kind] = cls

    def check(self, plan: Plan) -> Iterator[Problem]:
        """What of the settings does not fit the plan; paths start at the settings. Pure."""
        from testbed.faults.references import dangling

        yield from dangling(self, plan)

    def claims(self, lab: Lab) -> set[str]:
        """What it changes that no other fault may change meanwhile, in the user's words: ``state of link a--b``.

        Two faults that save, set and restore the same thing would undo each other's work when healed out of order.
        """
        return set()

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
    _import_all()
    return dict(sorted(Fault._known.items()))


@cache
def _import_all() -> None:
    import testbed.faults as package

    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")


def fault_class(kind: str) -> type[Fault]:
    """The fault of that name. TestbedError names the nearest one, or all."""
    if kind in Fault._known:
        return Fault._known[kind]
    faults = known_faults()
    if kind in faults:
        return faults[kind]
    names = [name for name, fault in faults.items() if not fault.combines]
    raise TestbedError(f"there is no fault {kind!r}", remedy=nearest(kind, names, f"faults: {', '.join(names)}"))


def make_fault(kind: str, settings: dict[str, Any]) -> Fault:
    """A fault from its name and settings as a topology or a journal has them. TestbedError says all that is wrong."""
    from pydantic import ValidationError

    from testbed.model.document import Document
    from testbed.model.explain import explain

    made = fault_class(kind)
    try:
        return made.model_validate(settings)
    except ValidationError as error:
        document = Document(data=settings)
        problems = [explain(item, document, made, ()) for item in error.errors(include_url=False)]
        words = "; ".join(f"{problem.message} ({problem.remedy})" for problem in problems)
        raise TestbedError(f"fault {kind}: {words}", remedy=f"it takes: {settings_text(made)}") from None


def settings_text(fault: type[Fault]) -> str:
    """The settings of a fault in a line, last and in brackets those that may be left out."""
    ordered = sorted(fault.model_fields.items(), key=lambda item: not item[1].is_required())
    return ", ".join(name if field.is_required() else f"[{name}]" for name, field in ordered)
