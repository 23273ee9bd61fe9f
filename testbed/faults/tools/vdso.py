"""Shifting the clock that a running process sees, by changing its own copy of the kernel's vDSO (vdso(7)).

Programs ask the time of the vDSO, a few functions that the kernel maps into every process. A debugger may write there,
and the kernel then gives the process a copy of the page; nobody else sees it. The new code makes the system call and
adds a constant to the wall clock. All other clocks are left alone, so time-outs keep their length.

The process must not be inside these functions meanwhile: it is stopped, and looked at where each thread stands.
The process keeps running with the same code after a fork, and has the kernel's own again after an exec.
"""

from __future__ import annotations

import platform
import signal
import struct
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed.errors import WaitTimeout
from testbed.faults.base import FaultError
from testbed.faults.tools import programs
from testbed.runtime.base import start_time

_DYNSYM = 11
_SECOND_US, _SECOND_NS = 10**6, 10**9


@dataclass(frozen=True, slots=True)
class Image:
    """The vDSO of this kernel."""

    text: bytes
    functions: dict[str, tuple[int, int]]
    """Offset and size of each function."""


@cache
def image() -> Image:
    """The vDSO as our own process has it, unchanged. FaultError on another processor than x86-64."""
    if platform.machine() != "x86_64":
        raise FaultError(f"clocks can be shifted on x86-64 only, and this is {platform.machine()}")
    start, end = _mapping("self")
    text = _read("self", start, end - start)
    return Image(text, _symbols(text))


def shift(pid: int, microseconds: int) -> None:
    """Shift the wall clock of a process by so much against the true one. FaultError says why it cannot be done."""
    _write_functions(pid, _code(microseconds))


def restore(pid: int) -> None:
    """Give a process the true clock again; one that has it already is left alone."""
    if is_shifted(pid):
        whole = image()
        _write_functions(pid, {name: whole.text[at : at + size] for name, (at, size) in whole.functions.items()})


def is_shifted(pid: int) -> bool:
    """Whether the process has other code in its vDSO than the kernel gave it. False when it is gone."""
    try:
        start, end = _mapping(pid)
        return _read(pid, start, end - start) != image().text
    except (ProcessLookupError, FileNotFoundError):
        return False


def reads(pid: int, microseconds: int) -> bool:
    """Whether the process has just the code that ``shift`` writes."""
    whole = bytearray(image().text)
    for name, code in _code(microseconds).items():
        at, _ = image().functions[name]
        whole[at : at + len(code)] = code
    start, end = _mapping(pid)
    return _read(pid, start, end - start) == whole


def _code(microseconds: int) -> dict[str, bytes]:
    """The new functions, System V calling convention: arguments in rdi and rsi, result in rax. A system call changes
    rax, rcx and r11 only."""
    seconds, rest = divmod(microseconds, _SECOND_US)
    if not -(2**31) <= seconds < 2**31:
        raise FaultError("a clock can be shifted by 68 years at most")
    return {
        "clock_gettime": _with_fraction(228, "rsi", seconds, rest * 1000, _SECOND_NS, wall_clock_only=True),
        "gettimeofday": _with_fraction(96, "rdi", seconds, rest, _SECOND_US, wall_clock_only=False),
        "time": _time(seconds),
    }


def _with_fraction(call: int, where: str, seconds: int, fraction: int, full: int, *, wall_clock_only: bool) -> bytes:
    """``call``, then seconds and a fraction of one added to the structure at register ``where``, with carry."""
    base = {"rsi": 6, "rdi": 7}[where]
    add = b"".join(
        (
            b"\x48\x81" + bytes([0x00 | base]) + struct.pack("<i", seconds),  # add qword [base], seconds
            b"\x48\x8b" + bytes([0x48 | base, 8]),  # mov rcx, [base+8]
            b"\x48\x81\xc1" + struct.pack("<i", fraction),  # add rcx, fraction
            b"\x48\x81\xf9" + struct.pack("<i", full),  # cmp rcx, full
            b"\x7c\x0a",  # jl over the carry
            b"\x48\x81\xe9" + struct.pack("<i", full),  # sub rcx, full
            b"\x48\xff" + bytes([base]),  # inc qword [base]
            b"\x48\x89" + bytes([0x48 | base, 8]),  # mov [base+8], rcx
        )
    )
    done = b"\xc3"  # ret
    choose = b"\x48\x85\xff\x74"  # test rdi; je ret: the structure may be left out
    if wall_clock_only:  # CLOCK_REALTIME is 0, CLOCK_REALTIME_COARSE 5
        choose = b"\x85\xff\x74\x05\x83\xff\x05\x75"  # test edi; je add; cmp edi, 5; jne ret
    choose += bytes([len(add)])
    failed = b"\x85\xc0\x75" + bytes([len(choose) + len(add)])  # test eax; jne ret
    return b"\xb8" + struct.pack("<i", call) + b"\x0f\x05" + failed + choose + add + done


def _time(seconds: int) -> bytes:
    return b"".join(
        (
            b"\xb8\xc9\x00\x00\x00\x0f\x05",  # mov eax, 201; syscall
            b"\x48\x05" + struct.pack("<i", seconds),  # add rax, seconds
            b"\x48\x85\xff\x74\x03\x48\x89\x07\xc3",  # test rdi; je ret; mov [rdi], rax; ret
        )
    )


def _write_functions(pid: int, code: dict[str, bytes]) -> None:
    whole = image()
    for name, text in code.items():
        if name not in whole.functions or len(text) > whole.functions[name][1]:
            raise FaultError(f"this kernel's vDSO has no room to shift `{name}`")
    start, end = _mapping(pid)
    if end - start != len(whole.text):
        raise FaultError(f"process {pid} has another vDSO than ours; is it a 32-bit program?")
    was_stopped = programs.state(pid) in ("T", "t")
    try:
        _stop_outside(pid, start, end)
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            for name, text in code.items():
                memory.seek(start + whole.functions[name][0])
                memory.write(text)
    except (ProcessLookupError, FileNotFoundError):
        raise  # it has ended
    except OSError as error:
        raise FaultError(f"the kernel does not let us change process {pid}: {error.strerror}") from error
    finally:
        if not was_stopped:
            _signal(pid, signal.SIGCONT)


def _stop_outside(pid: int, start: int, end: int, timeout: float = 5) -> None:
    """Stop a process while none of its threads is inside the vDSO."""
    deadline = time.monotonic() + timeout
    while True:
        _signal(pid, signal.SIGSTOP)
        places = _places(pid)
        if all(at is not None and not start <= at < end for at in places):
            return
        if time.monotonic() > deadline:
            raise WaitTimeout(f"process {pid} to stand still", timeout, f"threads at {places}")
        if None not in places:  # one is inside: let it go on for a moment
            _signal(pid, signal.SIGCONT)
        time.sleep(0.0005)


def _places(pid: int) -> list[int | None]:
    """The instruction that each thread of a process will go on with; None for one that runs."""
    found: list[int | None] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            words = (thread / "syscall").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append(None if words[0] == "running" else int(words[-1], 16))
    return found


def _signal(pid: int, number: int) -> None:
    started = start_time(pid)
    if started is not None:
        programs.send({pid: started}, number)


def _mapping(pid: int | str) -> tuple[int, int]:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, _, end = line.split(" ", 1)[0].partition("-")
            return int(start, 16), int(end, 16)
    raise ProcessLookupError(f"process {pid} has no vDSO")


def _read(pid: int | str, start: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(start)
        return memory.read(size)


def _symbols(text: bytes) -> dict[str, tuple[int, int]]:
    """Offset and size of every function of an ELF64 image, by name without the prefix ``__vdso_``."""
    table, entry_size, count = struct.unpack_from("<Q", text, 40)[0], *struct.unpack_from("<HH", text, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", text, table + number * entry_size) for number in range(count)]
    found = {}
    for _, kind, _, _, offset, size, link, _, _, each in sections:
        if kind != _DYNSYM:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, each):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", text, at)
            if info & 0xF == 2 and section:  # a function that is defined
                end = text.index(b"\0", names + name)
                found[text[names + name : end].decode().removeprefix("__vdso_")] = (value, length)
    return {name: found[name] for name in ("clock_gettime", "gettimeofday", "time") if name in found}
