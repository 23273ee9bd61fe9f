"""An initial RAM disk with busybox, a script as first process, and the modules that this needs."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path

_FILE, _FOLDER, _LINK = 0o100755, 0o040755, 0o120777
_APPLETS = ("mount", "mkdir", "insmod", "chroot", "echo")


def modules_for(release: str, names: Iterable[str]) -> list[Path]:
    """The files of the modules called ``names`` of an installed kernel and of all that they need, in order of loading.

    Those that are built in are left out (modules.dep(5)).
    """
    folder = Path("/lib/modules", release)
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        file, _, others = line.partition(":")
        needs[Path(file).name.partition(".")[0].replace("-", "_")] = [file, *others.split()]
    order: dict[Path, None] = {}
    for name in names:
        for file in reversed(needs.get(name, [])):
            order.setdefault(folder / file)
    return list(order)


def write_initrd(target: Path, busybox: Path, init: Path, modules: list[Path]) -> None:
    """Make the RAM disk: a gzipped cpio archive (the kernel's Documentation/driver-api/early-userspace)."""
    folders = ("bin", "modules", "proc", "dev", "host", "memory")
    files = [(name, _FOLDER, b"") for name in folders]
    files += [("bin/sh", _FILE, busybox.read_bytes())]
    files += [(f"bin/{name}", _LINK, b"sh") for name in _APPLETS]  # the same program by other names
    files.append(("init", _FILE, init.read_bytes()))
    plain = [(path.name.removesuffix(".xz"), _content(path)) for path in modules]
    files += [(f"modules/{name}", _FILE, content) for name, content in plain]
    files.append(("modules/order", _FILE, "".join(f"{name}\n" for name, _ in plain).encode()))
    target.write_bytes(gzip.compress(b"".join(_cpio(files)), 1))


def _content(module: Path) -> bytes:
    data = module.read_bytes()
    return lzma.decompress(data) if module.suffix == ".xz" else data


def _cpio(files: list[tuple[str, int, bytes]]) -> Iterator[bytes]:
    """The "newc" format: a header of hexadecimal numbers, name and content each padded to four bytes."""
    for number, (name, mode, content) in enumerate([*files, ("TRAILER!!!", 0, b"")]):
        fields = [number + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        yield head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
