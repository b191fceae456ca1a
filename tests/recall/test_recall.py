"""Recall: what comes back for a number, a range, some lines or a text, and when the tool is offered."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from proxy import recall
from proxy.recall import RECALL, TOOLS_MAX, EarlierMessages, offer_tool, withdraw_tool
from proxy.shorten.clear_results import ClearResults, ClipOutput
from proxy.shorten.fold import fold_stretches
from proxy.shorten.pipeline import Draft
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import assistant, call, calls, system, tool, user
from tests.support.messages import request as chat
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden"
LONG = "\n".join(f"line {number} of the file" for number in range(1, 101))
HISTORY = chat(
    system("Be brief."),
    user("What is it?"),
    call("Read", out=LONG, path="a.py"),
    assistant("A file, «é»."),
    user("And?"),
)
ALL_LINES = "(all lines of the file)"
DEFINITION = b'{"type":"function","function":{"name":"recall_earlier_output"}}'
LARGE = 10_000


def ask(room=LARGE, **arguments):
    return EarlierMessages(HISTORY.body).answer(json.dumps(arguments), room)


CODE = 'def greet(name="you"):\n    print("hello " + name)\n'
WRITTEN = chat(
    user("Write it."),
    call("Write", preamble="First\nthe file.", file_path="a.py", content=CODE),
    call("Bash", command="""grep -n "TODO" a.py"""),
    call("Edit", path="C:\\work", old="one", new="two"),
).body


IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
HISTORIES = {
    "a file": HISTORY.body,
    "calls": WRITTEN,
    "an image": chat(user("Look."), call("Look", out=IMAGE), user("And?")).body,
}


def judge(case):
    """A history and the arguments of a recall, and what comes back."""
    (line,) = list_given(case)
    name = next(name for name in HISTORIES if line.startswith(name))
    answer = EarlierMessages(HISTORIES[name]).answer(line.removeprefix(name).strip(), LARGE)
    return "\n".join([line, *(f"| {row}" for row in answer.replace(LONG, ALL_LINES).split("\n"))])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_what_comes_back_is_what_the_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_a_match_within_a_call_is_in_the_line_of_that_call():
    body = chat(calls(("Bash", "ls\nls", "ok"), ("Write", {"content": CODE}, "ok"), preamble="Both.")).body
    answer = partial(EarlierMessages(body).answer, room_bytes=LARGE)
    assert answer(json.dumps({"search": '"hello "'})).startswith("[1] assistant, line 4: ")
    assert answer(json.dumps({"messages": "1", "lines": "4"})) == f"Write({json.dumps({'content': CODE})})"


def test_deeply_nested_arguments_are_searched():
    deep = 800
    body = chat(calls(("Do", '{"a": ' + "[" * deep + '"\\u0061"' + "]" * deep + "}", "ok"))).body
    assert EarlierMessages(body).answer('{"search": "do({"}', LARGE).startswith("[1] assistant, line 1: Do(")
    assert EarlierMessages(body).answer('{"search": "nothing"}', LARGE) == "No message holds this text."


def test_a_recall_without_room_is_cut_at_a_line_and_says_so():
    text = ask(room=1_000, messages="3")
    *lines, last = text.split("\n")
    assert lines == LONG.split("\n")[: len(lines)]
    assert last == f"[… cut here by the context proxy, in line {len(lines)} of 100]"
    assert "in line 61 of 100" in ask(room=250, messages="3", lines="50-100")
    assert "no room" in ask(room=100, messages="3")


def test_the_recall_tool_comes_after_the_others_with_unchanged_bytes():
    tools = json.dumps([tool("Read"), tool("Bash")]).encode()
    offered = offer_tool(tools, DEFINITION)
    assert json.loads(offered) == [*json.loads(tools), json.loads(DEFINITION)]
    assert withdraw_tool(offered, DEFINITION) == tools
    assert offer_tool(offered, DEFINITION) == offered


@pytest.mark.parametrize(
    "tools", [None, b"null", b"[ ]", json.dumps([tool(f"t{number}") for number in range(TOOLS_MAX)]).encode()]
)
def test_the_tool_is_not_offered_alone_nor_beside_too_many(tools):
    assert offer_tool(tools, DEFINITION) == tools


def test_a_shortened_result_says_how_to_recall_it():
    body = HISTORY.body
    draft = Draft((), body, recalls=True)
    for step in (ClearResults(over=1_500), ClipOutput(over=500)):
        text = step(draft).middle[2].text
        assert f'{RECALL.name} with messages "3"' in text
        assert ask(messages=re.search(r'messages "(\d+)"', text)[1]) == LONG
    bare = ClearResults(over=1_500, template="[Previous: used {tool}]")(draft).middle[2].text
    assert bare == f'[Previous: used Read] [Call {RECALL.name} with messages "3" for the full text.]'
    folded = fold_stretches(draft, {id(body[0]), id(body[4])}, "What was done.")
    (note,) = [each for each in folded.middle if "What was done." in each.text]
    assert f'{RECALL.name} with messages "1-4"' in note.text


def test_without_the_tool_no_placeholder_mentions_it():
    draft = Draft((), HISTORY.body)
    assert RECALL.name not in ClearResults()(draft).middle[2].text
    assert RECALL.name not in ClipOutput(over=500)(draft).middle[2].text


def test_the_schema_is_small():
    definition = json.dumps({"name": RECALL.name, "description": RECALL.description, "parameters": RECALL.parameters})
    assert len(definition) < 1_000


def test_a_search_ignores_case_and_gives_the_words_as_they_stand():
    earlier = EarlierMessages(chat(user("\u0130stanbul \u1f48\u0394\u039f\u03a3 Stra\u00dfe"), assistant("x")).body)
    for text in ("\u0130STANBUL", "istanbul", "\u1f40\u03b4\u03bf\u03c2", "\u1f40\u03b4\u03bf\u03c3", "STRA\u00dfE"):
        assert earlier.answer(json.dumps({"search": text}), LARGE).endswith(
            "\u0130stanbul \u1f48\u0394\u039f\u03a3 Stra\u00dfe"
        )


def test_a_text_of_any_length_has_its_places_where_they_were():
    """Python makes other numbers of characters of some letters."""
    letters = "".join(map(chr, range(0x110000)))
    match = recall.find_text("\U0010ffff")(letters)
    assert letters[match.start : match.stop] == "\U0010ffff"


def test_only_the_beginning_of_a_long_text_is_searched_for():
    line = "a line of a file " * 20
    earlier = EarlierMessages(chat(user("x"), call("Read", path="a", out=line), assistant("y")).body)
    answer = earlier.answer(json.dumps({"search": line[:300]}), LARGE)
    assert answer.startswith("[3] result of Read, line 1: a line of a file")
    assert answer.endswith("Only the first 200 characters of the text were searched for.")


def test_the_cost_of_a_search_grows_with_what_is_searched():
    """An expression that ignores case took the product of both lengths: 11 s for 8,000 letters in 100,000."""

    def search(made):
        body, text = made
        EarlierMessages(body).answer(json.dumps({"search": text}), LARGE)

    def make(count):
        return chat(user("x"), call("Read", path="a", out="a" * 100 * count), assistant("y")).body, "a" * count + "b"

    assert_grows_in_proportion(search, make, 1_000)
