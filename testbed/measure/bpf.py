"""Capture filters in tcpdump's language (pcap-filter(7)), compiled by libpcap where it is installed."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Any

from testbed.errors import TestbedError

_LIBRARIES = ("libpcap.so.0.8", "libpcap.so.1", "libpcap.so")
_ETHERNET = 1
_WHOLE = 262144
"""Bytes that the filter lets through of a packet that matches: all."""
_NETMASK_UNKNOWN = 0xFFFFFFFF
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_INSTRUCTION = struct.Struct("=HBBI")

Program = list[tuple[int, int, int, int]]
"""Instructions of classic BPF: code, jump if true, jump if false, operand."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def compile_filter(expression: str) -> Program:
    """An expression such as ``tcp port 80`` as instructions. TestbedError if it is wrong, or libpcap is missing."""
    library = _library()
    handle = library.pcap_open_dead(_ETHERNET, _WHOLE)
    if not handle:
        raise TestbedError("libpcap is out of memory")
    program = _Program()
    try:
        if library.pcap_compile(handle, ctypes.byref(program), expression.encode(), 1, _NETMASK_UNKNOWN):
            reason = library.pcap_geterr(handle).decode(errors="replace")
            raise TestbedError(
                f"filter {expression!r}: {reason}",
                remedy="write it as for tcpdump, such as 'tcp port 80 and host 10.0.0.1'",
            )
        raw = ctypes.string_at(program.instructions, program.length * _INSTRUCTION.size)
        library.pcap_freecode(ctypes.byref(program))
    finally:
        library.pcap_close(handle)
    return [_INSTRUCTION.unpack_from(raw, at) for at in range(0, len(raw), _INSTRUCTION.size)]


def attach(opened: socket.socket, program: Program) -> None:
    """Have the kernel pass only what matches to a packet socket."""
    raw = b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(raw, len(raw))
    given = _Filter(len(program), ctypes.addressof(buffer))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(given))


def _library() -> Any:
    for name in _LIBRARIES:
        try:
            library: Any = ctypes.CDLL(name)
        except OSError:
            continue
        library.pcap_open_dead.restype = ctypes.c_void_p
        library.pcap_open_dead.argtypes = [ctypes.c_int, ctypes.c_int]
        library.pcap_compile.argtypes = [
            ctypes.c_void_p,
            ctypes.POINTER(_Program),
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_uint32,
        ]
        library.pcap_geterr.restype = ctypes.c_char_p
        library.pcap_geterr.argtypes = [ctypes.c_void_p]
        library.pcap_freecode.argtypes = [ctypes.POINTER(_Program)]
        library.pcap_close.argtypes = [ctypes.c_void_p]
        return library
    raise TestbedError(
        "a capture filter needs libpcap, which is not installed",
        remedy="install tcpdump (its library does it), or capture without a filter",
    )
