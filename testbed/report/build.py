"""Run folder to report: core sections and those of plugins, in one self-contained HTML file."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from testbed.measure.files import StoreError, give_to_invoker, store_error, write_atomically
from testbed.measure.reader import RunReader
from testbed.measure.validity import Verdict, verdict
from testbed.report import core
from testbed.report.blocks import Figure, Maker, Section, Text, makers
from testbed.report.figures import save, style

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class _Drawn:
    """A figure as the template shows it."""

    svg: Markup
    name: str
    caption: str
    width: int
    """Of the drawing, CSS pixels."""
    kind: str = "figure"


def build_report(run_path: Path, output: Path | None = None) -> Path:
    """Write the report of the run at ``run_path``, also of one that is still going on or was killed.

    The file is ``report.html`` in the run folder unless ``output`` names another (or a folder for it); figures go into
    ``figures`` beside it as SVG and PNG. What stood there before is replaced. Raises TestbedError for a folder that is
    no run or one that cannot be written. A plugin that fails costs its own section only.
    """
    run = RunReader(run_path)
    target = _target(run.path, output)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, target) from error
    with style():
        sections = _sections(run)
        shown = [(section.title, _blocks(section, target.parent / "figures")) for section in sections]
    write_atomically(target, _render(run, verdict(run), shown))
    give_to_invoker(target)
    return target


def _target(run_path: Path, output: Path | None) -> Path:
    if output is None:
        return run_path / "report.html"
    return output / "report.html" if output.is_dir() or not output.suffix else output


def _sections(run: RunReader) -> list[Section]:
    sections = list(core.summary(run))
    for name, maker in {**makers(), **core.MEASURED}.items():
        sections.extend(_made(name, maker, run))
    return [*sections, *core.course(run), *core.failures(run), *core.environment(run)]


def _made(name: str, maker: Maker, run: RunReader) -> Sequence[Section]:
    try:
        return maker(run)
    except Exception as error:  # whatever a plugin does, the rest of the report is worth having
        return [Section(f"{name}: this section could not be made", [_failure(error)])]


def _blocks(section: Section, folder: Path) -> list[object]:
    return [_drawn(block, folder) if isinstance(block, Figure) else block for block in section.blocks]


def _drawn(figure: Figure, folder: Path) -> _Drawn | Text:
    try:
        drawing = figure.draw()
        svg = save(drawing, figure.name, folder)
    except StoreError:
        raise
    except Exception as error:  # a figure is drawn only now; see _made
        return _failure(error)
    markup = Markup(svg)  # noqa: S704 - made here; what it says is drawn as paths
    return _Drawn(markup, figure.name, figure.caption, round(96 * drawing.get_figwidth()))


def _failure(error: Exception) -> Text:
    return Text("".join(traceback.format_exception(error)), kind="error")


def _render(run: RunReader, found: Verdict, sections: list[tuple[str, list[object]]]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        run=run,
        title=str(run.manifest.get("title") or run.manifest.get("scenario") or run.path.name),
        verdict=found,
        one_repeat=core.repeats(run.steps()) == 1,
        sections=sections,
        css=Markup((_FOLDER / "report.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
    )
