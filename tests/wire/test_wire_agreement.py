"""The core in C decides exactly as the reference model does."""

from __future__ import annotations

import math
import subprocess

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from test_wire_model import any_settings
from wire_traffic import core_command

from testbed.net.wire import protocol
from testbed.net.wire.model import Direction, behaviour
from testbed.net.wire.protocol import Message
from testbed.net.wire.settings import Settings

word = st.integers(0, 2**64 - 1)
step = st.one_of(any_settings, st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 70_000)), max_size=20))


@hypothesis_settings(max_examples=200, deadline=None)
@given(seeds=st.tuples(word, word, word, word), steps=st.lists(step, max_size=12))
def test_c_core_is_the_model(seeds: tuple[int, int, int, int], steps: list[Settings | list[tuple[int, int]]]) -> None:
    """Random settings, changes and frames: equal due times, losses, copies and flipped bits."""
    it = Direction(seeds)
    asked = ["S {} {} {} {}".format(*seeds)]
    wanted: list[str] = []
    time = 0
    for one in steps:
        if isinstance(one, Settings):
            b = behaviour(one)
            words = (b.delay_ns, b.jitter_ns, b.loss, b.enter, b.leave, b.duplicate, b.corrupt, b.burst, b.reorder)
            asked.append(f"B {' '.join(str(int(value)) for value in words)}")
            it.change(b)
            continue
        for wait, length in one:
            time += wait
            asked.append(f"F {time} {length}")
            wanted.append("".join(f"{due} {bit} " for due, bit in it.arrive(time, length)))
    command = [*core_command("c"), "model"]
    done = subprocess.run(command, input="\n".join(asked), capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines() == wanted


@given(one=any_settings, values=st.tuples(word, word, word, word), number=st.integers(0, 2**32 - 1))
def test_messages_survive_packing(one: Settings, values: tuple[int, int, int, int], number: int) -> None:
    """What is packed is unpacked."""
    message = Message(3, number, 7, 1, 2, behaviour(one), values)
    assert protocol.unpack(message.pack()) == message


@given(late=st.lists(st.integers(0, 2**40), min_size=1, max_size=50), share=st.sampled_from([0.5, 0.99, 1.0]))
def test_quantile_bounds_the_lateness(late: list[int], share: float) -> None:
    """The answer is an upper bound, less than twice too high (in whole microseconds)."""
    buckets = [0] * protocol.LATENESS_BUCKETS
    for one in late:
        buckets[min((one // 1000).bit_length(), protocol.LATENESS_BUCKETS - 1)] += 1
    exact = sorted(late)[math.ceil(share * len(late)) - 1] // 1000
    if exact < 1 << (protocol.LATENESS_BUCKETS - 2):
        assert exact < protocol.quantile_us(buckets, share) <= max(1, 2 * exact)
