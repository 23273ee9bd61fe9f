"""Work in a thread of its own, and Ctrl-C meanwhile."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

from testbed.net.namespace import in_thread


def test_ctrl_c_at_any_moment_comes_after_the_work() -> None:
    """Never while the thread still works, and never lost."""
    chance, at_work = random.Random(1), threading.Event()

    def work() -> None:
        at_work.set()
        time.sleep(0.0005)
        at_work.clear()

    def press(delay: float) -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted() -> bool:
        try:
            threading.Thread(target=press, args=[chance.uniform(0, 0.001)]).start()
            in_thread(work)
            for _ in range(10_000):  # short sleeps: another thread may have got the signal, which ends none
                time.sleep(0.001)
        except KeyboardInterrupt:
            return True
        return False

    for _ in range(500):
        assert interrupted()
        assert not at_work.is_set()
