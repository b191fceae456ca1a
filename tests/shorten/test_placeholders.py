"""The text that a model reads in place of an old result: who wrote it, the call, how it ended, how to get it back, and
every line that carries the outcome.

Calls with their labels are in a golden file, which `python -m tests.shorten.test_placeholders` writes again.
"""

import json
import re
from pathlib import Path

import pytest

from proxy.history.grouping import repair
from proxy.history.observations import OBSERVATIONS, mark_observations
from proxy.shorten.clear_results import ClearResults, ClipOutput
from proxy.shorten.outcome import ResultOutcome
from proxy.shorten.pipeline import Draft, run
from proxy.shorten.placeholder import LABEL_CHARACTERS, render_call, render_placeholder
from proxy.shorten.rules import Rules
from proxy.tools.tool_call import ToolCall
from tests.support.messages import assistant, call, request, user
from tests.support.written_steps import list_cases, list_given, read_call, write_cases

LABELS = Path(__file__).parent / "golden" / "labels"
LONG = "\n".join(f"{number} boats moor at berth_{number}" for number in range(60))


def tool_call(tool, **arguments):
    return ToolCall("c", tool, json.dumps(arguments))


def clear_results(*pieces, **settings):
    """The texts of the results of a history once they are cleared."""
    body = request(user("x"), *pieces).body
    left = ClearResults(**{"over": 500, **settings})(Draft((), body, origin=body)).middle
    return [message.text for message in left if message.is_result]


def name_call(case):
    (line,) = list_given(case)
    return f"{line}\n= {render_call(ToolCall('c', *read_call(line)))}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(LABELS))
def test_a_call_has_the_label_of_its_golden_file(sentence, case):
    assert name_call(case) == case


def test_a_long_label_is_cut_where_calls_are_alike_and_between_words():
    commands = [f"go test -tags=integration {'./cmd/entire/cli ' * 12} -run Test{name}" for name in ("Resume", "Reset")]
    first, second = (render_call(tool_call("Bash", command=command)) for command in commands)
    assert first.endswith("-run TestResume)")
    assert second.endswith("-run TestReset)")
    assert len(first) <= LABEL_CHARACTERS + len("Bash()")
    path = f"/home/dev/{'folder/' * 20}strategy/hooks.go"
    assert re.fullmatch(r"Read\(…/(?:folder/)+strategy/hooks.go\)", render_call(tool_call("Read", file_path=path)))


def test_a_placeholder_names_its_author_the_call_the_outcome_and_the_way_back():
    out = "\n".join(["Exit code 2", *(f"compiled part number {number}" for number in range(40)), "Error: no rule"])
    (text,) = clear_results(call("Bash", command="make all", out=out))
    first, *lines = text.split("\n")
    assert first == (
        "[Shortened by the context proxy: Bash(make all), 42 lines, 976 bytes, exit code 2: Error: no rule."
        " Left out: 39 other lines. Only a new run shows it, as it is then.]"
    )
    assert lines == ["compiled part number 38", "compiled part number 39", "Error: no rule"]


def test_thousands_of_errors_are_counted():
    (text,) = clear_results(
        call("Bash", command="make", out="\n".join(f"Error: part {n} is bad" for n in range(5_000)))
    )
    assert text.count("\n") < 50
    assert re.search(r"… 4,9\d\d more lines tell of errors$", text)


def test_no_placeholder_is_longer_than_the_result():
    out = "\n".join(f"Error: {number}" for number in range(12))
    assert clear_results(call("Bash", command="make " * 90, out=out), over=100) == [out]


def test_a_result_of_up_to_2500_bytes_stays_whole():
    body = request(user("x"), call("Bash", command="ls", out="xyzw\n" * 500), call("Bash", out="xyzw\n" * 501)).body
    left = ClearResults()(Draft((), body, origin=body)).middle
    assert [message.made for message in left if message.is_result] == ["", "clear_results"]


@pytest.mark.parametrize(
    "change",
    [
        call("Edit", file_path="a.py", old_string="x", new_string="y", out="The file was updated."),
        call("Bash", command="sed -i s/x/y/ a.py", out=""),
    ],
)
def test_the_placeholder_of_a_file_that_was_changed_later_says_so(change):
    read = call("Read", file_path="a.py", out=LONG)
    before, *_, after = clear_results(read, call("Read", file_path="b.py", out=LONG), change, read)
    assert ", the file was changed or deleted since. Call the tool again for its current text.]" in before
    assert "changed since" not in after


@pytest.mark.parametrize("following", [[], user("Error: no such plan. Stop.")], ids=["nothing", "the user"])
def test_a_file_counts_as_changed_by_a_call_whose_result_was_never_recorded(following):
    read, edit = call("Read", file_path="a.py", out=LONG), call("Edit", file_path="a.py", old_string="x")[:1]
    body = request(user("x"), read, edit, following).body
    left = ClearResults(over=500)(Draft((), repair(body, "chat"), origin=body)).middle
    texts = [message.text for message in left if message.is_result]
    assert ", the file was changed or deleted since." in texts[0]
    assert texts[1] == "[No result of this call was recorded.]"


def test_an_action_keeps_its_ids_and_its_last_lines():
    answer = {"id": "ch_3Qh", "status": "succeeded", "log": "\n".join(f"step {n} of it" for n in range(90))}
    (text,) = clear_results(call("charge_card", order=1042, amount_cents=4999, out=json.dumps(answer)))
    assert "id: ch_3Qh, status: succeeded" in text
    assert text.endswith("step 89 of it")


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgoA" * 400}}
OF_MESSAGES = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO" * 900}}


def test_the_placeholder_of_an_image_names_it_and_its_size():
    for image in (IMAGE, OF_MESSAGES, {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 4_000}):
        (text,) = clear_results(call("Read", file_path="mockup.png", out=[image]))
        size = len(json.dumps(image))
        assert text == (
            f"[Shortened by the context proxy: Read(mockup.png), 1 image, {size:,} bytes. Call the tool again for all "
            "of it.]"
        )


def test_a_short_text_beside_an_image_stays():
    said = {"type": "text", "text": "The page after the click, 1280 by 720."}
    (text,) = clear_results(call("browser_take_screenshot", out=[said, IMAGE, IMAGE]))
    first, *rest = text.split("\n")
    assert "browser_take_screenshot(), 1 line and 2 images, " in first
    assert rest == [said["text"]]


def test_an_image_that_just_arrived_is_not_clipped():
    for more in ([], [{"type": "text", "text": LONG * 20}]):
        body = request(user("x"), call("Read", file_path="mockup.png", out=[*more, IMAGE])).body
        assert ClipOutput(over=1_000)(Draft((), body, origin=body)).middle == body


FOUND = [
    {
        "type": "search_result",
        "source": f"https://kb/{n}",
        "title": f"Article {n}",
        "content": [{"type": "text", "text": LONG}],
    }
    for n in range(3)
]


def test_of_an_answer_with_output_behind_it_only_the_output_is_clipped():
    words = "I looked at each part of it. " * 400
    ask = assistant(f"{words}\nAction: run\nAction Input: make\nObservation: " + "0123456789 abcdef\n" * 6_000)
    body = mark_observations(request(user("x"), assistant("Hm."), ask, user("Go on.")).body, OBSERVATIONS)
    (clipped,) = (m for m in ClipOutput(over=3_000)(Draft((), body, origin=body)).middle if m.made)
    assert clipped.text.startswith(f"{words}\nAction: run\nAction Input: make\nObservation: 0123")
    assert len(clipped.text) < len(words) + 8_000


def test_search_results_are_read_like_other_text():
    body = request(user("x"), call("search_kb", query="berths", out=FOUND)).body
    (clipped,) = (m.text for m in ClipOutput(over=3_000)(Draft((), body, origin=body)).middle if m.is_result)
    assert clipped.startswith("Article 0\nhttps://kb/0\n0 boats moor at berth_0\n")
    assert clipped.endswith("59 boats moor at berth_59")
    (cleared,) = clear_results(call("search_kb", query="berths", out=FOUND))
    assert "search_kb(berths), 186 lines, " in cleared


@pytest.mark.parametrize("size", [225, 900, 4_000])
def test_json_with_many_texts_is_clipped_to_its_limit(size):
    rows = [{"id": n, "body": f"{n} " + "word " * (size // 5)} for n in range(160_000 // size)]
    body = request(user("x"), call("list_mails", out=json.dumps(rows))).body
    left = ClipOutput(over=20_000)(Draft((), body, origin=body)).middle
    assert len(left[2].text) < 21_500


def test_no_placeholder_refers_to_a_message_number():
    same = [call("Read", path="a.py", out="\n".join(f"{n} value_{n}" for n in range(200)))] * 2
    body = request(user("x"), *same).body
    left, _ = run((*Rules().always, ClearResults()), Draft((), body, origin=body))
    assert not [message.text for message in left.middle if re.search(r"#\d", message.text)]
    assert "same as the result of Read(a.py), shortened above" in left.middle[4].text


def test_a_template_of_its_own_is_filled():
    template, call = "{tool}({argument}) {rows} {bytes}{outcome} {odd}", tool_call("X", a="b")
    text = render_placeholder(template, "a\nnaïve", call, ResultOutcome())
    assert text == "X(b) 2 lines 8 {odd}"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: text,
        lambda text: json.dumps({"result": text}),
        lambda text: f"Wall time: 0.0255 seconds\nOutput:\n{json.dumps({'result': text})}",
        lambda text: json.dumps({"stdout": text, "stderr": "", "exit_code": 0}),
        lambda text: json.dumps({"content": [{"type": "text", "text": text}], "isError": False}),
        lambda text: json.dumps({"result": json.dumps({"log": text, "status": "rolled_back"})}),
        lambda text: f"{text}\n<shellId: 21 completed with exit code 0>",
        lambda text: f"{text}\n[Current working directory: /w]\n[The command completed with exit code 0.]",
    ],
    ids=["plain", "json", "Codex", "streams", "content", "json in json", "Copilot", "OpenHands"],
)
def test_frames_of_harnesses_are_taken_off_first(wrap):
    lines = [f"#{number} [{number}/90] RUN step layer sha256:{number:012x}" for number in range(90)]
    lines[40] = "ERROR: readiness probe failed with status 503"
    out = wrap("\n".join([*lines, "deploy id: dep_7741 state: ROLLED_BACK"]))
    (text,) = clear_results(call("mcp__ops__deploy", service="checkout", out=out))
    assert len(text) < 600
    assert "\nERROR: readiness probe failed with status 503\n" in text
    assert "deploy id: dep_7741 state: ROLLED_BACK" in text.split("\n")
    assert "failure" not in text.split("]\n")[0]


def test_data_in_json_keeps_its_short_members():
    rows = [{"id": f"eu-{number}x", "healthy": number != 7, "owner": None} for number in range(200)]
    (text,) = clear_results(call("restart", region="eu", out=json.dumps({"build": "4f1c", "hosts": rows})))
    assert text == (
        "[Shortened by the context proxy: restart(eu), 1 line, 10,119 bytes. "
        "Calling the tool again would do it again.]\nbuild: 4f1c, hosts: 200 entries"
    )


def test_the_lines_of_a_text_in_json_are_counted():
    log = "\n".join([*(f"compiled part {number}" for number in range(90)), "error: no rule"])
    (text,) = clear_results(call("mcp__ops__build", out=json.dumps({"build": log})))
    assert ", 91 lines, " in text
    assert "Left out: 88 other lines. " in text


def test_of_an_empty_output_it_is_not_pretended_that_something_was_left_out():
    wrapped = {
        "kind": "Observation",
        "output": "",
        "command": "grep -n x a.py",
        "metadata": {"paths": ["/opt/py_3"] * 80},
    }
    printed = f"{json.dumps(wrapped)}\n[The command completed with exit code 0.]\n[Current working directory: /w]"
    (text,) = clear_results(call("execute_bash", command="grep -n x a.py", out=printed))
    assert text == (
        "[Shortened by the context proxy: execute_bash(grep -n x a.py), no output, 0 bytes, exit code 0. Nothing was "
        "left out.]"
    )


@pytest.mark.parametrize(
    "out",
    [
        {"output": "", "items": LONG},
        {"output": "x", "command": "ls", "more": LONG},
        {"stdout": "", "stderr": "", "exit_code": 0, "result": [{"id": n, "name": f"berth {n}"} for n in range(60)]},
        {"output": "", "exit_code": 0, "logs": [f"line {n} of the log" for n in range(60)]},
    ],
)
def test_other_members_beside_an_empty_output_are_no_wrapping(out):
    (text,) = clear_results(call("execute_bash", command="ls", out=json.dumps(out)))
    assert "no output" not in text


@pytest.mark.parametrize(("lines", "left_out"), [(1, "Left out: 1 line. "), (2, "Left out: 2 other lines. ")])
def test_a_placeholder_counts_the_lines_that_it_leaves_out(lines, left_out):
    text = "error: no rule" + "\nmade" * lines
    tool = ToolCall("c", "build", "{}")
    assert render_placeholder("{left_out}", text, tool, ResultOutcome(lines=("error: no rule",))) == left_out


def test_data_in_one_line_of_json_is_one_line():
    comment = {"url": "https://api.example/7", "diff_hunk": "@@ -1 +1 @@\n" + "-a line\n" * 400}
    (text,) = clear_results(call("get_comment", id=7, out=json.dumps(comment)))
    assert "get_comment(7), 1 line, " in text


def test_a_search_names_the_files_that_it_was_limited_to():
    (text,) = clear_results(call("Grep", pattern="^import", glob="cmd/*.go", out=LONG))
    assert "Grep(^import in cmd/*.go)" in text


def test_each_argument_is_named_whole_or_not_at_all():
    arguments = {"subject": "A card", "description": "long words " * 20, "activeForm": "Making a card"}
    (text,) = clear_results(call("TaskMake", **arguments, out=LONG))
    assert "TaskMake(subject: A card, description: " in text
    assert "Making a card" not in text


if __name__ == "__main__":
    write_cases(LABELS, name_call)
