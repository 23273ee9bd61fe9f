"""Packet filter rules of a namespace, applied in one transaction by libnftables inside this process.

A call takes some tenths of a millisecond; the program ``nft`` takes 4 to 20. Where the library cannot be loaded, the
program is used.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from functools import cache
from pathlib import Path

from testbed.errors import ApplyError, PreflightError
from testbed.net import namespace

_LIBRARY = "libnftables.so.1"


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_free.argtypes = [ctypes.c_void_p]
    for name in ("nft_ctx_buffer_error", "nft_ctx_buffer_output"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    for name in ("nft_ctx_get_error_buffer", "nft_ctx_get_output_buffer"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
        getattr(library, name).restype = ctypes.c_char_p
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library


class Nft:
    """The packet filter of one namespace, held until ``close``. Calls may come from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._library = _library()
        self._context: int | None = None
        if self._library is not None:
            # a context keeps the netlink socket that it opens first, and with it the namespace of that moment
            self._context = namespace.inside(path, self._open)

    def _open(self) -> int:
        library = self._library
        assert library is not None
        context = library.nft_ctx_new(0)
        if not context:
            raise OSError(f"{_LIBRARY} gives no context")
        library.nft_ctx_buffer_error(context)
        library.nft_ctx_buffer_output(context)
        return int(context)

    def run(self, commands: str) -> str:
        """Apply ``commands``, all or nothing, and return what they print. ApplyError with the library's words."""
        with self._lock:
            if self._library is None or self._context is None:
                return self._program(commands)
            status = self._library.nft_run_cmd_from_buffer(self._context, commands.encode())
            said = self._library.nft_ctx_get_error_buffer(self._context).decode(errors="replace").strip()
            printed = self._library.nft_ctx_get_output_buffer(self._context).decode(errors="replace")
        if status:
            raise ApplyError(f"the packet filter refused its rules: {said}", where=str(self._path))
        return str(printed)

    def _program(self, commands: str) -> str:
        try:
            done = subprocess.run(
                ["nsenter", f"--net={self._path}", "--", "nft", "-f", "-"],
                input=commands,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        except FileNotFoundError as error:
            raise PreflightError(f"there is no program {error.filename}", remedy="install `nftables`") from error
        if done.returncode:
            raise ApplyError(f"the packet filter refused its rules: {done.stderr.strip()}", where=str(self._path))
        return done.stdout

    def close(self) -> None:
        """Give the library's context back. Twice is fine."""
        with self._lock:
            if self._library is not None and self._context is not None:
                self._library.nft_ctx_free(self._context)
            self._context = None
            self._library = None
