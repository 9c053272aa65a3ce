"""For every test: no address but this machine's can be reached, and no key of whoever runs them is seen."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from typing import Any

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell, which lets interrupts be ignored for good, and so in every program
    # that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Unreachable(BaseException):
    """A test wanted to leave this machine. No ``Exception``: code under test must not make light of it."""


def _is_here(address: Any) -> bool:
    if not isinstance(address, tuple):  # a path of a Unix socket
        return True
    host = str(address[0])
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host in ("localhost", "")


_connect, _connect_ex, _getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo


def _guarded_connect(self: socket.socket, address: Any) -> None:
    if not _is_here(address):
        raise Unreachable(f"a test tried to reach {address}")
    _connect(self, address)


def _guarded_connect_ex(self: socket.socket, address: Any) -> int:
    if not _is_here(address):
        raise Unreachable(f"a test tried to reach {address}")
    return _connect_ex(self, address)


def _guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    # A number needs no look-up; where it leads is for connect to judge.
    if name and not _is_here((name,)) and not _is_number(name):
        raise Unreachable(f"a test tried to look up {name}")
    return _getaddrinfo(host, *args, **kwargs)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def pytest_configure(config: pytest.Config) -> None:
    # From the start rather than by a fixture: collection and session fixtures are held to it too.
    socket.socket.connect = _guarded_connect  # type: ignore[method-assign,assignment]
    socket.socket.connect_ex = _guarded_connect_ex  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = _guarded_getaddrinfo
    steering = ("_API_KEY", "_PROXY", "OPENAI_BASE_URL", "OLLAMA_HOST", "SESSION_ROUTER_MODEL")
    for name in list(os.environ):
        if name.upper().endswith(steering):
            del os.environ[name]
