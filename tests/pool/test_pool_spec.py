"""The section ``pool``: what it refuses, in which words, and what is built from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.model.document import parse_document
from testbed.model.validate import validate
from testbed.pool.agents.build import policy_of, schedule_of, timing_of
from testbed.pool.agents.clock import SECOND
from testbed.pool.agents.competition import CentralController, Competition, NoRotation, RandomChoice, RoundRobin
from testbed.pool.check import problems
from testbed.pool.report.published import DETECTION, EXPERIMENT_1, HORIZON, SERVERS
from testbed.pool.schedule.lfsr import PUBLISHED, Lfsr
from testbed.pool.schedule.scheduler import Due
from testbed.pool.simulation.simulate import simulate
from testbed.pool.spec import PoolSpec, PoolsSpec, server_names


def refusals(pool: str) -> list[str]:
    """What is said about a pool ``dns`` with these keys, each with its place: ``line:column: message | remedy``."""
    document = parse_document(f"name: lab\npool:\n  dns: {{{pool}}}\n")
    assert not document.problems
    validated = validate(document, {"pool": PoolsSpec})
    found = list(validated.problems)
    if not found:
        found = list(problems(validated.topology.sections["pool"]))
    marks = [document.mark(problem.path, problem.at_key) for problem in found]
    return [f"{m.line}:{m.column}: {p.message} | {p.remedy}" for m, p in zip(marks, found, strict=True)]


def pool(**keys: Any) -> PoolSpec:
    return PoolSpec.model_validate(keys)


@pytest.mark.parametrize(
    ("keys", "refusal"),
    [
        ("servers: 1", "`servers`: a pool of 1 has nobody to hand the service over to | it must be at least 2"),
        ("servers: 51", "`servers` is 51 | it must be at most 50"),
        ("timer: 500ms", "`timer` is 500ms, shorter than making a server anew, which takes 1s | make it longer, or"),
        ("timer: 0s", "`timer`: nothing would pass between one and the next | give a time above 0s"),
        (
            "sequence: {period: 10s}, reinitialise: 11s",
            "`period` of `sequence` is 10s, shorter than making a server anew, which takes 11s",
        ),
        (
            "detection: {live: true, period: 10s}, reinitialise: 11s",
            "`period` of `detection` is 10s, shorter than making a server anew",
        ),
        (
            "speed: 60, reinitialise: 2s, sequence: {period: 60s}",
            "at 60 times the speed, making a server anew for 2s takes 120s of the pool's time, longer than `period` of "
            "`sequence`, 60s | at most 30",
        ),
        (
            "speed: 400",
            "at 400 times the speed, making a server anew for 1s takes 400s of the pool's time, longer than",
        ),
        ("speed: 0", "`speed` is 0 | it must be at least 1"),
        ('sequence: {bits: "0120"}', "`bits`: character 3 is '2', which is no bit | write 0 or 1"),
        ("sequence: {bits: [0, 1, 3]}", "`bits`: item 3 is 3, which is no bit | write 0 or 1"),
        ("sequence: {bits: []}", "`bits`: there are no bits | write at least one, 0 or 1"),
        ('detection: {bits: "0x1"}', "`bits`: character 2 is 'x', which is no bit"),
        (
            'sequence: {feedback: "0"}',
            "`feedback`: the zero polynomial feeds nothing back | give taps, such as x^63 + x + 1",
        ),
        ("sequence: {feedback: x^3 + x}", "`feedback`: x^3 + x has no term 1: stage 1 is not tapped"),
        (
            "sequence: {feedback: 63 stages}",
            "`feedback`: '63 stages' is not a term of a polynomial | write terms such as",
        ),
        ('sequence: {feedback: x^4 + x + 1, state: "0000"}', "`state`: the register is all zero, and the sum of zeros"),
        ('sequence: {state: "101"}', "`state`: '101' is no state of 63 stages | write 63 characters 0 or 1"),
        (
            f'sequence: {{feedback: published, state: "{"1" * 63}"}}',
            "the register never leaves this state: every bit is 1 | start it with another one",
        ),
        ('sequence: {bits: "01", file: a.txt}', "`sequence`: it has both `bits` and `file` | leave one of them out"),
        (
            'sequence: {bits: "01", feedback: published}',
            "`sequence`: `feedback` is of a register, and `bits` takes its",
        ),
        ("detection: {period: 60s}", "`detection`: it has no source | give `bits`, `file` or `live: true`"),
        ('detection: {bits: "01", live: true}', "`detection`: it has both `bits` and `live` | leave one of them out"),
        ("scheduler: lottery", "`scheduler` is 'lottery', which is not one of competition, round-robin, random"),
        ("combine: and", "`combine` is 'and', which is not one of or, xor"),
        (
            "drain: 5s",
            "connections are not drained: `connections` is migrate | remove it, or write `connections: drain`",
        ),
        ("timer: 250", "`timer`: '250' has no unit"),
        ("server: 3", "unknown key `server` | did you mean `servers`?"),
    ],
)
def test_refusals(keys: str, refusal: str) -> None:
    said = refusals(keys)
    assert len(said) == 1, said
    position, _, text = said[0].partition(": ")
    assert text.startswith(refusal), said[0]
    assert position.startswith("3:")


def test_a_section_without_pools() -> None:
    assert [p.message for p in problems(PoolsSpec({}))] == ["no pool is named"]


def test_several_mistakes_are_found_at_once() -> None:
    assert len(refusals("timer: 1s, reinitialise: 2s, sequence: {period: 1s}, drain: 1s")) == 3


@pytest.mark.parametrize(
    "keys",
    [
        "",
        "sequence: {}",
        "servers: 2, service: dns, sequence: {period: 10s}, detection: {live: true}, speed: 10",
        "connections: drain, drain: 30s",
        "scheduler: none, timer: 1ms",
        "speed: 60, sequence: {period: 60s}, detection: {bits: [0, 1]}",
    ],
)
def test_what_is_right_is_not_refused(keys: str) -> None:
    assert refusals(keys) == []


def test_a_spec_survives_json() -> None:
    spec = PoolsSpec.model_validate(
        {"dns": {"sequence": {"bits": [0, 1], "period": "30s"}, "detection": {"live": True}}}
    )
    assert PoolsSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_names() -> None:
    assert server_names("dns", pool(servers=3)) == ["dns1", "dns2", "dns3"]


def test_experiment_1_from_a_topology(tmp_path: Path) -> None:
    (tmp_path / "detected.txt").write_text(f"# as published\n{DETECTION}\n")
    schedule, live = schedule_of(pool(detection={"file": "detected.txt"}), 1, tmp_path)
    assert live is None
    assert simulate(SERVERS, schedule, HORIZON).times == EXPERIMENT_1.times


def test_schedules(tmp_path: Path) -> None:
    spec = pool(sequence={"period": "10s"}, detection={"live": True})
    schedule, live = schedule_of(spec, 7, tmp_path)
    bits = Lfsr.seeded((1 << 63) | 3, 7).bits(100).tolist()
    assert schedule.sequence.streams["pseudo-random"].ones(0, 1000 * SECOND).tolist() == [
        10 * SECOND * (k + 1) for k, bit in enumerate(bits) if bit
    ]
    assert live is schedule.sequence.streams["detection"]
    state = "1" + "0" * 62
    schedule, _ = schedule_of(pool(sequence={"feedback": "published", "state": state, "first": "0s"}), 7, tmp_path)
    bits = Lfsr(PUBLISHED, 1).bits(100).tolist()
    assert schedule.sequence.streams["pseudo-random"].ones(-1, 99 * 60 * SECOND).tolist() == [
        60 * SECOND * k for k, bit in enumerate(bits) if bit
    ]
    assert schedule_of(pool(), 7, tmp_path)[0].next(0) == Due(250 * SECOND, "timer")


def test_a_file_with_other_characters_is_refused_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "bits").write_text("01\n0?\n")
    with pytest.raises(TestbedError, match=r"bits:2:2: '\?' is no bit"):
        schedule_of(pool(sequence={"file": "bits"}), 1, tmp_path)


def test_policies_and_patience() -> None:
    kinds = ["competition", "round-robin", "random", "central", "none"]
    made = [type(policy_of(pool(scheduler=kind), ["a", "b"], 1)) for kind in kinds]
    assert made == [Competition, RoundRobin, RandomChoice, CentralController, NoRotation]
    timing = timing_of(pool(speed=60, suspended="20s", without_store="stop"))
    assert (timing.lease, timing.suspended_limit, timing.without_store) == (60 * SECOND, 20 * SECOND, "stop")
    assert timing_of(pool(timer="90s")).suspended_limit == 90 * SECOND
