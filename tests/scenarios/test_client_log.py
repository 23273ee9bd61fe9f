"""What is read from a client's own log about its introductions; the lines are tor 0.4.9.11's."""

from __future__ import annotations

import datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.tor.measure.clientlog import Anchor, Mark, condensed, parse

FINGERPRINT = "568CF352D3D0A345D24D66112D03B4B1A288D383"
WAITING = (
    "connection_ap_handshake_attach_circuit(): pending-join circ {0} (id: 57) already here, with intro ack. Stalling."
)
LINES = [
    "handle_introduce_ack_bad(): Received INTRODUCE_ACK nack by "
    f"${FINGERPRINT}~ [MFSitbblpMlQjUk4Vx3L4+SezN+bzanLt8Bo5eOkhb8] at 10.0.0.29. Reason: 1",
    "hs_client_receive_rendezvous2(): Got RENDEZVOUS2 cell from hidden service on circuit 3083930961.",
    "directory_launch_v3_desc_fetch(): Descriptor fetch request for service hIjkT8jdBRxIo1jnNbG6kueVMG6AMZ0hG1Pg3L8nf2U"
    f" with blinded key LQmmuvTVyWwm0og2NIgNbda9laykgaUpIqEGkFdF9ic to directory ${FINGERPRINT}~relay14",
    "client_desc_has_arrived(): Hidden service descriptor is unusable. Closing streams.",
    "client_desc_has_arrived(): Descriptor has arrived. Launching circuits.",
    WAITING.format(3979076496) + " (stream 1 sec old)",
    "rep_hist_note_used_internal(): New port prediction added.",
]


def logged(text: str, moment: str = "02:38:54.850") -> str:
    """A line as it stands in a log."""
    return f"Nov 30 {moment} [info] {text}\n"


def test_marks_are_read() -> None:
    """Each line that matters gives one mark, with the relay or the circuit that it names; others give none."""
    marks = list(parse(map(logged, LINES), Anchor(100.0, 0.0)))
    assert [(mark.what, mark.relay, mark.circuit) for mark in marks] == [
        ("nack", FINGERPRINT, ""),
        ("joined", "", "3083930961"),
        ("fetch", FINGERPRINT, ""),
        ("useless", "", ""),
        ("descriptor", "", ""),
        ("waiting", "", "3979076496"),
    ]


@pytest.mark.parametrize("zone", [-10, -3.5, 0, 5.75, 14])
@pytest.mark.parametrize("late", [-200.0, 0.0, 0.25, 430.0])
@pytest.mark.parametrize("hour", [0, 12, 23])
def test_moments_do_not_depend_on_zone_or_midnight(zone: float, late: float, hour: int) -> None:
    """The log has local time without a date; what counts is how far it is from the anchor."""
    begun = datetime.datetime(2026, 11, 30, hour, 59, 50, tzinfo=datetime.UTC)
    local = begun.astimezone(datetime.timezone(datetime.timedelta(hours=zone))) + datetime.timedelta(seconds=late)
    moment = local.strftime("%H:%M:%S.") + f"{local.microsecond // 1000:03d}"
    (mark,) = parse([logged(LINES[0], moment)], Anchor(5000.0, begun.timestamp()))
    assert mark.t == pytest.approx(5000.0 + late, abs=0.002)


def test_a_long_wait_is_a_stall() -> None:
    """Looks once a second after an acknowledgement become one stall a circuit; a short wait is none."""
    marks = [Mark(float(second), "waiting", circuit="1") for second in range(10, 41)]
    marks += [Mark(12.5, "waiting", circuit="2"), Mark(13.0, "joined", circuit="2"), Mark(42.0, "nack", "F")]
    found = condensed(sorted(marks, key=lambda mark: mark.t))
    assert [(mark.t, mark.what, mark.seconds) for mark in found] == [
        (10.0, "stalled", 31.0),
        (13.0, "joined", 0.0),
        (42.0, "nack", 0.0),
    ]


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from(["waiting", "nack", "joined"]), st.sampled_from("12"))))
def test_condensed_keeps_all_else(rows: list[tuple[float, str, str]]) -> None:
    """Nothing but waits is taken away, and no stall is shorter than it may be."""
    marks = [Mark(t, what, circuit=circuit) for t, what, circuit in sorted(rows)]
    found = condensed(marks)
    assert sorted(m.t for m in found if m.what != "stalled") == sorted(m.t for m in marks if m.what != "waiting")
    assert all(mark.seconds >= 3 for mark in found if mark.what == "stalled")
    assert all(a.t <= b.t for a, b in pairwise(found))
