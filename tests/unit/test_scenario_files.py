"""What a scenario file may say, and what is said of one that is wrong: the line and the mend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from session_router.scenario.files import Scenario, ScenarioError, read, read_text
from session_router.scenario.play import play

HEAD = """scenario: x
agent: {name: mohe, groups: {team@muc.example: {allow: [hmo@example.org]}}}
sessions: [{id: ses_a, title: A, active: -60}]
model: [one]
steps:
  - message: {channel: console, sender: u1, text: hi, id: m1}
"""
"""Lines 1 to 6 of most files here."""


def step(text: str) -> str:
    """A file whose second step, in line 7, is ``text``."""
    return f"{HEAD}  - {text}\n"


def expecting(text: str) -> str:
    """A file that expects ``text`` in line 7."""
    return f"{HEAD}    expect: {text}\n"


def message(facts: str) -> str:
    """A file with a message of these facts in line 7."""
    return step(f"message: {{channel: c, sender: u, {facts}}}")


def answer(text: str) -> str:
    """A file whose model says ``text`` in line 2."""
    return f"scenario: x\nmodel: [{text}]\nsteps:\n  - wait: 1\n"


def sessions(text: str) -> str:
    """A file with these sessions in line 2."""
    return f"scenario: x\nsessions: [{text}]\nsteps:\n  - wait: 1\n"


def cli(words: str) -> str:
    return step(f"cli: [{words}]")


BOMB = "scenario: x\nmodel:\n  - &a [x]\n" + "".join(
    f"  - &{name} [{', '.join([f'*{before}'] * 9)}]\n" for name, before in zip("bcdefghi", "abcdefgh", strict=True)
)
CHAIN = "scenario: x\nmodel:\n  - &a0 [x]\n" + "".join(f"  - &a{n + 1} [*a{n}]\n" for n in range(300))
FORM = r"expected \[send, TEXT, SESSION_ID, --agent, NAME\]"

NUMBERS = [
    (answer("{text: a, takes: .nan}"), 2, "model 1, takes: expected a finite number, not nan"),
    (answer("{text: a, takes: .inf}"), 2, "takes: expected a finite number, not inf"),
    (answer("{text: a, takes: -5}"), 2, "takes: expected a number of at least 0, not -5"),
    (answer("{text: a, takes: true}"), 2, "takes: expected a number, not true"),
    (answer('{text: a, takes: "3"}'), 2, "takes: expected a number, not '3'"),
    (answer("{text: a, takes: 1e300}"), 2, r"takes: expected a number of at most 3162240000, not 1e\+300"),
    (answer("{repeat: a, times: 0}"), 2, "times: expected a number of at least 1, not 0"),
    (answer("{repeat: a, times: -1}"), 2, "times: expected a number of at least 1, not -1"),
    (answer("{repeat: a, times: 1000000000}"), 2, "times: expected a number of at most 10000"),
    (answer("{repeat: a, times: 1.5}"), 2, "times: expected a whole number, not 1.5"),
    (answer("{text: a, tokens: {in: -1}}"), 2, "model 1, tokens, in: expected a number of at least 0, not -1"),
    (sessions("{id: a, active: .nan}"), 2, "sessions 1, active: expected a finite number, not nan"),
    (sessions("{id: a, active: -1e11}"), 2, "active: expected a number of at least -3162240000"),
    (sessions("{id: a, messages: [{role: user, text: a, at: .nan}]}"), 2, "messages 1, at: expected a finite number"),
    (step("wait: -1"), 7, "steps 2, wait: expected a number of at least 0, not -1"),
    (step("wait: .inf"), 7, "wait: expected a finite number, not inf"),
    (step("wait: true"), 7, "wait: expected a number, not true"),
    (step('wait: "3"'), 7, "wait: expected a number, not '3'"),
    (step("at: .nan"), 7, "at: expected a finite number, not nan"),
    (step("at: -1"), 7, "at: expected a number of at least 0, not -1"),
    (step("wall_jump: 1e300"), 7, "wall_jump: expected a number of at most"),
    (step("wall_jump: .nan"), 7, "wall_jump: expected a finite number"),
    (step("late_timers: -1"), 7, "late_timers: expected a number of at least 0"),
    (step("fail_send: 0"), 7, "fail_send: expected a number of at least 1, not 0"),
    (step("fail_send: true"), 7, "fail_send: expected a whole number, not true"),
    (step(f"fail_send: {'9' * 5000}"), 7, "fail_send: expected a whole number"),
    (expecting("{deadline: .nan}"), 7, "expect, deadline: expected a finite number"),
    (expecting("{loops: -1}"), 7, "expect, loops: expected a number of at least 0, not -1"),
    (step("wait: 2e9") + "  - wait: 2e9\n", 8, "wait: up to here more than a hundred years may pass; make it less"),
    (step("wall_jump: -2e9") + "  - wall_jump: -2e9\n", 8, "wall_jump: up to here more than a hundred years"),
    (answer("{repeat: a, times: 9999, takes: 1e6}"), 2, "model 1: up to here more than a hundred years may pass"),
]

TIMES = [
    (f"start: {start}\nscenario: x\nsteps: [{{wait: 1}}]\n", 1,
     r"start: expected an instant from 1970 on like 2026-01-15T08:00:00Z, not ")
    for start in (
        ".inf", ".nan", "1e300", "-1", "true", "''", "2026-13-01", "2026-02-30", "2026-01-15 08:00 +8", "noon",
        "0001-01-01T00:00:00+14:00", "9999-01-01T00:00:00Z", "[1]",
    )
] + [
    (step("at: 50") + "  - at: 10\n", 8, "steps 3, at: 10 is past, the clock stands at 50 at least"),
    (step("wait: 50") + "  - at: 10\n", 8, "at: 10 is past, the clock stands at 50 at least"),
    (sessions("{id: a, messages: [{role: user, text: a, at: 0}, {role: user, text: b, at: -9}]}"), 2,
     "sessions 1, messages: the line at -9 stands behind that at 0; put the earliest first"),
    (sessions("{id: a, active: -60, messages: [{role: user, text: a, at: 0}]}"), 2,
     "sessions 1: active -60 is before its newest line at 0; leave it out"),
]  # fmt: skip

NOTHINGS = [
    *((step(f"{verb}:"), 7, f"steps 2: `{verb}` has no value; write one, or leave the key out")
      for verb in ("message", "messages", "wait", "at", "wall_jump", "restart", "crash_at", "sessions", "cli",
                   "fail_send", "late_timers", "model", "expect", "wait_reply")),
    *((f"{key}:\nscenario: x\nsteps: [{{wait: 1}}]\n", 1, f"`{key}` has no value")
      for key in ("start", "agent", "sessions", "model")),
    *((expecting(f"{{{key}: null}}"), 7, f"`{key}` has no value")
      for key in ("of", "loops", "sent", "sent_has", "sent_count", "sent_to", "dispositions", "queued", "commands",
                  "model_calls", "journal")),
    ("scenario:\nsteps: [{wait: 1}]\n", 1, "`scenario` has no value"),
    ("scenario: ''\nsteps: [{wait: 1}]\n", 1, "scenario: expected a text that is not empty, not ''"),
    ("scenario: x\nsteps:\n", 2, "`steps` has no value"),
    ("scenario: x\nsteps: []\n", 2, r"steps: expected at least one entry, not \[\]"),
    ("scenario: x\n", 1, "the key `steps` is missing"),
    ("", 1, "is empty; expected `scenario: NAME` and `steps:`"),
    ("# nothing\n", 1, "is empty"),
    ("- a\n", 1, "expected a mapping with `scenario:` and `steps:`"),
    (step("messages: []"), 7, "messages: expected at least one entry"),
    (step("model: []"), 7, "model: expected at least one entry"),
    (step("sessions: {}"), 7, "sessions: nothing changes; give add, update or remove"),
    (step("sessions: {update: [{id: ses_a}]}"), 7, "update 1: nothing changes; beside the id give title, active"),
    (step("crash_at: {}"), 7, r"crash_at: expected \{before: KIND\} or \{after: KIND\}"),
    (step("crash_at: {before: null}"), 7, "crash_at: `before` has no value"),
    (step("crash_at: {before: send, after: send}"), 7, r"crash_at: expected \{before: KIND\} or \{after: KIND\}"),
    (step("restart: false"), 7, "restart: only true means something here; otherwise leave the key out"),
    (step("restart: 1"), 7, "restart: expected true or false, not 1"),
    (step("expect: {state: idle}"), 7, "a step has one verb .* this one has none"),
    (step("wait: 1\n    at: 2"), 7, "this one has wait and at"),
    (step("wait: 1\n    wait_reply: false"), 8, "`wait_reply` means something beside `message` or `messages` only"),
    (expecting("{}"), 7, "expect: nothing is expected; name something, or leave `expect` out"),
    (expecting("{of: {channel: c, sender: u}}"), 7, "expect: nothing is expected"),
    (expecting("{sent_has: []}"), 7, "sent_has: expected at least one entry"),
    (expecting("{prompt_has: ''}"), 7, "prompt_has 1: expected a text that is not empty|prompt_has: expected a text"),
    (expecting("{dispositions: {}}"), 7, "dispositions: expected a list or at least one entry"),
    (message("text: null"), 7, "message: `text` has no value"),
    (message("text: a, id: ''"), 7, "message, id: expected a text that is not empty"),
    (step("message: {channel: '', sender: u, text: a}"), 7, "channel: expected a text that is not empty"),
    (answer("{repeat: null, times: 2}"), 2, "model 1: `repeat` has no value"),
    (answer("{error: null}"), 2, "model 1: `error` has no value"),
    (answer("{hang: false}"), 2, "model 1, hang: only true means something here"),
    (answer("{}"), 2, "an answer is one of text, error, hang: true, or repeat with times; this one has none of them"),
]  # fmt: skip

ANSWERS = [
    (answer("{text: a, hang: true}"), 2, "model 1: an answer is one of .*; this one has text and hang"),
    (answer("{text: a, times: 3}"), 2, "model 1: `times` means nothing beside `text`; it stands with repeat"),
    (answer("{hang: true, takes: 3}"), 2, "`takes` means nothing beside `hang`"),
    (answer("{error: a, tokens: {in: 1}}"), 2, "`tokens` means nothing beside `error`; it stands with text or repeat"),
    (answer("{text: a, denied: b}"), 2, "`denied` is said when leave was asked for and not given; it stands with asks"),
    (answer("{text: a, tokens: {inn: 1}}"), 2, "model 1, tokens: unknown key `inn`; did you mean `in`?"),
    (answer("{text: a, tokens: {input: 1}}"), 2, "model 1, tokens: unknown key `input`; known here: in, out"),
    (answer("3"), 2, r"model 1: expected a text, null, or a mapping .*, not 3 \(put it in quotes\)"),
    (answer("[x]"), 2, r"model 1: expected a text, null, or a mapping .*, not \['x'\]"),
    (step("model: [{txt: a}]"), 7, "steps 2, model 1: unknown key `txt`; did you mean `text`?"),
]

SESSIONS = [
    *((sessions(f"{{id: {name}, source: {source}}}"), 2, "sessions 1, id: No session can be called")
      for name in ("../../evil", "/etc/passwd", "..", "''", '"a\\0b"', "a" * 300)
      for source in ("journal", "opencode")),
    (step("sessions: {update: [{id: ../../evil, title: x}]}"), 7, "update 1, id: No session can be called"),
    (step("sessions: {remove: [../../evil]}"), 7, "remove 1: there is no session ../../evil here; there are: ses_a"),
    (sessions("{id: a}, {id: a}"), 2, "sessions 2, id: there is a session a already; give this one another id"),
    (step("sessions: {add: [{id: ses_a, source: journal}]}"), 7, "add 1, id: there is a session ses_a already"),
    (step("sessions: {update: [{id: zz, title: a}]}"), 7, "update 1, id: there is no session zz here"),
    (step("sessions: {remove: [zz]}"), 7, "remove 1: there is no session zz here"),
    (step("sessions: {remove: [ses_a, ses_a]}"), 7, "remove 2: there is no session ses_a here; there are: none"),
    (step("sessions: {delete: [ses_a]}"), 7, "sessions: unknown key `delete`; known here: add, remove, update"),
    (step("sessions: {update: [{id: ses_a, source: journal}]}"), 7, "update 1: unknown key `source`"),
    (step("sessions: {add: [{id: j, source: journal}]}") + "  - sessions: {update: [{id: j, messages: []}]}\n", 8,
     "update 1, messages: of a session of ours only `title` and `active` can be updated"),
    (sessions("{id: a, source: journal, archived: true}"), 2, "a session of ours has no `archived`"),
    (sessions("{id: a, source: journal, parent: b}"), 2, "a session of ours has no `parent`"),
    (sessions("{id: a, source: hermes, talks: true}"), 2, "a session with `talks` has the source of its agent"),
]  # fmt: skip

COMMAND_LINES = [
    (step("cli: []"), 7, FORM),
    (step("cli: send hello"), 7, FORM),
    (cli("clear"), 7, FORM),
    (cli("send"), 7, f"Missing argument 'TEXT'; {FORM}"),
    (cli("send, a, b, c"), 7, f"unexpected extra argument .c.; {FORM}"),
    (cli("send, ''"), 7, "cli: the text is empty"),
    (cli("send, hi, ''"), 7, "cli: the session id is empty"),
    (cli("send, 1.5"), 7, r"cli: expected a text, not 1.5 \(put it in quotes\)"),
    (cli("send, ses_a"), 7, r"cli: ses_a is a session; the text to send is missing: \[send, TEXT, ses_a\]"),
    (cli("send, hi, ses_zz"), 7, "cli: there is no session ses_zz here; there are: ses_a"),
    (cli("send, hi, --agent, nobody"), 7, "cli: there is no agent nobody; the one of this scenario is mohe"),
    (cli("send, hi, --agent"), 7, "Option '--agent' requires an argument"),
    (cli("send, -rf, ses_a"), 7, "There is no option -r; a text that begins with a dash goes behind --"),
    (cli("send, --help"), 7, "There is no option --help"),
    (cli("send, hi, --json"), 7, "There is no option --json"),
    (HEAD.replace("agent: {name", "agent: {name: bot} # {") + "  - cli: [send, hi]\n", 7,
     "cli: bot is in no group to say it in; give it one"),
]  # fmt: skip

YAML = [
    ("scenario: x\nsteps: " + "[" * 3000 + "]" * 3000, 2, "nested more than 50 deep; write it flatter"),
    ("scenario: x\nsteps: " + "{a: " * 3000 + "}" * 3000, 2, "nested more than 50 deep"),
    ("scenario: x\nsteps:\n" + "".join(f"{' ' * n}-\n" for n in range(1, 200)), 52, "nested more than 50 deep"),
    ("scenario: x\nsteps: &a\n  - *a\n", 2, "an alias stands inside of what it names; write out what is meant"),
    ("scenario: x\nsteps:\n  - &a {<<: *a, wait: 3}\n", 3, "an alias stands inside of what it names"),
    (BOMB, 9, "this is more than 1,000,000 values, aliases included; make it smaller"),
    (CHAIN, 53, "nested more than 50 deep"),
    (step("*nowhere"), 7, "this is not YAML: found undefined alias 'nowhere'"),
    (step("{<<: 3, wait: 3}"), 7, "`<<` takes over the keys of a mapping, or of a list of mappings"),
    (step("{<<: {wait: 1}, <<: {at: 1}}"), 7, "the key `<<` stands twice; keep one of them"),
    (step("wait: 3\n    wait: 4"), 8, "the key `wait` stands twice; keep one of them"),
    (step("? [a]\n    : 3"), 7, "a key has to be a text"),
    (step("3: 4"), 7, "unknown key `3`"),
    (step("~: 4"), 7, "unknown key `~`"),
    (HEAD + "\t- wait: 3\n", 7, "this is not YAML: found character"),
    (message('text: "a\x07b"'), 7, r'YAML has no character U\+0007 as it is; write it in double quotes as "\\u0007"'),
    (message('text: "\\Uffffffff"'), 7, "this is not YAML: an escape in double quotes names no character"),
    (message("text: !!binary '***'"), 7, "the tag !!binary means nothing here; leave it out, and put a text in quotes"),
    (step("wait: !!int abc"), 7, "the tag !!int means nothing here"),
    (step("wait: !foo 3"), 7, "the tag !foo means nothing here"),
    (message("text: 123"), 7, r"message, text: expected a text, not 123 \(put it in quotes\)"),
    (message("text: true"), 7, r"message, text: expected a text, not true \(put it in quotes\)"),
    (message("text: a, id: 1.50"), 7, r"message, id: expected a text, not 1.5 \(put it in quotes\)"),
    *((step(f"wait: {odd}"), 7, f"wait: expected a number, not '{odd}'")
      for odd in ("1:30", "010", "0x10", "0o10", "1_000", "yes", "2026-01-15")),
    ('scenario: "\\ud800"\nsteps: [{wait: 1}]\n', 1, "scenario: expected a text without halves of characters"),
]  # fmt: skip

PLACES = [
    ("scenario: x\nstep: []\n", 2, "unknown key `step`; did you mean `steps`?"),
    (step("mesage: {}"), 7, "steps 2: unknown key `mesage`; did you mean `message`?"),
    (step("wait"), 7, "steps 2: expected a mapping with keys of message, messages, .*, not 'wait'"),
    ("scenario: x\nsteps: {wait: 3}\n", 2, "steps: expected a list, not {'wait': 3}"),
    ("scenario: x\nagent: [a]\nsteps: [{wait: 1}]\n", 2, r"agent: expected a mapping, not \['a'\]"),
    ("scenario: x\nagent:\n  name: a\n  alises: [b]\nsteps: [{wait: 1}]\n", 4,
     "agent, alises: unknown key `alises`; did you mean `aliases`?"),
    ("scenario: x\nagent:\n  groups:\n    team@muc.example:\n      alow: [a]\nsteps: [{wait: 1}]\n", 5,
     "agent, groups, team@muc.example, alow: unknown key `alow`; did you mean `allow`?"),
    ("scenario: x\nagent:\n  groups:\n    a@b.c: {}\n    d@e.f:\n      allow: 3\nsteps: [{wait: 1}]\n", 6,
     "agent, groups, d@e.f, allow: expected a list, not a number"),
    (message("txt: a"), 7, "message: unknown key `txt`; did you mean `text`?"),
    (step("message:\n      channel: c\n      sender: u"), 7, "message: the key `text` is missing"),
    (step("message:\n      channel: c\n      sender: 7\n      text: a"), 9, "message, sender: expected a text, not 7"),
    (expecting("{state: idel}"), 7, "expect, state: expected 'idle', .*, not 'idel'"),
    (expecting("{journal: [turn_strat]}"), 7, "expect, journal 1: expected 'turn_start', .*, not 'turn_strat'"),
    (expecting("{journal: x}"), 7, "expect, journal: expected a list or a whole number, not 'x'"),
    (expecting("{dispositions: {m1: repliet}}"), 7, "dispositions, m1: expected 'replied', .*, not 'repliet'"),
    (expecting("{dispositions: {m7: replied}}"), 7, "expect, dispositions, m7: no message so far has the id m7"),
    (expecting("{sent_has: 3}"), 7, r"sent_has: expected a text or a list of texts, not 3 \(put it in quotes\)"),
    (expecting("{commands: [[a]]}"), 7, r"commands: commands are pairs: \[name, argument\]"),
    (HEAD + "---\nscenario: y\nstepz: []\n", 9, "unknown key `stepz`; did you mean `steps`?"),
]  # fmt: skip

WRONG = NUMBERS + TIMES + NOTHINGS + ANSWERS + SESSIONS + COMMAND_LINES + YAML + PLACES
NAMES = [f"{number} {problem[:50]}" for number, (_, _, problem) in enumerate(WRONG)]


@pytest.mark.parametrize(("text", "line", "problem"), WRONG, ids=NAMES)
def test_what_is_wrong_is_said_with_its_line_and_its_mend(text: str, line: int, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem) as found:
        read_text(text, "story.yaml")

    assert found.value.line == line
    assert str(found.value).startswith(f"story.yaml:{line}: ")


def test_a_file_that_is_not_there_or_no_text_is_said_too(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.yaml:1: cannot be read"):
        read(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"scenario: caf\xe9\n")
    with pytest.raises(ScenarioError, match=r"latin\.yaml:1: is not UTF-8 text \(byte 13\)"):
        read(tmp_path / "latin.yaml")


@pytest.mark.parametrize("text", [answer("{text: a, takes: .nan}"), BOMB, step("crash_at:"), step("cli: []")])
def test_replay_ends_with_2_and_the_place_at_once(text: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text, encoding="utf-8")

    command = [sys.executable, "-m", "session_router", "replay", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 2
    assert f"{file}:" in done.stderr
    assert "unforeseen" not in done.stderr
    assert done.stdout == ""


# -- what means what it looks like ---------------------------------------------------------------------


def one(text: str) -> Scenario:
    (scenario,) = read_text(text)
    return scenario


@pytest.mark.parametrize(
    "text",
    ["12:30", "2026-02-30", "2026-01-15", "yes", "no", "on", "off", "y", "010", "0x1f", "0o17", "1_000", "=", "<<",
     "1.2.3", "+", ".", "1e", "+.", "Yes"],
)  # fmt: skip
def test_a_text_that_only_looks_like_something_else_is_a_text(text: str) -> None:
    (said,) = one(message(f"text: {text}")).steps[1].said

    assert said.text == text


@pytest.mark.parametrize("id", ["010", "7", "-5", "12:30", "1_000", "0", "123456789012345678901"])
def test_an_id_is_what_stands_there_to_the_last_digit(id: str) -> None:
    scenario = one(message(f"text: a, id: {id}") + f"    expect: {{dispositions: {{{id}: replied}}}}\n")

    step = scenario.steps[1]
    assert [said.id for said in step.said] == [id]
    assert step.expect is not None
    assert step.expect.dispositions == {id: "replied"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3), ("0.5", 0.5), (".5", 0.5), ("1e3", 1000), ("+2", 2), ("1.", 1), ("0", 0)]
)
def test_a_number_is_a_decimal(text: str, seconds: float) -> None:
    assert one(step(f"wait: {text}")).steps[1].wait == seconds


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("2026-01-15T08:00:00Z", 1768464000), ('"2026-01-15T08:00:00Z"', 1768464000), ("1768464000.5", 1768464000.5),
        ("2026-01-15 08:00:00", 1768464000), ("2026-01-15T16:00:00+08:00", 1768464000), ("2026-01-15", 1768435200),
        ("0", 0),
    ],
)  # fmt: skip
def test_the_start_is_an_instant_in_utc_unless_it_says_otherwise(text: str, start: float) -> None:
    assert one(f"scenario: x\nstart: {text}\nsteps: [{{wait: 1}}]\n").start == start


def test_anchors_aliases_and_merge_keys_save_writing_things_twice() -> None:
    scenario = one("""
scenario: x
sessions: [{id: ses_a, title: A, active: -60}]
model: [&answer {text: one, takes: 2}, *answer, {<<: *answer, text: three}]
steps:
  - message: &alice {channel: console, sender: alice, text: hi}
    expect: &heard {sent: [one], disposition: replied}
  - message: {text: again, <<: *alice}
    expect: *heard
  - message: {<<: [{text: third}, *alice], sender: bob}
    expect: {<<: *heard, sent: [three], sent_to: console/bob}
""")

    assert [said.text for step in scenario.steps for said in step.said] == ["hi", "again", "third"]
    run = play(scenario)
    assert run.failed == []
    assert run.steps[-1].t == 6


def test_the_words_of_a_cli_step_are_taken_as_the_command_line_takes_them() -> None:
    for words, said in {
        "send, hello": "hello",
        "send, 12:30, ses_a": "12:30",
        "send, -5, ses_a, --agent, mohe": "-5",
        "send, '- one more', ses_a": "- one more",
        "send, --agent=mohe, --, -rf, ses_a": "-rf",
    }.items():
        scenario = one(cli(words) + f"    expect: {{sent: ['{said}'], sent_to: 'xmpp:team@muc.example'}}\n")
        assert play(scenario).failed == [], words


# -- what only the run can tell ------------------------------------------------------------------------


def test_time_that_an_answer_took_is_past_as_well() -> None:
    scenario = one("scenario: x\nmodel: [{text: a, takes: 100}]\nsteps:\n"
                   "  - message: {channel: c, sender: u, text: hi}\n  - at: 10\n")  # fmt: skip

    assert play(scenario).failed == ["<text>:5: at: 10 is past, it is 100 s already"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("sessions: {remove: [ses_abcdefghijkl]}", "sessions: there is no session ses_abcdefghijkl to remove"),
        ("sessions: {update: [{id: ses_abcdefghijkl, title: a}]}", "sessions: there is no session ses_abcdefghijkl to"),
        ("cli: [send, hi, ses_abcdefghijkl]", "cli: There is no session ses_abcdefghijkl."),
    ],
)
def test_a_session_that_the_bot_might_have_made_and_has_not_fails_its_step(change: str, problem: str) -> None:
    (failed,) = play(one(step(change))).failed

    assert failed.startswith(f"<text>:7: {problem}")


def test_one_that_the_bot_has_made_can_be_taken_away() -> None:
    made = "scenario: x\nmodel: [a]\nsteps:\n  - message: {channel: c, sender: u, text: hi, id: m1}\n"
    session = play(one(made)).steps[0].bound

    run = play(one(f"{made}  - sessions: {{remove: [{session}]}}\n    expect: {{bound: null}}\n"))

    assert session is not None
    assert run.failed == []


def test_a_session_that_talks_changes_and_goes_like_any_other() -> None:
    run = play(one("""
scenario: x
sessions: [{id: ses_t, title: deploy, active: -60, talks: true}, {id: ses_b, title: other, active: -90}]
model: [fine]
steps:
  - sessions: {update: [{id: ses_t, title: rollout}]}
  - message: {channel: c, sender: u, text: /sessions}
    expect: {sent_has: ["1. rollout · agent", "2. other"], sent_lacks: deploy}
  - message: {channel: c, sender: u, text: "1"}
    expect: {bound: ses_t, sent_has: rollout}
  - message: {channel: c, sender: u, text: is it up}
    expect: {sent: [fine]}
  - sessions: {remove: [ses_t]}
  - message: {channel: c, sender: u, text: /sessions}
    expect: {sent_has: "1. other", sent_lacks: rollout}
"""))

    assert run.failed == []
