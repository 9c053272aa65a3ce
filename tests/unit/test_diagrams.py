"""The pictures say what the table says, in every format, whatever stands in a label."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import fsm.table
from fsm.conversation import Edge as Taken
from fsm.conversation import State
from fsm.reactions import ignore, mute, say_no_session
from fsm.rows import Row
from fsm.table import TABLE
from session_router.diagrams import (
    MACHINES,
    PicturesMissing,
    UnknownDrawing,
    check,
    draw,
    drawing,
    left_over,
    names,
    render,
    write_all,
)
from session_router.diagrams.__main__ import main
from session_router.diagrams.dot import dot
from session_router.diagrams.graph import (
    ANY,
    REST,
    Drawing,
    Edge,
    Node,
    Split,
    bundles,
    extract,
    live,
    named_groups,
    only,
)
from session_router.diagrams.mermaid import mermaid
from session_router.diagrams.sequence import Arrow, Note, sequence
from session_router.diagrams.table import table

COMMITTED = Path(__file__).parents[2] / "diagrams"

DRAWN = [row for row in TABLE if row.do is not ignore]
EACH_DRAWN = [pytest.param(row, id=row.name) for row in DRAWN]

AWKWARD = [
    "a # b",
    "a:b ::: c",
    "x; y",
    "say \"hi\" 'there'",
    "<b>bold</b> & more",
    "two\nlines",
    "中文，标点：；“引号”",
    "1. a list",
    "- another",
    "* star *",
    "__SILENT__ _x_",
    "##list_sessions##",
    "`code`",
    "%% comment",
    "{a} [b] (c) |d|",
    "a --> b",
    "back\\slash \\N \\n",
    "end",
    "http://example.org/?a=1",
    "[*]",
    "😀",
]


def of(rows: tuple[Row, ...]) -> Drawing:
    return extract(
        "conversation",
        rows,
        states=tuple(State),
        initial=State.IDLE,
        rests={State.SILENCED: "while muted", State.IDLE: "otherwise"},
        groups=named_groups(fsm.table),
    )


def labelled(words: str) -> Drawing:
    """A drawing with ``words`` wherever words can stand: name, event, guard, reaction, docstring, group, split."""
    named = f"s {words}"
    return Drawing(
        words,
        (Node("idle", 0, initial=True), Node(named, 1)),
        (
            Edge(("idle",), (words,), named, words, words, says=words, asks=words, goes=words),
            Edge(("idle",), (words,), "", words, words, group=words),
            Edge((ANY,), (words,), "", words, words),
            Edge((named,), (words,), REST, words, words, again=True),
        ),
        (Split("idle", words), Split(named, words)),
        ((words, (words,)),),
    )


def seen(svg: str) -> str:
    """The text that a person sees in an SVG, one space between words."""
    root = ElementTree.fromstring(svg)
    shown = [text for part in root.iter() if part.tag.rpartition("}")[2] in ("text", "tspan") for text in [part.text]]
    return " ".join(" ".join(filter(None, shown)).replace("\xa0", " ").split())


def times(svg: str, words: str) -> int:
    """How often ``words`` are seen, as they are or, in guards and effects, with spaces for underscores."""
    plain = one_line(words.replace("_", " "))
    return svg.count(one_line(words)) + (svg.count(plain) if plain != one_line(words) else 0)


def one_line(text: str) -> str:
    return " ".join(text.split())


# -- what is committed ----------------------------------------------------------------------------


def test_the_committed_files_are_what_the_tables_say_now() -> None:
    assert check(COMMITTED) == []


@pytest.mark.parametrize("name", ["conversation.mmd", "conversation.dot", "conversation.md"])
def test_the_committed_text_is_a_fresh_drawing_byte_for_byte(name: str) -> None:
    draws = {".mmd": mermaid, ".dot": dot, ".md": table}

    assert (COMMITTED / name).read_bytes() == draws[Path(name).suffix](of(TABLE)).encode()


def test_the_readme_shows_every_state() -> None:
    readme = (COMMITTED / "README.md").read_text(encoding="utf-8")

    assert [state.value for state in State if f"conversation-{state.value}.svg" not in readme] == []


def test_check_names_what_differs_what_is_missing_and_what_is_left_over(tmp_path: Path) -> None:
    for path in COMMITTED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert check(tmp_path) == []

    with (tmp_path / "conversation.mmd").open("a", encoding="utf-8") as file:
        file.write("\n")
    (tmp_path / "conversation.dot").unlink()
    (tmp_path / "conversation-idle.svg").write_text("<svg/>", encoding="utf-8")
    (tmp_path / "conversation-sulking.mmd").write_text("", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")

    assert check(tmp_path) == [
        "conversation-idle.svg",
        "conversation-sulking.mmd",
        "conversation.dot",
        "conversation.mmd",
    ]
    assert left_over(tmp_path) == ["conversation-sulking.mmd"]


def test_check_of_a_folder_that_is_not_there_names_every_file(tmp_path: Path) -> None:
    missing = check(tmp_path / "nowhere")

    assert "conversation.mmd" in missing
    assert "conversation-silenced.svg" in missing


def test_a_picture_of_an_older_table_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path)
    monkeypatch.setitem(MACHINES, "conversation", lambda: of(TABLE[1:]))

    assert {"conversation.svg", "conversation.mmd", "conversation-idle.svg"} <= set(check(tmp_path))


def test_the_module_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--check"]) == 0

    (tmp_path / "conversation.md").write_text("old", encoding="utf-8")

    assert main([str(tmp_path), "--check"]) == 1
    assert "conversation.md" in capsys.readouterr().err


def test_a_drawing_of_no_machine_is_to_be_removed_and_not_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_all(tmp_path)
    (tmp_path / "old.mmd").write_text("", encoding="utf-8")

    assert main([str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().err == "of no machine any more: old.mmd; remove them\n"


def test_nothing_of_fontconfig_is_seen_while_a_picture_is_drawn(capfd: pytest.CaptureFixture[str]) -> None:
    render("conversation", "svg")

    assert capfd.readouterr() == ("", "")


# -- what is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize("row", EACH_DRAWN)
def test_every_row_that_does_something_is_in_the_picture_and_in_the_table(row: Row) -> None:
    group = {events: name for name, events in named_groups(fsm.table).items()}.get(row.events, "")
    on = group if len(row.events) >= 3 else ", ".join(event.__name__ for event in row.events)
    guard = row.when.__name__.replace("_", " ") if row.when else ""
    does = row.do.__name__.replace("_", " ")
    line = f"{on} [{guard}] / {does}" if guard else f"{on} / {does}"

    assert re.search(rf"{re.escape(line)}( ↻)?$", html.unescape(mermaid_lines()), re.MULTILINE)
    assert re.search(
        rf"\| {re.escape(on)} \| {re.escape(guard)} \| [^|]* \| \*\*{re.escape(does)}\*\*",
        str(render("conversation", "table")),
    )
    assert f"/ {does}" in seen(str(render("conversation", "svg")))


def mermaid_lines() -> str:
    text = str(render("conversation", "mermaid")).replace("<br/>", "\n")
    return re.sub(r"#(\d+);", lambda code: chr(int(code[1])), text)


@pytest.mark.parametrize("state", [state.value for state in State])
def test_every_state_is_in_every_format(state: str) -> None:
    assert f"as {state}\n" in str(render("conversation", "mermaid"))
    assert f'"{state}" [label=' in str(render("conversation", "dot"))
    assert f"| {state} |" in str(render("conversation", "table"))
    assert state in seen(str(render("conversation", "svg")))


def test_what_is_ignored_stands_in_the_table_only() -> None:
    assert "ignore" not in str(render("conversation", "mermaid"))
    assert "ignore" not in str(render("conversation", "dot"))
    silent = [row for row in TABLE if row.do is ignore]
    assert str(render("conversation", "table")).count("**ignore**") == len(silent) > 0


def test_the_table_has_a_line_for_every_row_in_the_same_order() -> None:
    text = str(render("conversation", "table"))
    lines = [line.split(" | ")[-1] for line in text.split("does |\n")[1].split("\n\n")[0].splitlines()[1:]]

    assert [re.search(r"\*\*(.*?)\*\*", line)[1] for line in lines] == [  # type: ignore[index]
        row.do.__name__.replace("_", " ") for row in TABLE
    ]


def test_rest_is_a_choice_between_idle_and_silenced() -> None:
    text = str(render("conversation", "mermaid"))

    assert "state rest <<choice>>" in text
    assert "rest --> silenced : while muted" in text
    assert "rest --> idle : otherwise" in text


def test_an_event_answered_again_is_dashed_and_marked() -> None:
    again = [line for line in str(render("conversation", "mermaid")).splitlines() if "↻" in line and "-->" in line]
    dashed = [line for line in str(render("conversation", "dot")).splitlines() if "->" in line and "dashed" in line]

    assert [line.split(" : ")[0].strip() for line in again] == [
        "awaiting_selection --> rest",
        "awaiting_selection --> idle",
        "silenced --> idle",
    ]
    assert len(dashed) == 2 * len(again)


def test_groups_of_events_are_explained() -> None:
    text = str(render("conversation", "mermaid"))

    assert "TEXT#58; TextArrived, NumberGiven, CancelSaid" in text
    assert "ANSWERS" not in text, "only used where nothing is drawn"


def test_an_effect_with_a_docstring_is_explained_in_the_table() -> None:
    assert "**begin turn**: A turn keeps the session that it starts with" in str(render("conversation", "table"))


@pytest.mark.parametrize("format", ["mermaid", "dot", "table"])
@pytest.mark.parametrize("n", range(len(TABLE)), ids=[row.name for row in TABLE])
def test_a_dropped_row_changes_the_text(format: str, n: int) -> None:
    changed = draw(of((*TABLE[:n], *TABLE[n + 1 :])), format)  # type: ignore[arg-type]

    if format == "table" or TABLE[n].do is not ignore:
        assert changed != render("conversation", format)  # type: ignore[arg-type]
    else:
        assert changed == render("conversation", format)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"when": None}, {"do": mute}, {"goes": State.SILENCED}])
def test_a_changed_row_changes_the_text(change: dict[str, object]) -> None:
    row = next(row for row in TABLE if row.do is say_no_session)
    changed = of(tuple(replace(r, **change) if r is row else r for r in TABLE))  # type: ignore[arg-type]

    assert mermaid(changed) != mermaid(of(TABLE))
    assert dot(changed) != dot(of(TABLE))
    assert table(changed) != table(of(TABLE))


def test_the_picture_of_one_state_has_its_rows_and_no_others() -> None:
    shown = only(of(TABLE), "silenced")

    assert [edge.reaction for edge in shown.drawn] == [row.do.__name__ for row in DRAWN if State.SILENCED in row.states]
    assert {bundle.frm for bundle in bundles(shown)} == {"silenced"}
    assert set(shown.states) == {"silenced", "idle"}


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_name_is_drawn(name: str) -> None:
    assert str(render(name, "mermaid")).splitlines()[3] == "stateDiagram-v2"


@pytest.mark.parametrize("name", ["conversatio", "conversation-", "conversation-sulking", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownDrawing, match="there are conversation, conversation-idle, "):
        drawing(name)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownDrawing, match="'gif'; there are mermaid, dot, svg, png, table"):
        render("conversation", "gif")  # type: ignore[arg-type]


# -- awkward labels -------------------------------------------------------------------------------


@pytest.mark.parametrize("words", AWKWARD)
def test_graphviz_shows_any_label_as_it_is_written(words: str) -> None:
    svg = seen(str(draw(labelled(words), "svg")))

    assert times(svg, words) >= 15


@pytest.mark.parametrize("words", AWKWARD)
def test_mermaid_shows_any_label_as_it_is_written(words: str) -> None:
    mermaid_render = pytest.importorskip("mermaid_render.api", reason="pip install mermaid-render")
    svg = seen(mermaid_render.convert(mermaid(labelled(words)), format="svg").decode())

    assert times(svg, words) >= 10


@pytest.mark.parametrize("words", AWKWARD)
def test_a_sequence_shows_any_label_as_it_is_written(words: str) -> None:
    mermaid_render = pytest.importorskip("mermaid_render.api", reason="pip install mermaid-render")
    drawn = sequence([Arrow(words, "bot", words), Note("bot", words), Arrow("bot", words, words, "answers")])
    svg = seen(mermaid_render.convert(drawn, format="svg").decode())

    assert svg.count(one_line(words)) >= 4


@pytest.mark.parametrize("name", names())
def test_mermaid_accepts_what_is_committed(name: str) -> None:
    mermaid_render = pytest.importorskip("mermaid_render.api", reason="pip install mermaid-render")
    svg = seen(mermaid_render.convert((COMMITTED / f"{name}.mmd").read_text(encoding="utf-8"), format="svg").decode())

    assert [state for state in drawing(name).states if state not in svg] == []


@pytest.mark.parametrize("words", AWKWARD)
def test_a_markdown_cell_stays_one_cell(words: str) -> None:
    lines = table(labelled(words)).splitlines()
    rows = [line for line in lines if line.startswith("| ")]

    assert len(rows) == 1 + 4 + 2 + 2
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [6] * 5 + [3] * 4
    assert "<b>" not in "".join(lines)


def test_an_invisible_control_character_breaks_no_format() -> None:
    shown = labelled("bell\x07 null\x00 \ud800 end")

    assert "bell null end" in seen(str(draw(shown, "svg")))
    for format in ("mermaid", "dot", "table"):
        str(draw(shown, format)).encode()


def test_a_png_is_a_png() -> None:
    assert bytes(render("conversation", "png")).startswith(b"\x89PNG")  # type: ignore[arg-type]


def test_without_graphviz_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)

    with pytest.raises(PicturesMissing, match=re.escape('pip install ".[diagrams]"')):
        render("conversation", "svg")

    assert main([str(tmp_path)]) == 1
    assert (tmp_path / "conversation.mmd").exists(), "text needs nothing"
    assert str(render("conversation", "dot")).startswith("digraph")


# -- live -----------------------------------------------------------------------------------------

TRAIL = (
    Taken(1.0, "begin_turn", "TextArrived", "idle", "command_looping"),
    Taken(2.0, "go_on", "SessionFree", "command_looping", "command_looping"),
    Taken(3.0, "reply", "ModelReplied", "command_looping", "silenced"),
    Taken(4.0, "answer_at_once", "EngineCommandGiven", "silenced", "silenced"),
)


def test_a_live_picture_marks_the_state_and_numbers_the_last_steps() -> None:
    shown = live(of(TABLE), "silenced", TRAIL)

    assert shown.current == "silenced"
    assert {edge.reaction: edge.marks for edge in shown.edges if edge.marks} == {
        "begin_turn": (1,),
        "go_on": (2,),
        "reply": (3,),
        "answer_at_once": (4,),
    }
    assert {split.to: split.marks for split in shown.splits} == {"silenced": (3,), "idle": ()}


def test_a_live_picture_is_marked_in_every_format() -> None:
    where = ("silenced", TRAIL)

    text = str(render("conversation", "mermaid", where))
    assert 'state "silenced (now)" as silenced' in text
    assert "idle --> command_looping : (1) TEXT / begin turn" in text
    assert "(2) SessionFree / go on" in text

    assert "Now in **silenced**" in str(render("conversation", "table", where))
    assert "(3) **reply**" in str(render("conversation", "table", where))

    svg = seen(str(render("conversation", "svg", where)))
    assert "silenced (now)" in svg
    assert "(4) EngineCommandGiven" in svg


def test_the_newest_step_is_the_strongest() -> None:
    shown = live(of(TABLE), "command_looping", (TRAIL[0], Taken(5.0, "mute", "MuteAsked", "idle", "silenced")))
    arrows = [line for line in dot(shown).splitlines() if "penwidth" in line]

    widths = {line.split(" -> ")[1].split(" [")[0]: float(line.split("penwidth=")[1].rstrip("]")) for line in arrows}
    assert widths['"silenced"'] > widths['"command_looping"']


def test_the_same_row_taken_twice_has_both_numbers() -> None:
    shown = live(of(TABLE), "command_looping", (TRAIL[1], TRAIL[1]))

    assert [edge.marks for edge in shown.edges if edge.marks] == [(1, 2)]
    assert "(1) (2) SessionFree / go on" in mermaid(shown)


def test_one_reaction_in_two_rows_is_told_apart_by_event_and_state() -> None:
    gone = Taken(1.0, "say_list_is_gone", "SelectionExpired", "awaiting_selection", "idle")
    late = Taken(2.0, "say_list_is_gone", "TextArrived", "awaiting_selection", "idle")

    marked = [edge for edge in live(of(TABLE), "idle", (gone, late)).edges if edge.marks]

    assert [(edge.again, edge.marks) for edge in marked] == [(True, (2,)), (False, (1,))]


def test_a_step_of_a_row_that_is_no_more_keeps_its_number() -> None:
    shown = live(of(TABLE), "idle", (Taken(0.0, "sulk", "TextArrived", "idle", "idle"), TRAIL[0]))

    assert [edge.marks for edge in shown.edges if edge.marks] == [(2,)]


def test_a_live_picture_leaves_the_drawing_itself_alone() -> None:
    whole = of(TABLE)
    live(whole, "idle", TRAIL)

    assert whole == of(TABLE)


def test_a_state_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no state 'sulking'; there are idle, awaiting_selection"):
        live(of(TABLE), "sulking", ())


# -- sequences ------------------------------------------------------------------------------------


def test_a_run_is_drawn_in_its_order() -> None:
    drawn = sequence(
        [
            Arrow("Ann", "bot", "切换到 weather"),
            Note("bot", "idle"),
            Arrow("bot", "Ann", "Which?\n1. weather", "answers"),
            Arrow("bot", "model", "ask", "lost"),
        ],
        title="a switch",
    )

    assert drawn == (
        '---\ntitle: "a switch"\n---\n'
        "sequenceDiagram\n"
        "    participant p1 as Ann\n"
        "    participant p2 as bot\n"
        "    participant p3 as model\n"
        "    p1->>p2: 切换到 weather\n"
        "    Note over p2: idle\n"
        "    p2-->>p1: Which?<br/>1#46; weather\n"
        "    p2-xp3: ask\n"
    )


def test_an_empty_text_is_still_an_arrow() -> None:
    mermaid_render = pytest.importorskip("mermaid_render.api", reason="pip install mermaid-render")

    assert mermaid_render.convert(sequence([Arrow("a", "b", " ")]), format="svg")
