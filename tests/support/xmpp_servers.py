"""Real XMPP servers for tests: Prosody and ejabberd as child processes, on free loopback ports, in one folder each.

No system service, no fixed path, no root: what they need is written into the folder, and goes with it.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_numbers = itertools.count(1)

FIXTURES = Path(__file__).parent.parent / "fixtures" / "xmpp"
HOST = "xmpp.test"
PEOPLE = ("bot", "alice", "bob", "mallory", "mohe", "zhiwei", "xiaoguo")
"""Accounts that there are; the password of each is ``pw-`` and the name."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """``folder`` is kept over a restart, so that what a server has saved is there again. ``bot``: the account of the
    bot that is tested."""

    program = ""

    def __init__(self, folder: Path, *, tls: bool = False) -> None:
        self.folder, self.tls = folder, tls
        self.bot = "bot"
        self.port, self.http = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        raise NotImplementedError

    def register(self, name: str) -> None:
        """An account that may be there already."""
        raise NotImplementedError

    def new_bot(self) -> None:
        """Another account for the next test: what a server still holds for a bot that died in an earlier one, it hands
        to whoever logs in as that bot, some time or other."""
        self.bot = f"bot{next(_numbers)}"
        self.register(self.bot)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a machine that loses power."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _config(self, name: str, **words: str) -> Path:
        text = (FIXTURES / name).read_text(encoding="utf-8")
        words = {"DIR": str(self.folder), "PORT": str(self.port), "HTTP": str(self.http), "HOST": HOST, **words}
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def _spawn(self, arguments: list[str], **environ: str) -> None:
        with (self.folder / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                arguments, cwd=self.folder, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._await_features()

    def _await_features(self, within: float = 60.0) -> None:
        """A port that accepts is not yet a server: wait until it offers stream features."""
        assert self.process is not None
        header = (
            f"<?xml version='1.0'?><stream:stream to='{HOST}' version='1.0' xmlns='jabber:client' "
            "xmlns:stream='http://etherx.jabber.org/streams'>"
        ).encode()
        until = time.monotonic() + within
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as link:
                    link.settimeout(2)
                    link.sendall(header)
                    answer = b""
                    while b"features>" not in answer and (chunk := link.recv(4096)):
                        answer += chunk
                    if b"features>" in answer:
                        return
            except OSError:
                pass
            time.sleep(0.02)
        said = (self.folder / "output.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.program} did not come up:\n{said}")


class Prosody(Server):
    program = "prosody"
    rooms, masked = f"rooms.{HOST}", f"masked.{HOST}"

    @property
    def certificate(self) -> Path:
        return self.folder / "cert.pem"

    def start(self) -> None:
        for name in PEOPLE:
            self.register(name)
        ssl = ""
        if self.tls:
            ssl = f'ssl = {{ key = "{self.folder}/key.pem", certificate = "{self.certificate}" }}'
            if not self.certificate.exists():
                subprocess.run(
                    ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}",
                     "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", str(self.folder / "key.pem"),
                     "-out", str(self.certificate)],
                    check=True, capture_output=True,
                )  # fmt: skip
        config = self._config("prosody.cfg.lua", TLS=str(self.tls).lower(), SSL=ssl)
        self._spawn(["prosody", "-F", "--config", str(config)])

    def register(self, name: str) -> None:
        accounts = self.folder / "data" / HOST.replace(".", "%2e") / "accounts"
        accounts.mkdir(parents=True, exist_ok=True)
        (accounts / f"{name}.dat").write_text(f'return {{ ["password"] = "pw-{name}"; }};\n')


class Ejabberd(Server):
    program = "ejabberd"
    rooms = f"rooms.{HOST}"

    def start(self) -> None:
        (self.folder / "home").mkdir(exist_ok=True)
        config = self._config("ejabberd.yml")
        # Neither its own script nor epmd: both want a user and a folder of the system.
        self._spawn(
            ["erl", "+K", "true", "+S", "2", "-noinput", "-mnesia", "dir", f'"{self.folder}/mnesia"', "-s", "ejabberd"],
            HOME=str(self.folder / "home"),
            EJABBERD_CONFIG_PATH=str(config),
            EJABBERD_LOG_PATH=str(self.folder / "ejabberd.log"),
            ERL_LIBS=str(Path(_ejabberd_code()[0]).parent),
            ERL_CRASH_DUMP_BYTES="0",
        )
        for name in PEOPLE:
            self.register(name)

    def register(self, name: str) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}/api/register",
            json.dumps({"user": name, "host": HOST, "password": f"pw-{name}"}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:  # it is there from before a restart
                    raise


def _ejabberd_code() -> list[str]:
    return sorted(glob.glob("/usr/lib/*/ejabberd-*")) + sorted(glob.glob("/usr/lib/erlang/lib/ejabberd-*"))


def is_installed(kind: type[Server]) -> bool:
    if kind is Prosody:
        return shutil.which("prosody") is not None
    return shutil.which("erl") is not None and bool(_ejabberd_code())


def need(kind: type[Server]) -> None:
    """Skip, loudly, where the server is not installed; on a machine that checks changes, fail."""
    if not is_installed(kind):
        how = f"{kind.program} is not installed, so its tests cannot run: apt-get install {kind.program}"
        if os.environ.get("CI"):
            pytest.fail(how)
        pytest.skip(how)


@contextmanager
def running(kind: type[Server], folder: Path, *, tls: bool = False) -> Iterator[Server]:
    """Such a server, until the block ends."""
    need(kind)
    server = kind(folder, tls=tls)
    try:
        server.start()
        yield server
    finally:
        server.stop()
