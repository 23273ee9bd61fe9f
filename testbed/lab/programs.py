"""Programs on this machine: whether they are there, and new enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

from testbed.subsystem import ProgramNeed

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs of nodes are looked for, whatever the caller's own path (sudo, cron)."""


def find(program: str) -> str | None:
    """Full path of a program, None if there is none."""
    return shutil.which(program, path=SEARCH_PATH)


@cache
def version(path: str) -> str:
    """The version that a program reports of itself, such as ``0.4.8.10``; empty where it tells none."""
    for option in ("--version", "-v", "-V"):
        try:
            done = subprocess.run(
                [path, option],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        found = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
        if done.returncode == 0 and found:
            return found[0]
    return ""


def at_least(have: str, wanted: str) -> bool:
    """Whether dotted version ``have`` is ``wanted`` or newer; an unknown version is not."""
    return _numbers(have) >= _numbers(wanted)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def lack(need: ProgramNeed) -> tuple[str, str] | None:
    """What is wrong with a program that is needed, and the remedy; None if it will do."""
    path = find(need.program)
    if path is None:
        return f"there is no program {need.program}", f"run `sudo make setup` or `apt-get install {need.package}`"
    if need.least and not at_least(version(path), need.least):
        have = version(path) or "of unknown version"
        return f"{need.program} is {have}; {need.least} or newer is needed", need.remedy or f"upgrade {need.package}"
    return None
