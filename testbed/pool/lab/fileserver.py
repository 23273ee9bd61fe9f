"""The file server that pools run where connections are to be moved: its files, and how it is started in a node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from testbed.plan.types import Service
from testbed.pool import web

PACKAGE = "web"
CONTROL = "migrate.sock"
"""Its control socket, in the node's folder."""
LOG = "requests.jsonl"
"""Its log, in the node's folder: for each request monotonic time ``t``, ``client``, ``port``, ``method``, ``path``."""


@cache
def files() -> dict[str, str]:
    """The program, by paths within the node's folder."""
    folder = Path(str(web.__file__)).parent
    return {f"{PACKAGE}/{path.name}": path.read_text() for path in sorted(folder.glob("*.py"))}


def service(
    server: str,
    listen: Sequence[str] = ("0.0.0.0:80",),
    *,
    root: str = "${dir}/www",
    uploads: str = "${dir}/uploads",
    rate: int = 0,
) -> Service:
    """The program that serves ``root``; ``uploads``: where files that clients send are kept, empty for nowhere.

    ``rate``: most bytes a second that each client gets; 0: as many as it can. The second folder is made if it is
    missing.
    """
    words = ["python3", "-m", PACKAGE, "--name", server, "--root", root]
    words += [word for address in listen for word in ("--listen", address)]
    words += ["--control", f"${{dir}}/{CONTROL}", "--log", f"${{dir}}/{LOG}"]
    words += ["--uploads", uploads] if uploads else []
    words += ["--rate", str(rate)] if rate else []
    return Service(name="web", argv=tuple(words))
