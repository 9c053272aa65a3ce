"""``session-router run`` as its users meet it: a process of its own, told what to do by signals and over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_llm import Answer
from tests.support.running import GatedLLM, World, call, free_port

pytest.importorskip("pydantic_ai")
ROOM = "team@muc.test"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with GatedLLM() as llm:
        made = World(tmp_path, llm)
        yield made
        llm.gate.set()
        made.close()


def http_agent(port: int, more: str = "") -> str:
    return (
        f"[agents.mohe]\nallow = ['alice']\nhttp_port = {port}\nhttp_token_env = 'BOT_TOKEN'\n{more}"
        f"[agents.mohe.groups.'{ROOM}']\nallow = ['alice@x.test']\n"
    )


# -- stopping ------------------------------------------------------------------------------------


def test_sigterm_lets_a_running_turn_end(world: World) -> None:
    line = world.line("mohe")
    world.config("[agents.mohe]\nallow = ['alice']\n")
    world.llm.answers[0] = Answer("Done in time.")
    world.llm.gate.clear()
    run = world.start()
    line.says("alice", "hello")
    assert world.llm.asked.wait(20)

    run.tell(signal.SIGTERM)
    run.says("stopping")
    world.llm.gate.set()

    assert line.hears("alice") == "Done in time."
    assert run.ends() == 0
    assert run.log[-1]["turns_left"] == 0


def test_sigterm_parks_what_takes_too_long_and_the_next_start_goes_on(world: World) -> None:
    line = world.line("mohe")
    world.config("[agents.mohe]\nallow = ['alice', 'bob']\n", "drain_timeout = 0.5")
    world.llm.gate.clear()
    run = world.start()
    line.taken(line.says("alice", "first"))
    assert world.llm.asked.wait(20)

    run.tell(signal.SIGTERM)
    run.says("stopping")
    line.taken(line.says("bob", "while it stops"))  # recorded, so the channel may acknowledge it
    assert run.ends() == 0
    assert run.log[-1]["turns_left"] == 1
    assert line.rest() == []

    world.llm.gate.set()
    again = world.start()
    to = [line.until(lambda heard: "text" in heard)["to"] for _ in range(2)]
    assert sorted(to) == ["alice", "bob"]
    again.tell(signal.SIGTERM)
    assert again.ends() == 0
    assert line.rest() == []
    assert world.store("SELECT id, disposition FROM inbox ORDER BY id") == [("m1", "replied"), ("m2", "replied")]


def test_a_second_sigterm_does_not_wait(world: World) -> None:
    line = world.line("mohe")
    world.config("[agents.mohe]\nallow = ['alice']\n", "drain_timeout = 600")
    world.llm.gate.clear()
    run = world.start()
    line.says("alice", "hello")
    assert world.llm.asked.wait(20)

    run.tell(signal.SIGTERM)
    run.says("stopping")
    run.tell(signal.SIGTERM)

    assert run.ends() == 0
    assert run.log[-1]["turns_left"] == 1


# -- reloading -----------------------------------------------------------------------------------


def test_sighup_adds_an_agent_and_opens_the_door_without_dropping_a_conversation(world: World) -> None:
    line, other = world.line("mohe"), world.line("zhiwei")
    world.config("[agents.mohe]\nallow = ['alice']\n")
    run = world.start()
    line.says("alice", "/new deploy")
    line.hears("alice")
    line.says("bob", "me too?")
    run.says("refused")
    world.llm.gate.clear()
    world.llm.answers[0] = Answer("The same answer.")
    line.says("alice", "a long question")
    assert world.llm.asked.wait(20)

    world.config("[agents.mohe]\nallow = ['alice', 'bob']\n[agents.zhiwei]\nallow = ['carol']\n")
    run.tell(signal.SIGHUP)
    run.says("the config was read again")
    world.llm.gate.set()

    assert line.hears("alice") == "The same answer."
    line.says("bob", "and now?")
    assert line.hears("bob") == "The same answer."
    other.says("carol", "hello")
    assert other.hears("carol") == "The same answer."
    line.says("alice", "/status")
    assert "deploy" in line.hears("alice")


def test_sighup_takes_an_agent_out_and_brings_it_back_with_what_was_left(world: World) -> None:
    line = world.line("mohe")
    world.line("zhiwei")
    both = "[agents.zhiwei]\nallow = ['carol']\n[agents.mohe]\nallow = ['alice']\n"
    world.config(both, "drain_timeout = 0.3")
    world.llm.gate.clear()
    run = world.start()
    line.says("alice", "first")
    assert world.llm.asked.wait(20)

    world.config("[agents.zhiwei]\nallow = ['carol']\n", "drain_timeout = 0.3")
    run.tell(signal.SIGHUP)
    run.says("agent mohe is served no more")
    run.says("the config was read again")
    world.config(both, "drain_timeout = 0.3")
    run.tell(signal.SIGHUP)
    run.says("the config was read again", times=2)
    world.llm.gate.set()

    assert line.hears("alice") == "Hello from the fake."
    run.tell(signal.SIGTERM)
    assert run.ends() == 0
    assert line.rest() == []
    assert not [entry for entry in run.log if entry["level"] == "error"], run.raw


def test_sighup_while_it_is_still_being_loaded_does_not_end_it(world: World) -> None:
    world.config("")
    code = (
        "import os, signal, sys\n"
        "class Told:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'session_router.run':\n"
        "            os.kill(os.getpid(), signal.SIGHUP)\n"
        "sys.meta_path.insert(0, Told())\n"
        "from session_router.cli import main\n"
        "sys.exit(main(['run']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=world.env, cwd=world.folder, text=True, capture_output=True, check=False
    )

    assert (done.returncode, "no agent has a channel" in done.stderr) == (2, True), done.stderr


def test_told_again_as_the_process_goes_it_ends_as_it_would_have(world: World) -> None:
    world.config("")
    code = (
        "import atexit, os, signal, sys\n"
        "def tell():\n"
        "    for name in ('SIGHUP', 'SIGINT', 'SIGTERM'):\n"
        "        os.kill(os.getpid(), getattr(signal, name))\n"
        "atexit.register(tell)\n"
        "from session_router.cli import main\n"
        "sys.exit(main(['run']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=world.env, cwd=world.folder, text=True, capture_output=True, check=False
    )

    assert (done.returncode, "no agent has a channel" in done.stderr) == (2, True), done.stderr


def test_a_wrong_config_at_sighup_changes_nothing(world: World) -> None:
    line = world.line("mohe")
    world.config("[agents.mohe]\nallow = ['alice']\n")
    run = world.start()

    world.config("[agents.mohe]\nallwo = ['alice']\n")
    run.tell(signal.SIGHUP)

    assert "did you mean `allow`" in run.says("was not read again")["message"]
    line.says("alice", "hello")
    assert line.hears("alice") == "Hello from the fake."


@pytest.mark.parametrize(("written", "said"), [("", "no agent has a channel"), (None, "is gone")])
def test_an_empty_or_missing_config_at_sighup_changes_nothing(world: World, written: str | None, said: str) -> None:
    world.config(http_agent(port := free_port()))
    run = world.start()

    file = world.folder / "session-router.toml"
    if written is None:
        file.unlink()
    else:
        file.write_text(written)
    run.tell(signal.SIGHUP)

    assert said in run.says("was not read again")["message"]
    assert call(port, "GET", "/active")[0] == 404


def test_another_data_dir_at_sighup_waits_for_a_restart_with_all_that_is_in_it(world: World) -> None:
    line = world.line("mohe")
    world.config("[agents.mohe]\nallow = ['alice']\n")
    run = world.start()
    line.says("alice", "/new deploy")
    line.hears("alice")
    file = world.folder / "session-router.toml"
    file.write_text(file.read_text().replace("'data'", "'elsewhere'").replace("'alice'", "'alice', 'bob'"))

    run.tell(signal.SIGHUP)
    run.says("store and data_dir change only with a restart")
    run.says("the config was read again")

    line.says("bob", "/new other")
    line.hears("bob")
    line.says("alice", "/status")
    assert "deploy" in line.hears("alice")
    assert len(list((world.folder / "data" / "sessions").glob("*.jsonl"))) == 2
    assert not (world.folder / "elsewhere").exists()


def test_a_taken_port_at_sighup_changes_nothing_of_the_agent(world: World) -> None:
    line, port = world.line("mohe"), free_port()
    world.config(http_agent(port))
    run = world.start()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        world.config(http_agent(taken.getsockname()[1]).replace("['alice']", "['alice', 'bob']"))
        run.tell(signal.SIGHUP)
        assert "cannot be used" in run.says("agent mohe was not changed")["message"]

        assert call(port, "GET", "/healthz", token=None)[0] == 200
        line.says("bob", "hello")
        run.says("refused")


def test_another_port_and_another_token_at_sighup_count_at_once(world: World) -> None:
    line, first, second = world.line("mohe"), free_port(), free_port()
    world.config(http_agent(first))
    world.env["OTHER_TOKEN"] = "another-token"
    run = world.start()

    world.config(http_agent(second))
    run.tell(signal.SIGHUP)
    run.says("the config was read again")
    assert call(second, "GET", "/active")[0] == 404
    with pytest.raises(ConnectionRefusedError):
        call(first, "GET", "/healthz")

    world.config(http_agent(second).replace("BOT_TOKEN", "OTHER_TOKEN"))
    run.tell(signal.SIGHUP)
    run.says("the config was read again", times=2)
    assert call(second, "GET", "/active")[0] == 401
    assert call(second, "GET", "/active", token="another-token")[0] == 404
    line.says("alice", "hello")
    assert line.hears("alice") == "Hello from the fake."


def two_on_ports(mohe: int, zhiwei: int, more: str = "") -> str:
    return "".join(
        f"[agents.{name}]\nallow = ['alice'{more}]\nhttp_port = {port}\nhttp_token_env = 'BOT_TOKEN'\n"
        for name, port in (("mohe", mohe), ("zhiwei", zhiwei))
    )


def whose(port: int) -> str:
    """The agent that answers on that port."""
    text = call(port, "GET", "/metrics")[1]
    return text.partition('session_router_queue_length{agent="')[2].partition('"')[0]


def test_two_agents_swap_their_ports_at_sighup(world: World) -> None:
    first, second = free_port(), free_port()
    world.config(two_on_ports(first, second))
    run = world.start()

    world.config(two_on_ports(second, first))
    run.tell(signal.SIGHUP)
    run.says("the config was read again")

    assert (whose(first), whose(second)) == ("zhiwei", "mohe")
    assert not [entry for entry in run.log if entry["level"] == "error"], run.raw


def test_a_port_that_was_let_go_of_for_another_agent_is_taken_back_where_the_new_one_is_not_to_be_had(
    world: World,
) -> None:
    line, first, second = world.line("mohe"), free_port(), free_port()
    world.config(two_on_ports(first, second))
    run = world.start()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        third = taken.getsockname()[1]
        world.config(two_on_ports(third, first, ", 'bob'"))
        run.tell(signal.SIGHUP)
        run.says("agent mohe was not changed")
        run.says("agent zhiwei was not changed")
        run.says("the config was read again")
        assert (whose(first), whose(second)) == ("mohe", "zhiwei")
        line.says("bob", "hello")
        run.says("refused")
    run.tell(signal.SIGHUP)
    run.says("the config was read again", times=2)

    assert (whose(third), whose(first)) == ("mohe", "zhiwei")
    line.says("bob", "and now?")
    assert line.hears("bob") == "Hello from the fake."


def test_an_agent_whose_port_another_one_has_by_now_gets_its_own_once_that_is_free(world: World) -> None:
    first, second = free_port(), free_port()
    world.config(two_on_ports(first, second))
    run = world.start()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        third = taken.getsockname()[1]
        world.config(two_on_ports(second, third))
        run.tell(signal.SIGHUP)
        run.says("agent zhiwei has no port just now")
        run.says("the config was read again")
        assert whose(second) == "mohe"
    run.tell(signal.SIGHUP)
    run.says("the config was read again", times=2)

    assert (whose(second), whose(third)) == ("mohe", "zhiwei")


def test_other_sources_count_for_an_agent_that_could_not_be_changed_at_the_first_sighup(world: World) -> None:
    line = world.line("mohe")
    world.config(http_agent(free_port()))
    run = world.start()
    line.says("alice", "/new one")
    assert "one" in line.hears("alice")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        world.config(http_agent(taken.getsockname()[1]))
        file = world.folder / "session-router.toml"
        file.write_text(file.read_text().replace("[sources]", "[sources]\njournal = false"))
        run.tell(signal.SIGHUP)
        run.says("agent mohe was not changed")
        line.says("alice", "/new two")
        assert "two" in line.hears("alice")
    run.tell(signal.SIGHUP)
    run.says("agent mohe was changed")

    line.says("alice", "/new three")
    assert line.hears("alice") == "no session can be made here."


# -- the HTTP port -------------------------------------------------------------------------------


def test_the_port_answers_on_loopback_and_with_the_token_only(world: World) -> None:
    port = free_port()
    world.line("mohe")
    world.config(http_agent(port))
    world.start()

    assert call(port, "GET", "/healthz", token=None) == (200, '{"status": "ok"}')
    for method, path in (("GET", "/metrics"), ("POST", "/send"), ("GET", "/active"), ("DELETE", "/active")):
        assert call(port, method, path, token=None)[0] == 401
        assert call(port, method, path, token="wrong")[0] == 401
        assert call(port, method, path, token="\xff")[0] == 401
    assert call(port, "GET", "/nosuch", token=None)[0] == 401
    assert call(port, "GET", "/nosuch")[0] == 404
    assert call(port, "POST", "/send", body={"txt": "x"})[0] == 400
    listening = f":{port:04X}"
    rows = [row for file in Path("/proc/net").glob("tcp*") for row in file.read_text().splitlines()]
    where = {row.split()[1] for row in rows if f"{listening} " in row and " 0A " in row}
    assert where == {f"0100007F{listening}"}


def test_a_token_that_was_made_up_is_for_this_user_alone(world: World) -> None:
    port = free_port()
    world.line("mohe")
    world.config(f"[agents.mohe]\nallow = ['alice']\nhttp_port = {port}\n")
    run = world.start()
    file = world.folder / "data" / "http-mohe.token"

    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert len(token) >= 32
    assert call(port, "GET", "/metrics", token=token)[0] == 200
    assert token not in run.raw


def test_metrics_count_a_known_script_exactly(world: World) -> None:
    port = free_port()
    line = world.line("mohe")
    world.config(http_agent(port, "model_retries = 0\n"))
    world.llm.answers.extend([Answer("##list_sessions##"), Answer("One."), Answer(status=500), Answer("__silent__ no")])
    world.llm.answers.popleft()
    run = world.start()
    line.says("alice", "hello", id="a")
    line.hears("alice")
    line.says("alice", "hello", id="a")
    run.says("duplicate")
    line.says("mallory", "hello")
    run.says("refused")
    line.says("alice", "fails")
    line.hears("alice")
    line.says("alice", "nearly silent")
    line.hears("alice")
    run.says("replied", times=2)
    line.says("alice", "/status")
    line.hears("alice")
    run.says("replied", times=3)

    status, text = call(port, "GET", "/metrics")

    assert status == 200
    values = dict(row.rsplit(" ", 1) for row in text.splitlines() if not row.startswith("#"))
    agent = 'agent="mohe"'

    def value(name: str, more: str = "") -> float:
        return float(values[f"session_router_{name}{{{agent}{more}}}"])

    assert {
        kind: value("messages_total", f',disposition="{kind}"')
        for kind in ("replied", "silent", "muted", "duplicate", "refused", "failed", "stopped")
    } == {"replied": 3, "silent": 0, "muted": 0, "duplicate": 1, "refused": 1, "failed": 1, "stopped": 0}
    assert value("model_calls_total", ',outcome="ok"') == 3
    assert value("model_calls_total", ',outcome="server"') == 1
    assert value("model_tokens_total", ',kind="input"') == 3 * 120
    assert value("model_tokens_total", ',kind="output"') == 3 * 7
    assert value("turn_seconds_count") == 3
    assert value("model_call_seconds_count") == 4
    assert value("events_total", ',what="command"') == 1
    assert value("events_total", ',what="near_miss"') == 1
    assert value("queue_length") == 0
    assert value("running_turns") == 0
    assert value("channel_up", ',channel="line"') == 1


def test_what_waits_behind_a_turn_is_the_queue_length(world: World) -> None:
    port = free_port()
    line = world.line("mohe")
    world.config(http_agent(port))
    world.llm.gate.clear()
    world.start()
    for text in ("one", "two", "three"):
        line.taken(line.says("alice", text))
    assert world.llm.asked.wait(20)

    text = call(port, "GET", "/metrics")[1]

    assert 'session_router_queue_length{agent="mohe"} 2.0' in text
    assert 'session_router_running_turns{agent="mohe"} 1.0' in text


# -- the command line beside it ------------------------------------------------------------------


def test_send_goes_through_the_running_engine_and_leads_the_group_there(world: World) -> None:
    port = free_port()
    line = world.line("mohe")
    world.config(http_agent(port))
    world.start()
    line.says("alice", "/new deploy")
    line.hears("alice")
    (journal,) = (world.folder / "data" / "sessions").glob("*.jsonl")
    session = journal.stem

    nothing = world.cli("send", "只说一句")
    assert (nothing.returncode, line.hears(ROOM)) == (0, "只说一句")
    assert "nothing was recorded" in nothing.stdout
    assert world.cli("active").returncode == 1

    done = world.cli("send", "开工了", session, "--agent", "mohe")

    assert (done.returncode, line.hears(ROOM)) == (0, "开工了")
    assert session in done.stdout
    assert "mohe" in done.stdout
    assert world.store("SELECT text FROM lines WHERE role = 'assistant'") == [("[YOU] 开工了",)]
    assert session in world.cli("active").stdout
    line.says("alice@x.test", "go on", room=ROOM)
    line.hears(ROOM)
    assert "[YOU] 开工了" in world.llm.requests[-1]["messages"][-1]["content"]
    assert json.loads(call(port, "GET", "/active")[1])["session"] == session
    assert call(port, "DELETE", "/active") == (200, '{"cleared": true}')
    assert world.cli("active").returncode == 1


def test_a_session_that_is_not_there_is_told_and_nothing_is_posted(world: World) -> None:
    port = free_port()
    line = world.line("mohe")
    world.config(http_agent(port))
    world.start()

    done = world.cli("send", "hi", "ses_nope")

    assert done.returncode == 1
    assert "There is no session ses_nope" in done.stderr
    assert line.rest() == []
    assert world.store("SELECT key FROM state_meta WHERE key LIKE 'active%'") == []


# -- what it says, and who may run beside it -----------------------------------------------------


def test_the_log_names_everything_but_what_was_said(world: World) -> None:
    line = world.line("mohe")
    world.config(f"[agents.mohe]\nallow = ['alice']\n[agents.mohe.groups.'{ROOM}']\nallow = ['al']\nnicks = true\n")
    run = world.start()
    line.says("alice", "my secret plan")
    line.hears("alice")
    run.says("replied")

    assert "fake-1" in run.says("model of mohe")["message"]
    assert run.says("message")["sender"] == "alice"
    assert "secret plan" not in run.raw
    assert "Hello from the fake" not in run.raw


def test_bodies_are_logged_where_the_config_wants_it(world: World) -> None:
    line = world.line("mohe")
    world.config("[agents.mohe]\nallow = ['alice']\n", "log_bodies = true")
    run = world.start()
    line.says("alice", "my open plan")
    line.hears("alice")

    assert run.says("message")["text"] == "my open plan"


def test_processes_share_a_store_but_no_agent(world: World) -> None:
    mohe, zhiwei = world.line("mohe"), world.line("zhiwei")
    world.config("[agents.mohe]\nallow = ['alice']\n[agents.zhiwei]\nallow = ['alice']\n")
    world.start("--agent", "mohe")
    second = world.start("--agent", "zhiwei")
    third = world.start("--agent", "mohe", ready=False)

    mohe.says("alice", "hello")
    zhiwei.says("alice", "hello")

    assert mohe.hears("alice") == zhiwei.hears("alice") == "Hello from the fake."
    assert third.ends() == 1
    assert "Another session-router has these conversations (mohe in" in third.raw
    assert "Traceback" not in third.raw
    second.tell(signal.SIGINT)
    assert second.ends() == 0


@pytest.mark.parametrize(
    ("agents", "words", "code", "said"),
    [
        ("", (), 2, "no agent has a channel"),
        ("[agents.mohe]\n", ("--agent", "nosuch"), 2, "there is no agent `nosuch`"),
        ("[agents.mohe]\njid = 'mohe@x.test'\n", (), 2, "has no password"),
        ("[agents.mohe]\nhttp_port = 1\n[agents.mohe.model]\nprovider = 'openai'\n", (), 1, "OPENAI_API_KEY"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    world: World, agents: str, words: tuple[str, ...], code: int, said: str
) -> None:
    world.config(agents)
    run = world.start(*words, ready=False)

    assert run.ends() == code
    assert said in run.raw
    assert "Traceback" not in run.raw
