"""Live TCP connections, moved from one network namespace to another without the other side noticing."""
