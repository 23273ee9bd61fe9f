"""The programs of a pool that run outside of its servers: agents, store, the dispatcher's control, a controller."""
