"""The core as a program: core.c where a C compiler is or was, else the one in Python.

Run as ``python -m testbed.net.wire.native`` it compiles ahead of time and says which core labs will use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from testbed.errors import TestbedError

SOURCE = Path(__file__).with_name("core.c")
_FLAGS = ("-std=c11", "-O2", "-ffp-contract=off")
_FOLDERS = (Path(__file__).with_name("__pycache__"), Path("/var/lib/testbed/cache"))
"""Where the program may be kept: beside other compiled files of this package, or where that is not writable."""
PYTHON = (sys.executable, "-m", "testbed.net.wire.process")
_COMPILERS = ("cc", "gcc", "clang")
TIMEOUT = 60


def command() -> tuple[str, ...]:
    """The command that runs the best core that this machine can have."""
    try:
        return (str(compiled()),)
    except TestbedError:
        return PYTHON


def compiled() -> Path:
    """The program made of core.c, compiled now unless it has been before. TestbedError: no compiler, or it failed."""
    source = SOURCE.read_bytes()
    kind = f"{' '.join(_FLAGS)}\0{os.uname().machine}\0".encode()
    name = f"wire-core-{hashlib.sha256(kind + source).hexdigest()[:16]}"
    for folder in _FOLDERS:
        if os.access(folder / name, os.X_OK):
            return folder / name
    compiler = next((path for word in _COMPILERS if (path := shutil.which(word))), None)
    if compiler is None:
        raise TestbedError("there is no C compiler", remedy="apt-get install gcc libc6-dev")
    for folder in _FOLDERS:
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            return _compile(compiler, folder / name)
        except OSError:
            continue
    raise TestbedError(f"cannot write to {' or '.join(map(str, _FOLDERS))}", remedy="run as root")


def _compile(compiler: str, target: Path) -> Path:
    handle, fresh = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        done = subprocess.run(
            [compiler, *_FLAGS, "-o", fresh, str(SOURCE)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
        if done.returncode:
            raise TestbedError(f"{compiler} could not compile {SOURCE.name}: {done.stderr.strip()[-500:]}")
        os.chmod(fresh, 0o700)
        os.replace(fresh, target)
    except subprocess.TimeoutExpired as error:
        raise TestbedError(f"{compiler} did not end within {TIMEOUT} s") from error
    finally:
        Path(fresh).unlink(missing_ok=True)
    return target


if __name__ == "__main__":
    try:
        print(f"links are carried by {compiled()}")
    except TestbedError as reason:
        print(f"links are carried by the slower core in Python: {reason}")
