"""Runs a command under an installed kernel in QEMU, on this machine's own files: read-only, with an overlay in memory.

Slower than User-Mode-Linux (the processor is emulated), but a distribution's whole kernel, with nftables. It needs
root, has no network, and only the job's folder is writable.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from initrd import modules_for, write_initrd
from machine import HERE, Outcome, confined, find, run_as_program, run_machine, write_command

PROGRAM = f"qemu-system-{platform.machine()}"
_PROGRAMS = {PROGRAM: "qemu-system-x86", "virtiofsd": "qemu-system-common or virtiofsd", "busybox": "busybox-static"}
_MODULES = ("virtio_pci", "virtiofs", "overlay")


def kernels() -> list[str]:
    """The releases of the installed kernels, newest last, those for clouds (small, quick to start) after the others."""
    found = [path.name.removeprefix("vmlinuz-") for path in Path("/boot").glob("vmlinuz-*")]
    usable = [name for name in found if Path("/lib/modules", name, "modules.dep").exists()]
    return sorted(usable, key=lambda name: ("cloud" in name, name))


def qemu_lack() -> str:
    """Why nothing can be run under QEMU here; empty if it can."""
    if platform.machine() != "x86_64":
        return f"not tried on {platform.machine()}"
    if os.geteuid() != 0:
        return "needs root"
    for program, package in _PROGRAMS.items():
        if find(program) is None:
            return f"there is no {program} (Debian package {package})"
    return "" if kernels() else "no kernel is installed in /boot (Debian package linux-image-cloud-amd64)"


def run_in_qemu(
    command: Sequence[str],
    job: Path,
    *,
    seconds: float = 300,
    memory_mib: int = 2048,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run ``command`` in the project's folder as the kernel's root. The folder ``job`` is writable, at the same path.

    Raises WaitTimeout if it has not ended after ``seconds``, TestbedError if the kernel ended before the command did.
    """
    write_command(job, command, environment or {})
    release = kernels()[-1]
    programs = {name: find(name) or name for name in _PROGRAMS}
    write_initrd(job / "initrd", Path(programs["busybox"]), HERE / "qemu_init.sh", modules_for(release, _MODULES))
    arguments = {
        "machine": "q35",
        "cpu": "max",
        # One processor: with two, of which the host may stop one for long, packets overtake each other in the receiver.
        "smp": "1",
        "accel": "tcg",
        "m": f"{memory_mib}M",
        "object": f"memory-backend-memfd,id=memory,size={memory_mib}M,share=on",
        "numa": "node,memdev=memory",
        "kernel": f"/boot/vmlinuz-{release}",
        "initrd": f"{job}/initrd",
        "append": f"job={job} console=ttyS0 quiet panic=-1 mitigations=off nokaslr",
        "chardev": f"socket,id=root,path={job}/root.sock",
        "device": "vhost-user-fs-pci,queue-size=1024,chardev=root,tag=root",
        "nic": "none",
        "display": "none",
        "serial": "stdio",
        "monitor": "none",
    }
    words = [word for key, value in arguments.items() for word in (f"-{key}", value)]
    start = [str(HERE / "qemu_run.sh"), str(job), programs["virtiofsd"], programs[PROGRAM], *words, "-no-reboot"]
    return run_machine(confined(job, start), job, seconds, f"QEMU with {release}")


if __name__ == "__main__":
    run_as_program(run_in_qemu, qemu_lack)
