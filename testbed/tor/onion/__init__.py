"""Onion services with several instances behind one address: start, publish, stop, leave."""
