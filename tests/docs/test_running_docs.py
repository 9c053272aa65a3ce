"""What the pages on running show is what the program takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from session_router.cli import program
from session_router.config import load
from tests.support.xmpp_servers import Prosody, free_port, need

ROOT = Path(__file__).parents[2]
PAGES = ("docs/running.md", "docs/running.zh.md", "docs/xmpp.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page(name)) if kind == language]


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", page(name)):
        assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_every_command_line_is_one(name: str) -> None:
    shown = [line for text in blocks(name, "sh") + blocks(name, "ini") for line in text.splitlines()]
    lines = [found[2] for line in shown if (found := re.match(r"(ExecStart=\S*/)?session-router (.*)", line))]
    assert lines
    for line in lines:
        typed = line.partition("  #")[0].split()
        command: click.Command = program
        while isinstance(command, click.Group):
            command = command.commands[typed.pop(0)]
        command.make_context(line, typed, resilient_parsing=False)


def test_the_config_that_is_shown_loads(tmp_path: Path) -> None:
    (text,) = blocks("docs/running.md", "toml")
    (tmp_path / "config.toml").write_text(text)

    config = load(tmp_path / "config.toml", {"HOME": str(tmp_path), "LANG": "C"})

    assert config.agent("mohe").http_port == 5804
    assert config.drain_timeout == 20


def test_the_series_that_are_shown_are_the_ones_there_are() -> None:
    pytest.importorskip("prometheus_client")
    from session_router.channel_makers import ChannelState
    from session_router.metrics import AgentMetrics

    metrics = AgentMetrics("mohe", lambda: 0.0)
    metrics.channel_changed("xmpp", ChannelState("joined", True, 2))
    names = set(re.findall(r"^# TYPE (session_router_\w+)", metrics.text().decode(), re.MULTILINE))
    shown = set(re.findall(r"session_router_\w+", page("docs/running.md")))

    assert shown == {name for name in names if not name.endswith("_created")}


def test_the_ten_commands_lead_to_a_bot_in_its_room(tmp_path: Path) -> None:
    need(Prosody)
    pytest.importorskip("slixmpp")
    script = "\n".join(blocks("docs/xmpp.md", "sh"))
    port, folder = free_port(), tmp_path / "my-bot"
    script = script.replace("5222", str(port)).replace("~/my-bot", str(folder))
    # The tests may run as root, which Prosody refuses unless told otherwise.
    root = 'run_as_root = true\nprosody_user = "root"\nprosody_group = "root"\n' if os.getuid() == 0 else ""
    script = script.replace("daemonize = false\n", f"daemonize = false\n{root}")
    installing = ("sudo ", "python3 -m venv ", "session-router ")
    kept = [line for line in script.splitlines() if not line.startswith(installing)]
    doctor = f"{sys.executable} -m session_router doctor"
    kept += [
        "trap 'kill %1; wait' EXIT",
        f"for n in $(seq 200); do (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null && break; sleep 0.05; done",
        f"{doctor} > first.txt",
        f"{doctor} > second.txt",
    ]
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT),
        "OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "SESSION_ROUTER_MODEL": "fake-1",
    }  # fmt: skip

    done = subprocess.run(
        ["bash", "-c", "\n".join(kept)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    first, second = ((folder / name).read_text() for name in ("first.txt", "second.txt"))
    assert "✓ login of bot: bot@localhost logged in" in first, first + done.stderr
    assert "entering it has made it" in first
    assert "✓ login of bot: team@rooms.localhost: entered" in second
