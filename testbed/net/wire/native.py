"""The core as a program: core.c where a C compiler is or was, else the one in Python.

Run as ``python -m testbed.net.wire.native`` it compiles ahead of time and says which core labs will use.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed import compiled as compiler
from testbed.errors import TestbedError

SOURCE = Path(__file__).with_name("core.c")
_FLAGS = ("-std=c11", "-O2", "-ffp-contract=off")
_FOLDERS = compiler.folders(SOURCE)
PYTHON = (sys.executable, "-m", "testbed.net.wire.process")
_COMPILERS = compiler.COMPILERS


def command() -> tuple[str, ...]:
    """The command that runs the best core that this machine can have."""
    try:
        return (str(compiled()),)
    except TestbedError:
        return PYTHON


def compiled() -> Path:
    """The program made of core.c, compiled now unless it has been before. TestbedError: no compiler, or it failed."""
    return compiler.compiled(SOURCE, "wire-core", _FLAGS, _FOLDERS, _COMPILERS)


if __name__ == "__main__":
    try:
        print(f"links are carried by {compiled()}")
    except TestbedError as reason:
        print(f"links are carried by the slower core in Python: {reason}")
