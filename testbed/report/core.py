"""Sections that every report has: what ran, its course, what failed, on what it ran."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.measure.downloads import Recorded, downloads
from testbed.measure.reader import Event, RunReader, Sample, Step
from testbed.measure.stats import median
from testbed.measure.validity import BUSY, BUSY_SHARE
from testbed.report import fidelity, probes, timeline
from testbed.report.blocks import Block, Facts, Figure, Maker, Preformatted, Section, Table, Text
from testbed.report.figures import GREY, PAGE, PALETTE, drawing, shortened
from testbed.report.numbers import NONE, duration, number, percent, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_MANY = {"download", "fresh", "hsdir", "introduction", "step", "probe", "outage", "fidelity", "fidelity-check"}
"""Kinds of events that have tables of their own."""
_MOST_ROWS = 400

MEASURED: dict[str, Maker] = {
    "faults and availability": timeline.sections,
    "probes": probes.sections,
    "links as measured": fidelity.sections,
}
"""Sections on what any scenario may have measured, by name; each is made only where the run has data for it."""


def repeats(steps: Sequence[Step]) -> int:
    """How often the conditions that were repeated most often were measured; 0 without steps."""
    found: dict[object, set[int]] = defaultdict(set)
    for step in steps:
        found[step.conditions].add(step.repeat)
    return max((len(numbers) for numbers in found.values()), default=0)


def summary(run: RunReader) -> list[Section]:
    """What ran, when, and how it went, in a few lines."""
    manifest, steps, got = run.manifest, run.steps(), downloads(run)
    plan, machine, versions = (manifest.get(key) or {} for key in ("plan", "machine", "versions"))
    facts = [
        ("Scenario", str(manifest.get("scenario", ""))),
        ("Started", _local(manifest.get("started"))),
        ("Length", duration(run.end)),
        ("Status", run.status),
        ("Network", _network(plan)),
        ("Seed", f"{manifest.get('seed')}; plan {str(manifest.get('plan_digest', ''))[:12]}"),
        ("Steps", f"{plural(len(steps), 'step')}, {plural(repeats(steps), 'repeat')} each" if steps else "none"),
    ]
    parameters = manifest.get("parameters") or {}
    if parameters:
        facts.append(("Parameters", ", ".join(f"{name}={value}" for name, value in parameters.items())))
    if got:
        facts.append(("Downloads", _counts(got)))
    facts.append(("CPU of the machine", _cpu(run, steps)))
    facts.append(("Machine", _machine(machine)))
    facts.append(("Programs", _programs(versions)))
    return [Section("Summary", [Facts(facts)])]


def course(run: RunReader) -> list[Section]:
    """The steps one after the other, the machine's load meanwhile, and every other event."""
    steps, busy = run.steps(), run.samples("cpu_busy")
    blocks: list[Block] = []
    if len(busy) > 1:
        caption = "CPU time of the whole machine that was not idle. Steps are shaded."
        blocks.append(Figure("cpu", partial(_draw_busy, busy, steps), caption))
    if steps:
        by_step: dict[str, list[Recorded]] = defaultdict(list)
        for download in downloads(run):
            by_step[download.step].append(download)
        blocks.append(_step_table(steps, by_step, busy))
    events = [event for event in run.events() if event.kind not in _MANY]
    if events:
        blocks.append(_event_table(events))
    return [Section("Course of the run", blocks)] if blocks else []


def failures(run: RunReader) -> list[Section]:
    """What failed, counted by step and listed."""
    got = downloads(run)
    failed = [download for download in got if download.failed]
    told = run.events("failure")
    blocks: list[Block] = [Text(f"{event.node or event.detail.get('test', '')}: {_say(event)}") for event in told]
    if failed:
        blocks += [_outcome_table(got), _failure_table(failed)]
    elif got:
        blocks.append(Text("No download failed."))
    return [Section("Failures", blocks)] if blocks else []


def environment(run: RunReader) -> list[Section]:
    """On what it ran: enough to repeat it."""
    manifest = run.manifest
    versions = manifest.get("versions") or {}
    facts = [(str(name), str(value)) for name, value in versions.items() if value and not isinstance(value, dict)]
    facts += [(f"image {tag}", str(digest)) for tag, digest in (versions.get("images") or {}).items()]
    facts += [(name.replace("_", " "), str(value)) for name, value in (manifest.get("machine") or {}).items()]
    facts += [("impairment engine", str(manifest.get("impairment", "")))]
    facts += [("plan digest (SHA-256)", str(manifest.get("plan_digest", "")))]
    blocks: list[Block] = [Facts(facts)]
    cost = [sample.value for sample in run.samples("sampling_cost")]
    if cost:
        late = [sample.value for sample in run.samples("sampling_late")]
        blocks.append(
            Text(
                f"Sampling itself used {number(1000 * median(cost), 2)} ms of CPU a sample (median) and was at most "
                f"{number(1000 * max(late, default=0.0), 2)} ms late."
            )
        )
    if manifest.get("topology"):
        blocks.append(Preformatted("The topology", str(manifest["topology"])))
    packages = versions.get("packages") or {}
    if packages:
        blocks.append(Preformatted("Python packages", "\n".join(f"{name} {value}" for name, value in packages.items())))
    return [Section("Environment", blocks)]


def _local(started: Any) -> str:
    try:
        return f"{datetime.fromisoformat(str(started)):%Y-%m-%d %H:%M:%S %z}"
    except ValueError:
        return "unknown"


def _network(plan: dict[str, Any]) -> str:
    roles = Counter(str(node.get("role") or node.get("kind", "")) for node in plan.get("nodes", ()))
    text = f"{plan.get('name', '')}: {len(plan.get('nodes', ()))} nodes, {len(plan.get('links', ()))} links"
    return f"{text} ({', '.join(f'{count} {role}' for role, count in roles.items())})" if roles else text


def _machine(machine: dict[str, Any]) -> str:
    memory = float(machine.get("memory_bytes") or 0) / 2**30
    cpus = f"{plural(int(machine.get('cpu_count') or 0), 'CPU')} ({machine.get('cpu_model', '')})"
    return ", ".join([cpus, f"{number(memory)} GiB memory", str(machine.get("system") or "")]).rstrip(", ")


def _programs(versions: dict[str, Any]) -> str:
    names = {"tor": "tor", "nginx": "nginx", "kernel": "Linux", "engine": "container engine", "python": "Python"}
    return ", ".join(f"{shown} {versions[name]}" for name, shown in names.items() if versions.get(name))


def _counts(got: Sequence[Recorded]) -> str:
    failed, cut = sum(download.failed for download in got), sum(download.cut for download in got)
    return f"{sum(download.ok for download in got)} ok, {failed} failed, {cut} cut when a step ended"


def _cpu(run: RunReader, steps: Sequence[Step]) -> str:
    samples = run.samples("cpu_busy")
    inside = [sample.value for sample in samples if any(step.start < sample.t <= step.end for step in steps)]
    values = inside or [sample.value for sample in samples]
    if not values:
        return "not recorded"
    high = sum(value >= BUSY for value in values) / len(values)
    return (
        f"median {percent(median(values))} busy{' during steps' if inside else ''}; {percent(BUSY)} or more in "
        f"{percent(high)} of samples (above {percent(BUSY_SHARE)} in a step, the run is invalid)"
    )


def _draw_busy(busy: Sequence[Sample], steps: Sequence[Step]) -> Drawing:
    figure = drawing(PAGE, 1.9)
    axes = figure.subplots()
    axes.plot([sample.t for sample in busy], [100 * sample.value for sample in busy], color=PALETTE[0], linewidth=0.9)
    axes.axhline(100 * BUSY, color=PALETTE[3], linewidth=0.8, linestyle="--")
    axes.annotate(
        f"{percent(BUSY)}: saturated",
        (1, 100 * BUSY),
        xycoords=("axes fraction", "data"),
        xytext=(-2, -2),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=6.5,
        color=PALETTE[3],
    )
    for step in steps:
        axes.axvspan(step.start, step.end, color=GREY, alpha=0.12, linewidth=0)
        if len(steps) <= 16:
            axes.annotate(
                shortened(step.name),
                (step.start, 101),
                xytext=(1, 1),
                textcoords="offset points",
                fontsize=5.5,
                rotation=35 if len(steps) > 5 else 0,
                color=GREY,
                annotation_clip=False,
            )
    axes.set(xlabel="time since the run's start (s)", ylabel="CPU busy (%)", ylim=(0, 101), xlim=(0, None))
    return figure


def _step_table(steps: Sequence[Step], by_step: dict[str, list[Recorded]], busy: Sequence[Sample]) -> Table:
    rows = []
    for step in steps:
        got = by_step.get(step.name, [])
        values = [sample.value for sample in busy if step.start < sample.t <= step.end]
        rows.append(
            (
                step.name,
                f"{step.start:.1f} s",
                f"{step.seconds:.1f} s" + ("" if step.complete else " (cut)"),
                str(sum(download.ok for download in got)),
                str(sum(download.failed for download in got)),
                str(sum(download.cut for download in got)),
                percent(sum(values) / len(values)) if values else NONE,
            )
        )
    head = ("step", "start", "length", "ok", "failed", "cut", "CPU busy, mean")
    return Table(head, rows, caption="Steps. Downloads that were under way when a step's load ended are cut.")


def _event_table(events: Sequence[Event]) -> Table:
    rows = [(f"{event.t:.3f} s", event.kind, event.node, _say(event)) for event in events[:_MOST_ROWS]]
    if len(events) > _MOST_ROWS:
        rows.append(("", "", "", f"and {len(events) - _MOST_ROWS} more in run.sqlite"))
    return Table(("time", "event", "node", ""), rows, text=(1, 2, 3), folded=f"All other events ({len(events)})")


def _say(event: Event) -> str:
    words = [value if isinstance(value, str) else json.dumps(value) for value in event.detail.values()]
    return ", ".join(f"{key} {word}" if word else key for key, word in zip(event.detail, words, strict=True))


def _outcome_table(got: Sequence[Recorded]) -> Table:
    kinds = Counter(download.outcome for download in got if download.failed)
    by_step: dict[str, Counter[str]] = defaultdict(Counter)
    for download in got:
        by_step[download.step][download.outcome] += 1
    outcomes = [kind for kind, _ in kinds.most_common()]
    rows = [
        (step, str(counts.total()), *(str(counts[outcome]) for outcome in outcomes))
        for step, counts in by_step.items()
        if any(counts[outcome] for outcome in outcomes)
    ]
    return Table(("step", "downloads", *outcomes), rows, caption="Failed downloads by step and outcome.")


def _failure_table(failed: Sequence[Recorded]) -> Table:
    rows = [
        (
            download.step,
            download.client,
            f"{download.started:.2f} s",
            f"{download.ended - download.started:.2f} s",
            download.outcome,
            str(download.bytes),
            download.instance,
        )
        for download in failed[:_MOST_ROWS]
    ]
    head = ("step", "client", "started", "after", "outcome", "bytes", "instance")
    shown = f"the first {_MOST_ROWS} of {len(failed)}" if len(failed) > _MOST_ROWS else str(len(failed))
    return Table(head, rows, text=(0, 1, 4, 6), folded=f"Failed downloads ({shown})")
