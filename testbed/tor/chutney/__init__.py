"""Networks that chutney makes, in one node of a lab (https://gitlab.torproject.org/tpo/core/chutney)."""
