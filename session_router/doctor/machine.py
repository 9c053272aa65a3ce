"""The config file, the clock and the store."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from fsm.ports import StoreError
from session_router.config import Config
from session_router.config_sources import read_toml
from session_router.doctor.finding import Finding, counted, others_may_read, spoken
from storage.schema import VERSION, check_file, explain

YEAR_2024 = 1704067200.0
"""Unix seconds. A wall clock before it was never set."""



def config_file(config: Config) -> Iterable[Finding]:
    what, agents = spoken("config", "配置"), ", ".join(config.agents)
    if config.file is None:
        yield Finding(
            "ok", what, spoken(f"no file, so the defaults; agent: {agents}", f"没有文件，用默认值；agent：{agents}")
        )
        return
    if not read_toml(config.file):
        yield Finding(
            "warning",
            what,
            spoken(f"nothing stands in {config.file}, so the defaults; agent: {agents}",
                   f"{config.file} 里什么也没有，用默认值；agent：{agents}"),
            spoken("Write one with `session-router init --force`, or delete it.",
                   "用 `session-router init --force` 写一份，或删掉它。"),
        )  # fmt: skip
        return
    yield Finding("ok", what, spoken(f"{config.file}; agents: {agents}", f"{config.file}；agent：{agents}"))
    servers = (config.sources.opencode_server, config.sources.hermes_gateway)
    written = (getattr(server, "password", None) or getattr(server, "key", None) for server in servers if server)
    if (any(agent.password for agent in config.agents.values()) or any(written)) and others_may_read(config.file):
        yield Finding(
            "warning",
            what,
            spoken(
                f"others on this machine may read {config.file}, which may hold a password",
                f"本机的其他用户能读 {config.file}，里面可能有密码",
            ),
            spoken(
                f"Run `chmod 600 {config.file}`, or use password_env or password_file.",
                f"执行 `chmod 600 {config.file}`，或改用 password_env、password_file。",
            ),
        )


def clock(wall: Callable[[], float], monotonic: Callable[[], float]) -> Iterable[Finding]:
    what = spoken("clock", "时钟")
    if wall() < YEAR_2024:
        yield Finding(
            "problem",
            what,
            spoken(
                "the clock of this machine stands before 2024, so deadlines stored now are wrong",
                "本机时钟还在 2024 年以前，现在存下的期限都会是错的",
            ),
            spoken(
                "Set the clock, or switch on its synchronisation (timedatectl set-ntp true).",
                "校准时钟，或打开自动同步（timedatectl set-ntp true）。",
            ),
        )
    elif monotonic() > monotonic():
        yield Finding(
            "problem",
            what,
            spoken("the monotonic clock of this machine runs backwards", "本机的单调时钟在倒走"),
            spoken("Restart the machine, or the host of this virtual one.", "重启本机，或虚拟机所在的主机。"),
        )
    else:
        yield Finding("ok", what, spoken("set, and running forward", "已校准，正常向前"))


def _store_mend() -> str:
    return spoken(
        "Name another file as path under [store], or mend this one.", "在 [store] 的 path 里写另一个文件，或修好这个。"
    )


def store(path: Path) -> Finding:
    what = spoken("store", "存储")
    try:
        if not path.exists():
            return _new_store(path)
        check_file(path)
        if path.stat().st_size == 0:
            return Finding(
                "ok",
                what,
                spoken(f"{path} is empty and will be set up at the first start", f"{path} 是空的，第一次启动时建立"),
            )
        with path.open("rb") as file:
            version = int.from_bytes(file.read(64)[60:], "big")  # user_version, in SQLite's header
        # Opened as it is where nobody is at it: otherwise SQLite would put two files beside it.
        idle = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{idle}", uri=True)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM conversations").fetchone()
    except StoreError as error:
        detail, _, mend = str(error).partition(". ")
        return Finding("problem", what, detail, mend or _store_mend())
    except sqlite3.Error as error:
        detail, _, mend = explain(error, path).partition(". ")
        return Finding("problem", what, detail, mend or _store_mend())
    except OSError as error:
        return Finding(
            "problem",
            what,
            spoken(f"{path} cannot be read ({error.strerror})", f"{path} 读不了（{error.strerror}）"),
            _store_mend(),
        )
    old = (
        ""
        if version == VERSION
        else spoken(f", to be brought to {VERSION} at the next start", f"，下次启动升到 {VERSION}")
    )
    return Finding(
        "ok",
        what,
        spoken(
            f"{path}: schema {version}{old}, {counted(count, 'conversation')}",
            f"{path}：结构版本 {version}{old}，{count} 个对话",
        ),
    )


def _new_store(path: Path) -> Finding:
    what = spoken("store", "存储")
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return Finding(
            "problem",
            what,
            spoken(f"{folder} is a file, so {path} cannot be made", f"{folder} 是个文件，所以建不了 {path}"),
            _store_mend(),
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "problem",
            what,
            spoken(
                f"this user may not write in {folder}, where the store is to be made",
                f"存储要建在 {folder}，但当前用户不能写那里",
            ),
            spoken(
                "Give this user the right to write there, or set data_dir to another folder.",
                "给当前用户写权限，或把 data_dir 设为别的文件夹。",
            ),
        )
    return Finding("ok", what, spoken(f"{path} will be made at the first start", f"{path} 会在第一次启动时建立"))
