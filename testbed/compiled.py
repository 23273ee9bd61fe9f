"""Programs and libraries in C that come with this package as source: compiled when first needed, and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import TestbedError

COMPILERS = ("cc", "gcc", "clang")
CACHE = Path("/var/lib/testbed/cache")
TIMEOUT = 60


def folders(source: Path) -> tuple[Path, ...]:
    """Where what is made of ``source`` may be kept: beside other compiled files of its package, or where that is not
    writable."""
    return (source.with_name("__pycache__"), CACHE)


def compiled(
    source: Path, stem: str, flags: Sequence[str], within: Sequence[Path], compilers: Sequence[str] = COMPILERS
) -> Path:
    """What ``source`` compiles to, made now unless it has been before, in one of the folders ``within``.

    Its name is ``stem`` and a hash of all that it is made of. TestbedError: there is no compiler, or it failed.
    """
    kind = f"{' '.join(flags)}\0{os.uname().machine}\0".encode()
    name = f"{stem}-{hashlib.sha256(kind + source.read_bytes()).hexdigest()[:16]}"
    for folder in within:
        if os.access(folder / name, os.X_OK):
            return folder / name
    compiler = next((path for word in compilers if (path := shutil.which(word))), None)
    if compiler is None:
        raise TestbedError("there is no C compiler", remedy="apt-get install gcc libc6-dev")
    for folder in within:
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            return _compile(compiler, source, flags, folder / name)
        except OSError:
            continue
    raise TestbedError(f"cannot write to {' or '.join(map(str, within))}", remedy="run as root")


def _compile(compiler: str, source: Path, flags: Sequence[str], target: Path) -> Path:
    handle, fresh = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        done = subprocess.run(
            [compiler, *flags, "-o", fresh, str(source)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
        if done.returncode:
            raise TestbedError(f"{compiler} could not compile {source.name}: {done.stderr.strip()[-500:]}")
        os.chmod(fresh, 0o700)
        os.replace(fresh, target)
    except subprocess.TimeoutExpired as error:
        raise TestbedError(f"{compiler} did not end within {TIMEOUT} s") from error
    finally:
        Path(fresh).unlink(missing_ok=True)
    return target
