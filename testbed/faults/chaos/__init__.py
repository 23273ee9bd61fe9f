"""Random faults, what must hold after them, and the smallest schedule that breaks it (docs/chaos.md)."""
