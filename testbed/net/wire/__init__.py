"""The userspace link engine: delay, jitter, loss and the like where the kernel has no netem.

A link is two persistent TAP devices, one in each node's namespace. One process a lab, the core, carries frames between
them; a supervisor restarts it and answers on a socket in the lab's folder. docs/wire.md tells what it does and carries.
"""
