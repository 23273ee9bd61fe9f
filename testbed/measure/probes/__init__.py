"""Probes: small measurements made inside a node, one file each.

Each is a function of a lab and node names that returns what it saw. Its sockets are opened in the node's network
namespace, so it needs no program there and works for containers too. With a ``recorder``, such as a run, each call is
an event ``probe`` (how it went, and the CPU time that it cost) and its values are samples.
"""
