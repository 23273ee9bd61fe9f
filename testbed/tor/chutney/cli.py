"""Chutney's command line, of which there are two.

The older one is a script in a checkout, called with a verb and the file of a network. The newer one is installed with
pip, and a checkout has a launcher of it; its ``init`` takes a network by name, and the other verbs go by what that has
left in the data folder. Both take their settings from the environment, by the same names.
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
INSTALL = f"or install it with pip in a virtual environment, and set {VARIABLE} to the folder of that"
START_TIME = 300
"""Seconds that chutney waits for its network; its own 60 or 120 are often too short (see its issue 40022)."""

_FOLDERS = ("networks", "lib/chutney/networks", "lib/chutney/data/networks")
"""Where checkouts keep their networks, by age."""
_OURS = frozenset((VARIABLE, "CHUTNEY_DATA_DIR", "CHUTNEY_CONFIG_PHASE", "CHUTNEY_LAUNCH_PHASE"))
_PLACES = ("chutney", "bin/chutney")
"""Where the program is in a checkout or the folder of an installation, and in a virtual environment."""
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
        **_base(),
        "CHUTNEY_LISTEN_ADDRESS": "127.0.0.1",
        "CHUTNEY_DNS_CONF": "/dev/null",
        "CHUTNEY_START_TIME": str(START_TIME),
        **kept,
        "CHUTNEY_DATA_DIR": str(data),
        "CHUTNEY_CONFIG_PHASE": str(phase),
        "CHUTNEY_LAUNCH_PHASE": str(phase),
    }


def find() -> Chutney:
    """The chutney that CHUTNEY_PATH names: a checkout, the environment where it is installed, or the program itself.

    TestbedError if there is none, or the unprivileged user cannot run it.
    """
    named = os.environ.get(VARIABLE, "")
    if not named:
        raise TestbedError(
            f"chutney is needed, and {VARIABLE} is not set",
            where="tor",
            remedy=f"clone {HOME} and set {VARIABLE} to the folder; {INSTALL}",
        )
    path = Path(named).resolve()
    candidates = [path / place for place in _PLACES] if path.is_dir() else [path]
    program = next((each for each in candidates if each.is_file() and os.access(each, os.X_OK)), None)
    if program is None:
        raise TestbedError(
            f"{VARIABLE} is {named}, and there is no program {' or '.join(map(str, candidates))}",
            where="tor",
            remedy=f"set it to a checkout of {HOME}; {INSTALL}",
        )
    return recognise(program, _help(program))


def recognise(program: Path, text: str) -> Chutney:
    """Which of the two it is, by what it says about itself (``--help``)."""
    if re.search(r"^Usage: chutney \{command", text, re.MULTILINE):
        return Chutney(program, "script", dict(_files(program.parent)))
    if re.search(r"^usage: chutney ", text, re.MULTILINE) and re.search(r"\binit\b", text):
        return Chutney(program, "command", {name: name for name in names(_help(program, "init"))})
    said = " / ".join([line for line in text.splitlines() if line.strip()][-4:]) or "nothing"
    raise TestbedError(
        f"{program} is no chutney that is known here; it says: {said[:300]}",
        where="tor",
        remedy=f"get one from {HOME}; {INSTALL}",
    )


def names(text: str) -> list[str]:
    """The networks that ``chutney init --help`` offers."""
    found = re.search(r"--net\s+\{([^}]*)\}", text)
    return [] if found is None else found.group(1).split(",")


def _files(checkout: Path) -> Iterator[tuple[str, str]]:
    for folder in _FOLDERS:
        if (checkout / folder).is_dir():
            for path in sorted((checkout / folder).iterdir()):
                if path.is_file() and not path.name.startswith((".", "__")):
                    yield path.name, str(path)


def _base() -> dict[str, str]:
    """What each run of chutney has in its environment. PYTHON is what the launcher of a checkout goes by."""
    own = {"PYTHON": os.environ["PYTHON"]} if "PYTHON" in os.environ else {}
    return {
        "PATH": _SEARCH_PATH,
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **own,
    }


def _help(program: Path, *verb: str) -> str:
    """What the program says to ``--help``, as the user that will run it. TestbedError if that one cannot run it."""
    # setpriv still has root's capabilities when it executes a program; env, between, has none, nor will chutney have
    argv = ["env", str(program), *verb, "--help"]
    if os.geteuid() == 0:
        identity = str(UNPRIVILEGED_ID)
        argv = ["setpriv", "--reuid", identity, "--regid", identity, "--clear-groups", "--no-new-privs", "--", *argv]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**_base(), "COLUMNS": "200"},
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TestbedError(f"{program} cannot be run: {error}", where="tor") from error
    if "Permission denied" in done.stderr:
        raise TestbedError(
            f"user {UNPRIVILEGED_ID}, who runs chutney, may not read {program} or its Python",
            where="tor",
            remedy="give everybody the right to read their folders and to enter those above, or put them elsewhere",
        )
    return done.stdout + done.stderr
