"""Control ports of any tor: by unix socket or TCP, without authentication or by cookie (control-spec 3.5, 3.24)."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

from testbed.errors import TestbedError
from testbed.tor.control import Control, ControlError

_SERVER = b"Tor safe cookie authentication server-to-controller hash"
_CLIENT = b"Tor safe cookie authentication controller-to-server hash"


def parse_endpoint(text: str) -> Path | tuple[str, int]:
    """The path of a socket, or host and port; TestbedError for neither."""
    host, colon, port = text.rpartition(":")
    if "/" in text or not colon:
        return Path(text)
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
        raise TestbedError(f"{text!r} is no control port", remedy="write HOST:PORT, or the path of a control socket")
    return host.strip("[]"), int(port)


class AnyControl(Control):
    """A control connection to a tor that may listen on TCP and want a cookie."""

    def __init__(
        self,
        node: str,
        where: str,
        *,
        cookie: str = "",
        timeout: float = 5,
        on_gap: Callable[[str], None] | None = None,
    ) -> None:
        self._endpoint = parse_endpoint(where)
        self._cookie = cookie
        super().__init__(node, Path(where), timeout=timeout, on_gap=on_gap)

    def _dial(self) -> socket.socket:
        if isinstance(self._endpoint, Path):
            return super()._dial()
        return socket.create_connection(self._endpoint, self._timeout)

    def _authenticate(self) -> None:
        protocol = str(self._exchange("PROTOCOLINFO 1\r\n"))
        methods = set("".join(re.findall(r"METHODS=(\S+)", protocol)).split(","))
        if "NULL" in methods:
            super()._authenticate()
        elif {"SAFECOOKIE", "COOKIE"} & methods:
            self._show_cookie(protocol, safely="SAFECOOKIE" in methods)
        else:
            raise ControlError(
                f"tor wants to be told a password ({', '.join(sorted(methods))})",
                where=self.node,
                remedy="set CookieAuthentication 1 in its torrc",
            )

    def _show_cookie(self, protocol: str, *, safely: bool) -> None:
        cookie = self._read_cookie(protocol)
        if safely:
            ours = os.urandom(32)
            challenge = str(self._exchange(f"AUTHCHALLENGE SAFECOOKIE {ours.hex()}\r\n"))
            found = re.search(r"SERVERHASH=(\S+) SERVERNONCE=(\S+)", challenge)
            if found is None:
                raise ControlError(f"tor did not answer the challenge: {challenge}", where=self.node)
            theirs = bytes.fromhex(found.group(2))
            if hmac.digest(_SERVER, cookie + ours + theirs, "sha256") != bytes.fromhex(found.group(1)):
                raise self._wrong_cookie()
            cookie = hmac.digest(_CLIENT, cookie + ours + theirs, "sha256")
        if not self._exchange(f"AUTHENTICATE {cookie.hex()}\r\n").is_ok():
            raise self._wrong_cookie()

    def _read_cookie(self, protocol: str) -> bytes:
        told = re.search(r'COOKIEFILE="((?:[^"\\]|\\.)*)"', protocol)
        path = Path(self._cookie or (re.sub(r"\\(.)", r"\1", told.group(1)) if told else ""))
        try:
            cookie = path.read_bytes()
        except OSError as error:
            raise ControlError(
                f"the control cookie cannot be read: {path}: {error.strerror}",
                where=self.node,
                remedy="run as a user who may read it, or name a copy with --cookie",
            ) from error
        if len(cookie) != 32:
            raise ControlError(f"{path} is no control cookie: it has {len(cookie)} bytes, not 32", where=self.node)
        return cookie

    def _wrong_cookie(self) -> ControlError:
        return ControlError(
            "tor does not take the control cookie: it is another tor's, or an old one",
            where=self.node,
            remedy="name the right file with --cookie, or leave that out",
        )


def connect(
    node: str, where: str, *, cookie: str = "", on_gap: Callable[[str], None] | None = None, timeout: float = 5
) -> AnyControl:
    """A control connection; TestbedError says what is wrong with the port, the socket or the cookie."""
    try:
        return AnyControl(node, where, cookie=cookie, on_gap=on_gap, timeout=timeout)
    except ControlError:
        raise
    except OSError as error:
        reason = {ConnectionRefusedError: "nobody listens there", FileNotFoundError: "there is no such socket"}
        why = next((text for kind, text in reason.items() if isinstance(error, kind)), error.strerror or str(error))
        raise TestbedError(
            f"control port {where}: {why}", where=node, remedy="is that tor up, and is this its ControlPort?"
        ) from error


def try_connect(
    node: str, where: str, *, cookie: str = "", on_gap: Callable[[str], None] | None = None
) -> AnyControl | None:
    """A connection, or None while nobody listens there. ControlError if somebody does and refuses us."""
    with contextlib.suppress(OSError):
        return AnyControl(node, where, cookie=cookie, on_gap=on_gap)
    return None
