"""Chutney's command line, of which there are two.

The older one is a script in a checkout, called with a verb and the file of a network. The newer one can be installed;
its ``init`` takes a network by name, and the other verbs go by what that has left in the data folder. Both take their
settings from the environment, by the same names.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import TestbedError
from testbed.runtime.base import UNPRIVILEGED_ID

VARIABLE = "CHUTNEY_PATH"
HOME = "https://gitlab.torproject.org/tpo/core/chutney"
START_TIME = 300
"""Seconds that chutney waits for its network; its own 60 or 120 are often too short (see its issue 40022)."""

_FOLDERS = ("networks", "lib/chutney/networks", "lib/chutney/data/networks")
"""Where checkouts keep their networks, by age."""
_OURS = frozenset((VARIABLE, "CHUTNEY_DATA_DIR", "CHUTNEY_CONFIG_PHASE", "CHUTNEY_LAUNCH_PHASE"))
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Chutney:
    """A chutney that can be run."""

    program: Path
    kind: Literal["script", "command"]
    networks: Mapping[str, str]
    """Argument that stands for a network, by its name."""

    def require(self, network: str) -> None:
        """TestbedError if there is no such network."""
        if network not in self.networks:
            raise TestbedError(
                f"chutney has no network {network!r}",
                where="tor",
                remedy=f"{self.program} has {', '.join(sorted(self.networks)) or 'none'}",
            )

    def begin(self, network: str) -> list[list[str]]:
        """What to run before any verb."""
        return [] if self.kind == "script" else [[str(self.program), "init", "--net", self.networks[network]]]

    def command(self, verb: str, network: str) -> list[str]:
        """The command line of a verb such as ``configure``."""
        argv = [str(self.program), verb]
        return [*argv, self.networks[network]] if self.kind == "script" else argv


def environment(data: Path, phase: int = 1) -> dict[str, str]:
    """Settings of a run in the folder ``data``. A user's own CHUTNEY_ variables go before ours, where they may."""
    kept = {key: value for key, value in os.environ.items() if key.startswith("CHUTNEY_") and key not in _OURS}
    return {
        "CHUTNEY_LISTEN_ADDRESS": "127.0.0.1",
        "CHUTNEY_DNS_CONF": "/dev/null",
        "CHUTNEY_START_TIME": str(START_TIME),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **kept,
        "CHUTNEY_DATA_DIR": str(data),
        "CHUTNEY_CONFIG_PHASE": str(phase),
        "CHUTNEY_LAUNCH_PHASE": str(phase),
    }


def find() -> Chutney:
    """The chutney that CHUTNEY_PATH names: a checkout, a folder with the installed program, or the program itself.

    TestbedError if there is none, or the unprivileged user cannot run it.
    """
    named = os.environ.get(VARIABLE, "")
    if not named:
        raise TestbedError(
            f"chutney is needed, and {VARIABLE} is not set",
            where="tor",
            remedy=f"clone {HOME} and set {VARIABLE} to the folder",
        )
    path = Path(named).resolve()
    program = path / "chutney" if path.is_dir() else path
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise TestbedError(
            f"{VARIABLE} is {named}, and there is no program {program}",
            where="tor",
            remedy=f"set it to a checkout of {HOME}, or to the folder of the installed program",
        )
    return recognise(program, _help(program))


def recognise(program: Path, text: str) -> Chutney:
    """Which of the two it is, by what it says about itself (``--help``)."""
    if re.search(r"^Usage: chutney \{command", text, re.MULTILINE):
        return Chutney(program, "script", dict(_files(program.parent)))
    if re.search(r"^usage: chutney ", text, re.MULTILINE) and re.search(r"\binit\b", text):
        return Chutney(program, "command", {name: name for name in names(_help(program, "init"))})
    said = " / ".join(text.split("\n")[-4:]).strip(" /") or "nothing"
    raise TestbedError(
        f"{program} is no chutney that is known here; it says: {said[:300]}", where="tor", remedy=f"get one from {HOME}"
    )


def names(text: str) -> list[str]:
    """The networks that ``chutney init --help`` offers."""
    found = re.search(r"--net\s+\{([^}]*)\}", text)
    return [] if found is None else ["".join(name.split()) for name in found.group(1).split(",")]


def _files(checkout: Path) -> Iterator[tuple[str, str]]:
    for folder in _FOLDERS:
        if (checkout / folder).is_dir():
            for path in sorted((checkout / folder).iterdir()):
                if path.is_file() and not path.name.startswith((".", "__")):
                    yield path.name, str(path)


def _help(program: Path, *verb: str) -> str:
    """What the program says to ``--help``, as the user that will run it. TestbedError if that one cannot run it."""
    argv = [str(program), *verb, "--help"]
    if os.geteuid() == 0:
        identity = str(UNPRIVILEGED_ID)
        argv = ["setpriv", "--reuid", identity, "--regid", identity, "--clear-groups", "--no-new-privs", "--", *argv]
    variables = {"PATH": _SEARCH_PATH, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=variables,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TestbedError(f"{program} cannot be run: {error}", where="tor") from error
    if "Permission denied" in done.stderr:
        raise TestbedError(
            f"user {UNPRIVILEGED_ID}, who runs chutney, may not read {program}",
            where="tor",
            remedy="give everybody the right to read the folder and to enter those above it, or put it elsewhere",
        )
    return done.stdout + done.stderr
