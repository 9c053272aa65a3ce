"""The models of the agents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fsm.language.redact import redact
from fsm.ports import ModelError
from session_router.choose_model import choose
from session_router.config import Config, ModelSettings
from session_router.doctor.finding import Finding, spoken

CALL_TIMEOUT = 120.0
"""Seconds for the one short answer; a model on this machine may have to be loaded first."""


def _model_mend() -> str:
    return spoken(
        "Correct the model in the config, or put a key such as OPENAI_API_KEY into the environment.",
        "在配置里改正模型，或在环境变量里放密钥（如 OPENAI_API_KEY）。",
    )


async def models(config: Config, environ: Mapping[str, str], call: bool) -> list[Finding]:
    users: list[tuple[ModelSettings | None, list[str]]] = []
    for name, agent in config.agents.items():
        same = next((names for settings, names in users if settings == agent.model), None)
        if same is None:
            users.append((agent.model, [name]))
        else:
            same.append(name)
    return [
        await _model(spoken(f"model of {', '.join(names)}", f"{'、'.join(names)} 的模型"), settings, environ, call)
        for settings, names in users
    ]


async def _model(what: str, settings: ModelSettings | None, environ: Mapping[str, str], call: bool) -> Finding:
    try:
        chosen = await choose(settings, environ)
    except ModelError as error:
        return Finding("problem", what, redact(str(error)), _model_mend())
    why, why_zh = chosen.why, chosen.why_in("zh")
    seen = redact(spoken(f"{chosen.label}, because {why}", f"{chosen.label_in('zh')}，因为{why_zh}"))
    try:
        if call:
            async with asyncio.timeout(CALL_TIMEOUT):
                reply = await chosen.model.complete([{"role": "user", "content": "Say: ready"}])
            if not reply.text.strip():
                return Finding(
                    "problem",
                    what,
                    spoken(f"{seen}; it answered with nothing", f"{seen}；它什么也没回答"),
                    _model_mend(),
                )
            seen += spoken("; it answered", "；已回答")
        else:
            seen += spoken("; it was not asked", "；没有去问它")
    except TimeoutError:
        return Finding(
            "problem",
            what,
            spoken(f"{seen}; no answer in {CALL_TIMEOUT:.0f} s", f"{seen}；{CALL_TIMEOUT:.0f} 秒内没有回答"),
            _model_mend(),
        )
    except ModelError as error:
        return Finding(
            "problem",
            what,
            spoken(f"{seen}; it failed: {redact(str(error))}", f"{seen}；失败：{redact(str(error))}"),
            _model_mend(),
        )
    finally:
        await chosen.model.close()
    if chosen.demo:
        return Finding(
            "warning", what, spoken(f"{seen}; it is good for a trial only", f"{seen}；只适合试用"), _model_mend()
        )
    return Finding("ok", what, seen)
