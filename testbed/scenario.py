"""Running a scenario: one call with plain arguments, a run folder as the result."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.plan.types import RuntimeName
from testbed.progress import Progress, Silent

if TYPE_CHECKING:
    from testbed.net.impair import EngineName


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario."""

    status: int
    """pytest's exit status, or ``pytest_plugin.EXIT_INVALID``; 0 is good."""
    runs: tuple[Path, ...]
    """Folders of the runs that it recorded."""


def folders() -> list[Path]:
    """Where scenarios are looked for: the current folder's ``scenarios``, then the project's own."""
    return [Path("scenarios"), Path(__file__).resolve().parent.parent / "scenarios"]


def scenarios() -> dict[str, Path]:
    """All scenarios by name."""
    found: dict[str, Path] = {}
    for folder in reversed(folders()):
        found.update({path.stem: path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")})
    return found


def find(name: str) -> Path:
    """The file of the scenario ``name``, which may be a path itself."""
    if name.endswith(".py") and Path(name).is_file():
        return Path(name)
    known = scenarios()
    if name not in known:
        raise TestbedError(f"there is no scenario {name!r}", remedy=f"scenarios: {', '.join(sorted(known)) or 'none'}")
    return known[name]


def description(name: str) -> str:
    """What a scenario says of itself, its topology, and its parameters with their defaults."""
    path = find(name)
    try:
        scope = runpy.run_path(str(path))
    except Exception as error:  # whatever a module that somebody writes can raise
        raise TestbedError(f"{type(error).__name__}: {error}", where=str(path), remedy="run it to see more") from error
    marks = scope.get("pytestmark", ())
    known: Mapping[str, Any] = next(
        (mark.kwargs for mark in (marks if isinstance(marks, list) else [marks]) if mark.name == "testbed"), {}
    )
    text = (scope["__doc__"] or "").strip()
    lines = [*([text, ""] if text else []), f"file      {path}", f"topology  {known.get('topology', '')}"]
    lines += [f"--param   {key}={default}" for key, default in known.get("parameters", {}).items()]
    return "\n".join(lines)


def run(
    name: str,
    *,
    topology: Path | None = None,
    repeats: int = 1,
    seed: int | None = None,
    runtime: RuntimeName | None = None,
    impair: EngineName | None = None,
    parameters: Mapping[str, str] | None = None,
    runs: Path | None = None,
    keep: bool = False,
    pcap: Sequence[str] = (),
    fidelity: bool = True,
    cold: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Run a scenario to its end. Failures are in the outcome and in the run; TestbedError if there is no such one."""
    import pytest

    from testbed import pytest_plugin

    path = find(name).resolve()
    if topology is not None and not topology.is_file():
        raise TestbedError(f"there is no topology {str(topology)!r}", remedy="check the path")
    arguments = [str(path), f"--rootdir={path.parent}", "--quiet", "--no-header", "--capture=no", "--tb=short"]
    arguments += ["-p", "no:cacheprovider", f"--testbed-repeats={repeats}"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the command has imported the testbed by then
    arguments += [f"--testbed-topology={topology.resolve()}"] if topology else []
    arguments += [f"--testbed-seed={seed}"] if seed is not None else []
    arguments += [f"--testbed-runtime={runtime}"] if runtime else []
    arguments += [f"--testbed-impair={impair}"] if impair else []
    arguments += [f"--testbed-runs={runs}"] if runs else []
    arguments += ["--testbed-keep"] if keep else []
    arguments += [f"--testbed-pcap={place}" for place in pcap]
    arguments += [] if fidelity else ["--testbed-no-fidelity"]
    arguments += ["--testbed-cold"] if cold else []
    arguments += [f"--testbed-param={key}={value}" for key, value in (parameters or {}).items()]

    class Listening:
        """Hands the progress over and the runs back."""

        recorded: tuple[Path, ...] = ()

        @pytest.hookimpl(trylast=True)
        def pytest_configure(self, config: pytest.Config) -> None:
            pytest_plugin.listen(config, progress or Silent())

        @pytest.hookimpl(trylast=True)
        def pytest_unconfigure(self, config: pytest.Config) -> None:
            self.recorded = tuple(pytest_plugin.recorded_runs(config))

    listening = Listening()
    status = pytest.main(arguments, plugins=[listening])
    return Outcome(int(status), listening.recorded)
