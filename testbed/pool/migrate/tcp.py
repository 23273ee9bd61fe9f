"""The state of a TCP connection, taken from one socket and put into another, by the kernel's TCP_REPAIR.

The order of a move: ``freeze`` (what still arrives is dropped unseen), ``dump``, ``restore`` in another namespace,
packets led there, ``thaw``, and then ``retire`` of the old socket. Until the last step the old one is whole, and
``revive`` lets it go on as if nothing had been. Needs CAP_NET_ADMIN in each socket's namespace. docs/migration.md.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from testbed.pool.migrate import kernel, options, queues
from testbed.pool.migrate.kernel import (
    FIN_RECEIVED,
    FIN_SENT,
    FIN_WAIT2,
    INFO_SACK,
    INFO_TIMESTAMPS,
    INFO_WSCALE,
    MOVABLE,
    NO_QUEUE,
    OPTION_MSS,
    OPTION_SACK,
    OPTION_TIMESTAMP,
    OPTION_WINDOW,
    RECEIVE_QUEUE,
    SEND_QUEUE,
    SIOCINQ,
    SIOCOUTQ,
    TCP_REPAIR,
    TCP_REPAIR_OPTIONS,
    TCP_REPAIR_QUEUE,
    TCP_REPAIR_WINDOW,
    TCP_TIMESTAMP,
)
from testbed.pool.migrate.state import (
    MASK,
    NO_TCP,
    PROTOCOL,
    STATE,
    STATE_NOW,
    UPPER_LAYER,
    URGENT,
    TcpState,
    refusal,
)

_TCP = socket.IPPROTO_TCP
_WORD = struct.Struct("=I")
_WINDOW = struct.Struct("=5I")  # snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup
_OPTION = struct.Struct("=II")
_libc = ctypes.CDLL(None, use_errno=True)
_DROP_ALL = kernel.Filter([(0x06, 0, 0, 0)])  # "accept 0 bytes": what arrives is dropped before TCP sees it


def check(connection: socket.socket) -> None:
    """Raise Refused, saying why, if this is no connection that can be moved. It is left as it is."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        raise refusal(NO_TCP)
    if (protocol := connection.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)) != _TCP:
        raise refusal(PROTOCOL, protocol)
    if (state := state_of(connection)) not in MOVABLE:
        raise refusal(STATE, state)
    if _upper_layer(connection):
        raise refusal(UPPER_LAYER)
    try:
        connection.recv(1, socket.MSG_OOB | socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return
    raise refusal(URGENT)


def state_of(connection: socket.socket) -> int:
    """The state, as in ``kernel.STATES``."""
    return connection.getsockopt(_TCP, socket.TCP_INFO, 1)[0]


def freeze(connection: socket.socket) -> None:
    """Stop the connection: no packet is taken in or sent any more, and nothing is told to the other side."""
    _DROP_ALL.attach(connection)
    connection.setsockopt(_TCP, TCP_REPAIR, kernel.REPAIR_ON)


def revive(connection: socket.socket) -> None:
    """Let a frozen connection go on in the socket where it was."""
    connection.setsockopt(socket.SOL_SOCKET, kernel.SO_DETACH_FILTER, 0)
    connection.setsockopt(_TCP, TCP_REPAIR, kernel.REPAIR_OFF)
    _let_listen(connection)


def retire(connection: socket.socket) -> None:
    """End a frozen connection here without a word to the other side, also where others hold the same socket."""
    try:
        _disconnect(connection)
        connection.setsockopt(_TCP, TCP_REPAIR, kernel.REPAIR_OFF_SILENT)
    finally:
        connection.close()


def _disconnect(connection: socket.socket) -> None:
    """End a connection for everybody who holds the socket; the other side gets a reset, unless it is frozen."""
    if _libc.connect(connection.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def abort(connection: socket.socket) -> None:
    """End a connection with a reset to the other side."""
    try:
        _disconnect(connection)
    except OSError:
        pass  # it has ended already
    finally:
        connection.close()


def dump(connection: socket.socket) -> TcpState:
    """The state of a frozen connection, which is left frozen.

    Raises Refused if it is in a state that cannot be moved, OSError if the kernel does not give something.
    """
    info = connection.getsockopt(_TCP, socket.TCP_INFO, 8)
    state = info[0]
    if state not in MOVABLE:
        raise refusal(STATE_NOW, state)
    family = connection.family
    sent, received, outstanding, unsent, waiting = queues.positions(connection)
    fin = 1 if state in FIN_SENT else 0
    if fin and state != FIN_WAIT2:  # their FIN has a number too, and stands at the end of the queue
        outstanding -= 1
        unsent = max(0, unsent - 1)
    connection.setsockopt(_TCP, TCP_REPAIR_QUEUE, RECEIVE_QUEUE)
    receive_queue = queues.peek(connection, waiting)
    connection.setsockopt(_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE)
    send_queue = queues.peek(connection, outstanding)
    send_buffer, receive_buffer, fixed = options.read_buffers(connection)
    window = _WINDOW.unpack(connection.getsockopt(_TCP, TCP_REPAIR_WINDOW, _WINDOW.size))
    return TcpState(
        family=family,
        state=state,
        local=connection.getsockname(),
        peer=connection.getpeername(),
        send_seq=(sent - fin) & MASK,
        receive_seq=(received - (1 if state in FIN_RECEIVED else 0)) & MASK,
        send_queue=send_queue,
        unsent=unsent,
        receive_queue=receive_queue,
        window=window,
        mss=connection.getsockopt(_TCP, socket.TCP_MAXSEG),
        send_scale=info[6] & 15,
        receive_scale=info[6] >> 4,
        agreed=info[5],
        timestamp=_WORD.unpack(connection.getsockopt(_TCP, TCP_TIMESTAMP, 4))[0],
        send_buffer=send_buffer,
        receive_buffer=receive_buffer,
        fixed_buffers=fixed,
        settings=options.read(connection, family),
        linger=options.read_linger(connection),
        congestion=options.read_congestion(connection),
    )


def unchanged(connection: socket.socket, state: TcpState) -> bool:
    """Whether nothing came in since the dump, by a packet that was already past the filter when it was put up."""
    fd = connection.fileno()
    fin = 1 if state.state in FIN_SENT and state.state != FIN_WAIT2 else 0
    return (
        queues.count(fd, SIOCINQ) == len(state.receive_queue)
        and queues.count(fd, SIOCOUTQ) - fin == len(state.send_queue)
        and state_of(connection) == state.state
    )


def restore(state: TcpState) -> socket.socket:
    """A socket in the calling thread's namespace that holds the connection, frozen until ``thaw``.

    Raises OSError: EADDRNOTAVAIL if the namespace does not have the local address.
    """
    made = socket.socket(state.family, socket.SOCK_STREAM)
    try:
        _DROP_ALL.attach(made)  # or it would acknowledge what a step that fails yet takes away again
        made.setsockopt(_TCP, TCP_REPAIR, kernel.REPAIR_ON)
        if state.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # room for all of a queue at once, however the kernel counts it; set right in `thaw`
        options.size_buffers(
            made, state.send_buffer + 4 * len(state.send_queue), state.receive_buffer + 4 * len(state.receive_queue)
        )
        options.choose_congestion(made, state.congestion)
        made.bind(state.local)
        queues.set_sequence(made, RECEIVE_QUEUE, state.receive_seq - len(state.receive_queue))
        queues.set_sequence(made, SEND_QUEUE, state.unacknowledged)
        made.connect(state.peer)  # in repair mode: no handshake, the connection stands at once
        made.setsockopt(_TCP, TCP_REPAIR_OPTIONS, _agreed_options(state))
        if state.agreed & INFO_TIMESTAMPS:
            made.setsockopt(_TCP, TCP_TIMESTAMP, _WORD.pack(state.timestamp))
        options.write(made, state.settings, state.linger)
        if state.receive_queue:
            made.setsockopt(_TCP, TCP_REPAIR_QUEUE, RECEIVE_QUEUE)
            queues.fill(made, state.receive_queue)
        sent = len(state.send_queue) - state.unsent
        if sent:
            made.setsockopt(_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE)
            queues.fill(made, state.send_queue[:sent])
        made.setsockopt(_TCP, TCP_REPAIR_WINDOW, _WINDOW.pack(*_window(state)))
        made.setsockopt(_TCP, TCP_REPAIR_QUEUE, NO_QUEUE)
    except BaseException:
        made.close()  # in repair mode, so without a word
        raise
    return made


def thaw(connection: socket.socket, state: TcpState) -> None:
    """Let a restored connection run: what was never sent is sent, and a half-closed direction closed again.

    Raises OSError if the kernel does not take what was never sent.
    """
    connection.setsockopt(socket.SOL_SOCKET, kernel.SO_DETACH_FILTER, 0)
    connection.setsockopt(_TCP, TCP_REPAIR, kernel.REPAIR_OFF_SILENT)
    _let_listen(connection)
    connection.setblocking(False)
    if state.unsent:
        queues.fill(connection, state.send_queue[len(state.send_queue) - state.unsent :])
    if state.state in FIN_SENT:
        connection.shutdown(socket.SHUT_WR)
    if state.size:
        options.size_buffers(connection, state.send_buffer, state.receive_buffer)
    options.lock_buffers(connection, state.fixed_buffers)


def _let_listen(connection: socket.socket) -> None:
    """Leaving repair mode forbids all others the port; a server that starts anew must be able to listen on it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _agreed_options(state: TcpState) -> bytes:
    found = _OPTION.pack(OPTION_MSS, state.mss)
    if state.agreed & INFO_WSCALE:
        found += _OPTION.pack(OPTION_WINDOW, state.send_scale | state.receive_scale << 16)
    if state.agreed & INFO_SACK:
        found += _OPTION.pack(OPTION_SACK, 0)
    if state.agreed & INFO_TIMESTAMPS:
        found += _OPTION.pack(OPTION_TIMESTAMP, 0)
    return found


def _window(state: TcpState) -> tuple[int, int, int, int, int]:
    update, send, largest, receive, advertised = state.window
    if state.state in FIN_RECEIVED:  # the FIN is not in the restored connection yet
        advertised, receive = (advertised - 1) & MASK, receive + 1
    return update, send, largest, receive, advertised


def _upper_layer(connection: socket.socket) -> bool:
    try:
        return bool(connection.getsockopt(_TCP, kernel.TCP_ULP, 16).rstrip(b"\0"))
    except OSError:
        return False
