"""Onion services behind one address whose instances have keys of their own: OnionBalance, and several of its kind.

groups       which instances are mixed in which HSDir's descriptor, and with which introduction points; pure
revision     tor's own revision counter for any key; pure
child        the real OnionBalance, with its timers and network constants changed from outside
supervisor   keeps it running when tor restarts
"""
