"""Limits of an nginx on what one client may ask, and its log for the ban list. Pure text for the ``http`` block."""

from __future__ import annotations

from testbed.edge.filters.spec import FilterSpec
from testbed.model.quantities import SECOND

REFUSED = 429
"""Too Many Requests (RFC 6585, 4)."""
BAD = frozenset({400, 408, 413, 414, 421, REFUSED, 431, 444, 494})
"""What answers count against a client. Who hangs up in the middle of a request is in the log with 400 or 408."""
SOCKET = "ban.sock"
"""In the node's folder: where the ban agent hears the log."""


def of_server(spec: FilterSpec | None) -> list[str]:
    """For a web server: requests a second, connections at once, pauses in the middle of a request, and the log."""
    if spec is None:
        return []
    return [
        f"limit_req_zone $binary_remote_addr zone=requests:2m rate={spec.requests}r/s;",
        f"limit_req zone=requests burst={spec.requests} nodelay;",
        f"limit_req_status {REFUSED};",
        "limit_conn_zone $binary_remote_addr zone=held:2m;",
        f"limit_conn held {spec.held};",
        f"limit_conn_status {REFUSED};",
        *_pauses(spec),
        *_log(spec),
    ]


def of_redirector(spec: FilterSpec | None) -> list[str]:
    """For the redirector: pauses and the log, from which the ban agent counts its requests.

    nginx applies no limits of its own to what is answered by ``return``: that comes before they are looked at.
    """
    return [] if spec is None else [*_pauses(spec), *_log(spec)]


def _pauses(spec: FilterSpec) -> list[str]:
    seconds = spec.slow // SECOND
    return [
        f"client_header_timeout {seconds}s;",
        f"client_body_timeout {seconds}s;",
        f"send_timeout {seconds}s;",
        "reset_timedout_connection on;",
    ]


def _log(spec: FilterSpec) -> list[str]:
    """Each answer's client and status to the ban agent, as RFC 3164 datagrams."""
    if not spec.ban.after:
        return []
    return [
        "log_format ban '$remote_addr $status';",
        f"access_log syslog:server=unix:${{dir}}/{SOCKET},nohostname,tag=edge ban;",
    ]
