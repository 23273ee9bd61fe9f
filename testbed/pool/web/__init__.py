"""A small HTTP server whose connections can go on in another process. Needs Python and its standard library alone.

It is no part of the lab's own process: it is copied into nodes, see ``testbed.pool.lab.fileserver``.
"""
