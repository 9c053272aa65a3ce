"""A chat with Hermes: the whole engine over the gateway of the real Hermes, with a fake model behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_router.config import load
from session_router.doctor import examine
from session_router.router import SessionRouter
from session_router.sources import sources_of
from storage.sqlite import SqliteStore
from tests.support.fake_agent_llm import FakeAgentLLM
from tests.support.hermes import KEY, Hermes

# The fixtures' time does not count: on a machine's first run they install Hermes.
pytestmark = pytest.mark.timeout(120, func_only=True)


class NobodyElse:
    """Stands for a model of ours, which is not to be asked."""

    async def chat(self, messages: object, *, session_id: str) -> str:
        return "asked the wrong one"


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeAgentLLM]:
    with FakeAgentLLM() as fake:
        yield fake


@pytest.fixture(scope="module")
def hermes(llm: FakeAgentLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hermes]:
    with Hermes(tmp_path_factory.mktemp("hermes"), llm.url) as running:
        running.start()
        yield running


async def test_a_turn_in_a_session_of_hermes_is_run_by_hermes_and_kept_there(
    hermes: Hermes, llm: FakeAgentLLM, tmp_path: Path
) -> None:
    (tmp_path / "session-router.toml").write_text(f"""
[sources]
opencode = false
hermes = "{hermes.database}"
journal = false
[sources.hermes_gateway]
url = "{hermes.url}"
key_env = "THE_KEY"
[limits]
model_retries = 0
[agents.mohe]
language = "en"
allow = ["*"]
""")
    environ = {"HOME": str(tmp_path), "THE_KEY": KEY, "OPENAI_API_KEY": "sk-x"}
    config = load(environ=environ, folder=tmp_path)
    agent = config.agent().to_agent()
    store = SqliteStore(tmp_path / "engine.db")
    sources = sources_of(config, store, agent.names, environ=environ)
    async with SessionRouter(bridge=NobodyElse(), store=store, agent=agent, sources=sources) as router:

        async def say(text: str) -> str | None:
            return await router.route("console", "alice", text)

        assert await say("/new Trip to Lisbon") == "Now talking to “Trip to Lisbon” (hermes)."
        assert await say("where do we stay?") == "echo: [console] where do we stay?"
        answer = await say("look [terminal echo from hermes]")
        assert answer is not None
        assert "from hermes" in answer
        listed = await say("/sessions")
        assert listed is not None
        assert listed.splitlines()[1].startswith("1. Trip to Lisbon · hermes")
        await say("cancel")
        bound = (await router.binding("console", "alice")).bound
        assert bound is not None
        kept = [line.text for line in await sources[0].context(bound.session)]
        assert [text for text in kept if "where do we stay" in text] == [
            "[console] where do we stay?", "echo: [console] where do we stay?"]  # fmt: skip
        assert await store.lines(bound.session) == [], "Hermes keeps the record, not we"

        findings = {one.what: one for one in await examine(config, environ)}
        assert findings["gateway of Hermes"].level == "ok"
        assert findings["sessions of Hermes"].level == "ok"

        await asyncio.to_thread(hermes.kill)
        told = await say("still there?")
        assert told == "asked the wrong one", "read from the database, and answered by the model of ours"
        status = await say("/status")
        assert status is not None
        assert "The session's own agent cannot be reached" in status
        findings = {one.what: one for one in await examine(config, environ)}
        assert findings["gateway of Hermes"].level == "warning"
