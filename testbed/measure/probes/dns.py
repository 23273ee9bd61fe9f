"""One DNS query, by a client of its own (RFC 1035), asked from inside a node."""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.measure.probes.base import Recorder, Target, connect, in_node, locate_port, outcome_of, recording

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28}
_NAMES = {number: name for name, number in TYPES.items()}
_CODES = {0: "ok", 1: "formerr", 2: "servfail", 3: "nxdomain", 4: "notimp", 5: "refused"}
_HEADER = struct.Struct("!HHHHHH")
_RECORD = struct.Struct("!HHIH")
_ANSWER, _TRUNCATED, _RECURSION = 0x8000, 0x0200, 0x0100


@dataclass(frozen=True, slots=True)
class Record:
    """One resource record of the answer."""

    name: str
    type: str
    ttl: int
    """Seconds."""
    data: str
    """An address, a name, or text; hexadecimal for types that are not known here."""


@dataclass(frozen=True, slots=True)
class DnsResult:
    """How a query went."""

    source: str
    server: str
    name: str
    type: str
    started: float
    """``time.monotonic()``."""
    outcome: str
    """``ok`` (with or without records), ``nxdomain``, ``servfail``, ``refused`` and so on; ``timeout``,
    ``unreachable``; ``malformed``."""
    seconds: float | None
    """To the answer, whatever it said; None where there was none."""
    records: tuple[Record, ...] = ()
    tcp: bool = False
    """Whether the answer was too long for UDP."""

    @property
    def addresses(self) -> list[str]:
        """The addresses in the answer."""
        return [record.data for record in self.records if record.type in ("A", "AAAA")]


class _Malformed(Exception):
    pass


def dns_query(
    lab: Lab,
    source: str,
    server: str,
    name: str,
    *,
    type: str = "A",
    timeout: float = 2.0,
    tries: int = 1,
    recursion: bool = True,
    recorder: Recorder | None = None,
) -> DnsResult:
    """Ask ``server`` (``ns1``, ``ns1:5353``) for ``name`` from node ``source``.

    Each of ``tries`` questions waits ``timeout`` seconds; an answer that is cut is asked for again over TCP.
    Samples: ``dns_seconds``, from the first question to the answer.
    """
    place, port = locate_port(lab, server, 53)
    question = encode_question(int.from_bytes(os.urandom(2), "big"), name, type, recursion=recursion)
    with recording(recorder, "dns", source, server) as call:
        outcome, data, over_tcp = _ask(lab, source, place, port, question, timeout, tries)
        seconds = time.monotonic() - call.started if data else None
        records: tuple[Record, ...] = ()
        if data:
            try:
                outcome, records = decode_answer(data)
            except (_Malformed, struct.error, IndexError, ValueError):
                outcome = "malformed"
        call.sample("dns_seconds", seconds, call.started)
        call.result(
            name=name,
            type=type,
            outcome=outcome,
            seconds=None if seconds is None else round(seconds, 9),
            records=[f"{record.type} {record.data}" for record in records],
        )
    return DnsResult(source, server, name, type, call.started, outcome, seconds, records, over_tcp)


def _ask(
    lab: Lab, source: str, place: Target, port: int, question: bytes, timeout: float, tries: int
) -> tuple[str, bytes, bool]:
    """(outcome, answer, whether over TCP); without an answer the outcome says why."""
    opened = in_node(lab, source, lambda: socket.socket(place.family, socket.SOCK_DGRAM))
    outcome, data = "timeout", b""
    with opened:
        opened.connect((str(place.address), port))
        for _ in range(tries):
            outcome, data = _datagram(opened, question, time.monotonic() + timeout)
            if data or outcome != "timeout":
                break
    if data and _HEADER.unpack_from(data)[1] & _TRUNCATED:
        outcome, data = _stream(lab, source, place, port, question, timeout)
        return outcome, data, True
    return outcome, data, False


def _datagram(opened: socket.socket, question: bytes, until: float) -> tuple[str, bytes]:
    try:
        opened.send(question)
        while (left := until - time.monotonic()) > 0:
            opened.settimeout(left)
            data = opened.recv(65536)
            if _is_answer(data, question):
                return "ok", data
    except OSError as error:
        return outcome_of(error), b""
    return "timeout", b""


def _stream(lab: Lab, source: str, place: Target, port: int, question: bytes, timeout: float) -> tuple[str, bytes]:
    opened = in_node(lab, source, lambda: socket.socket(place.family, socket.SOCK_STREAM))
    with opened:
        outcome = connect(opened, place, port, timeout)
        if outcome != "ok":
            return outcome, b""
        try:
            opened.sendall(struct.pack("!H", len(question)) + question)
            with opened.makefile("rb") as stream:
                length = stream.read(2)
                data = stream.read(int.from_bytes(length, "big"))
        except OSError as error:
            return outcome_of(error), b""
    return ("ok", data) if _is_answer(data, question) else ("malformed", b"")


def _is_answer(data: bytes, question: bytes) -> bool:
    if len(data) < _HEADER.size:
        return False
    identifier, flags = _HEADER.unpack_from(data)[:2]
    return bool(identifier == _HEADER.unpack_from(question)[0] and flags & _ANSWER)


def encode_question(identifier: int, name: str, type: str, *, recursion: bool = True) -> bytes:
    """A query of one question. TestbedError for a name or a type that there cannot be."""
    if type not in TYPES:
        raise TestbedError(f"{type!r} is not a type of DNS record known here", remedy=f"one of {', '.join(TYPES)}")
    head = _HEADER.pack(identifier, _RECURSION if recursion else 0, 1, 0, 0, 0)
    return head + encode_name(name) + struct.pack("!HH", TYPES[type], 1)


def encode_name(name: str) -> bytes:
    """A domain name as labels with their lengths."""
    labels = [label.encode("idna") if not label.isascii() else label.encode() for label in name.rstrip(".").split(".")]
    if any(not 0 < len(label) < 64 for label in labels) and name.rstrip("."):
        raise TestbedError(f"{name!r} is not a domain name", remedy="labels have 1 to 63 characters")
    return b"".join(bytes([len(label)]) + label for label in labels if label) + b"\0"


def decode_answer(data: bytes) -> tuple[str, tuple[Record, ...]]:
    """(outcome, records of the answer section) of a message."""
    _, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    offset = _HEADER.size
    for _ in range(questions):
        _, offset = _name(data, offset)
        offset += 4
    records = []
    for _ in range(answers):
        name, offset = _name(data, offset)
        kind, _, ttl, length = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size
        records.append(Record(name, _NAMES.get(kind, f"TYPE{kind}"), ttl, _data(data, kind, offset, length)))
        offset += length
    return _CODES.get(flags & 15, f"rcode-{flags & 15}"), tuple(records)


def _name(data: bytes, offset: int) -> tuple[str, int]:
    """(name, offset after it); follows pointers (RFC 1035, 4.1.4), each of which must lead backwards."""
    labels: list[str] = []
    after, last = 0, len(data)
    while length := data[offset]:
        if length >= 0xC0:
            target = (length & 0x3F) << 8 | data[offset + 1]
            after = after or offset + 2
            if target >= min(last, offset):
                raise _Malformed
            offset = last = target
            continue
        if length > 63 or offset + 1 + length > len(data):
            raise _Malformed
        labels.append(data[offset + 1 : offset + 1 + length].decode("ascii", "backslashreplace"))
        offset += 1 + length
    return ".".join(labels) or ".", after or offset + 1


def _data(data: bytes, kind: int, offset: int, length: int) -> str:
    raw = data[offset : offset + length]
    if len(raw) < length:
        raise _Malformed
    match _NAMES.get(kind):
        case "A":
            return str(IPv4Address(raw))
        case "AAAA":
            return str(IPv6Address(raw))
        case "NS" | "CNAME" | "PTR":
            return _name(data, offset)[0]
        case "MX":
            return f"{int.from_bytes(raw[:2], 'big')} {_name(data, offset + 2)[0]}"
        case "TXT":
            return _text(raw)
        case _:
            return raw.hex()


def _text(raw: bytes) -> str:
    parts, offset = [], 0
    while offset < len(raw):
        parts.append(raw[offset + 1 : offset + 1 + raw[offset]])
        offset += 1 + raw[offset]
    return b"".join(parts).decode("utf-8", "backslashreplace")
