"""What a model reads in place of an old result: who wrote it, what it was, how it ended, how to get it back, and a few
of its lines with every gap marked.
"""

import json
import re
from itertools import islice
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.agents import OBSERVATIONS, mark_observations
from proxy.core.messages import ToolCall
from proxy.core.pipeline import Draft, run
from proxy.core.placeholder import (
    GAP,
    LABEL_CHARACTERS,
    Excerpts,
    find_names,
    list_texts,
    render_call,
    render_placeholder,
)
from proxy.core.rules import Rules
from proxy.core.steps.standard import ClearResults, ClipOutput
from tests.support import messages, recorded_traces
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import assistant, call, calls, parse_request, request, user

TEXT = "import os\nclass SessionState:\n    pass\n# plain words only\ndata = os.path.join(SessionState)\n"


LONG = "\n".join(f"{number} boats moor at berth_{number}" for number in range(60))
PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: b.md\n+z\n*** End Patch"


def tool_call(tool, **arguments):
    return ToolCall("c", tool, json.dumps(arguments))


def clear_results(*pieces, **settings):
    """The texts of the results of a history once they are cleared."""
    body = request(user("x"), *pieces).body
    left = ClearResults(**settings)(Draft((), body, origin=body)).middle
    return [message.text for message in left if message.is_result]


# --- the call ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "label"),
    [
        (tool_call("Read", file_path="/a/b.py", limit=3), "Read(/a/b.py)"),
        (tool_call("Grep", pattern="TODO|FIXME", path="proxy/core"), "Grep(TODO|FIXME in proxy/core)"),
        (tool_call("search_files", regex="def x", path="."), "search_files(def x in .)"),
        (tool_call("Bash", command="cd /src && go test ./...", description="Run"), "Bash(go test ./...)"),
        (tool_call("shell", command=["bash", "-lc", "cd /w && make test"], workdir="/w"), "shell(make test)"),
        (tool_call("shell", command=["ls", "-l"], workdir="/w", justification="Look"), "shell(ls -l)"),
        (tool_call("read_files", files=[{"path": "a.py"}, {"path": "b.py"}]), "read_files(a.py b.py)"),
        (tool_call("Other", n=1, odd="value"), "Other(value)"),
        (tool_call("Other", n=1), "Other()"),
        (
            tool_call("find_ferry", origin="JFK", destination="DTW", day="2024-05-17"),
            "find_ferry(JFK, DTW, 2024-05-17)",
        ),
        (tool_call("move_file", source="a.py", destination="lib/a.py"), "move_file(a.py)"),
        (tool_call("write_stdin", session_id=80697, chars=""), "write_stdin(80697)"),
        (tool_call("execute", command="", risk="LOW"), "execute()"),
        (ToolCall("c", "Custom", "free words"), "Custom(free words)"),
        (ToolCall("c", "apply_patch", PATCH, "custom"), "apply_patch(src/a.py, b.md)"),
        (tool_call("apply_patch", input=PATCH), "apply_patch(src/a.py, b.md)"),
    ],
)
def test_a_call_is_named_so_that_a_model_finds_it_again(asked, label):
    assert render_call(asked) == label


def test_a_long_label_is_cut_where_calls_are_alike_and_between_words():
    commands = [f"go test -tags=integration {'./cmd/entire/cli ' * 12} -run Test{name}" for name in ("Resume", "Reset")]
    first, second = (render_call(tool_call("Bash", command=command)) for command in commands)
    assert first.endswith("cli -run TestResume)")
    assert second.endswith("cli -run TestReset)")
    assert len(first) <= LABEL_CHARACTERS + len("Bash()")
    path = f"/home/dev/{'folder/' * 20}strategy/hooks.go"
    assert re.fullmatch(r"Read\(…/(?:folder/)+strategy/hooks.go\)", render_call(tool_call("Read", file_path=path)))


# --- the placeholder --------------------------------------------------------------------------------------------------


def test_a_placeholder_names_its_author_the_call_the_outcome_and_the_way_back():
    out = "\n".join(["Exit code 2", *(f"compiled part number {number}" for number in range(40)), "Error: no rule"])
    (text,) = clear_results(call("Bash", command="make all", out=out))
    first, *excerpt = text.split("\n")
    assert first == (
        "[Shortened by the context proxy: Bash(make all), 42 lines, 976 bytes, exit code 2: Error: no rule."
        ' "…" marks gaps. Only a new run returns the full text.]'
    )
    # The code is above.
    assert excerpt == ["compiled part number 0", "… 39 similar lines", "Error: no rule"]


def test_an_edit_is_not_to_be_called_again():
    out = "The file was updated.\n" + "\n".join(f"{number}\tline of the file" for number in range(60))
    (text,) = clear_results(call("Edit", file_path="a.py", old_string="a", new_string="b", out=out))
    assert "Read the file for its current text.]" in text
    assert "Call the tool again" not in text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("mcp__stripe__create_refund", {"charge": "ch_1"}),
        ("send_email", {"to": "a@b.c"}),
        ("get_or_create_ticket", {"title": "Clock"}),
        ("browser_click", {"ref": "e17"}),
        ("transferFunds", {"amount": 3}),
        ("open_ticket", {"title": "Clock"}),
        ("check_in_guest", {"guest": "A"}),
    ],
)
def test_a_tool_that_may_change_something_is_not_to_be_called_again(tool, arguments):
    (text,) = clear_results(call(tool, **arguments, out=LONG))
    assert "Calling the tool again would do it again.]" in text


@pytest.mark.parametrize(
    "line", ["./deploy.sh production", "curl -s -X POST https://a.example/orders", "gh pr merge 3"]
)
def test_the_placeholder_of_a_command_says_that_it_would_run_again(line):
    (text,) = clear_results(call("Bash", command=line, out=LONG))
    assert "Only a new run returns the full text.]" in text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "a.py"}),
        ("Bash", {"command": "sed -n 1,200p a.py"}),
        ("WebFetch", {"url": "https://a.example"}),
        ("mcp__jira__get_issue", {"key": "A-1"}),
        ("searchDocs", {"text": "clock"}),
        ("list_orders", {}),
    ],
)
def test_a_tool_that_only_reads_may_be_called_again(tool, arguments):
    (text,) = clear_results(call(tool, **arguments, out=LONG))
    assert "Call the tool again for the full text.]" in text


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
    assert "Article 0" in cleared


def test_of_a_list_of_short_texts_in_json_the_items_are_quoted_and_none_is_replaced():
    rows = [
        {"title": f"Result {n}", "snippet": f"Unit {n} made {n * 37} thousand, more than before. " * 6}
        for n in range(40)
    ]
    (text,) = clear_results(call("web_search", query="revenue", out=json.dumps(rows)))
    assert text.count("Shortened by the context proxy") == 1
    assert '{"title": "Result 0", "snippet": "Unit 0 made 0 thousand' in text


@pytest.mark.parametrize("size", [225, 900, 4_000])
def test_json_with_many_texts_is_clipped_to_its_limit(size):
    rows = [{"id": n, "body": f"{n} " + "word " * (size // 5)} for n in range(160_000 // size)]
    body = request(user("x"), call("list_mails", out=json.dumps(rows))).body
    left = ClipOutput(over=20_000)(Draft((), body, origin=body)).middle
    assert len(left[2].text) < 21_500


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Agent", {"description": "Find the berth", "prompt": "Where do boats moor?"}),
        ("write_stdin", {"session_id": 80697, "chars": ""}),
        ("BashOutput", {"bash_id": "b7"}),
    ],
)
def test_no_full_text_is_offered_of_a_tool_that_may_not_return_it_again(tool, arguments):
    out = "\n".join(f"{number} boats moor at berth_{number}" for number in range(60))
    (text,) = clear_results(call(tool, **arguments, out=out))
    assert "Calling the tool again may not return this text.]" in text
    assert "for the full text" not in text


def test_no_placeholder_refers_to_a_message_number():
    same = [call("Read", path="a.py", out="\n".join(f"{n} value_{n}" for n in range(200)))] * 2
    body = request(user("x"), *same).body
    left, _ = run((*Rules().always, ClearResults()), Draft((), body, origin=body))
    assert not [message.text for message in left.middle if re.search(r"#\d", message.text)]
    assert "same as the result of Read(a.py), shortened above" in left.middle[4].text


def test_a_template_of_earlier_versions_is_filled_still():
    text = render_placeholder(
        "{tool}({argument}) {rows} {bytes}{outcome} {handle}{names} {odd}", "a\nnaïve", tool_call("X", a="b")
    )
    assert text == "X(b) 2 lines 8  {odd}"


# --- results that are JSON --------------------------------------------------------------------------------------------

LISTING = "\n".join(f"{number}\tdef handler_{number}(): ..." for number in range(300))


def test_a_text_wrapped_in_json_is_shortened_in_its_place():
    out = json.dumps({"content": LISTING, "truncated": False})
    (text,) = clear_results(call("read_file", path="a.py", out=out))
    assert json.loads(text).keys() == {"content", "truncated"}
    first, *excerpt = json.loads(text)["content"].split("\n")
    assert first.startswith("[Shortened by the context proxy: read_file(a.py), 300 lines, ")
    assert set(excerpt) & set(LISTING.split("\n"))


def test_several_wrapped_texts_are_shortened_each_in_its_place():
    out = json.dumps(
        [{"query": "a.py", "result": LISTING}, {"query": "b.py", "result": LISTING.replace("handler", "other")}]
    )
    (text,) = clear_results(call("read_files", files=[{"path": "a.py"}, {"path": "b.py"}], out=out))
    assert [each["query"] for each in json.loads(text)] == ["a.py", "b.py"]
    assert all("300 lines" in each["result"] for each in json.loads(text))


def test_the_outcome_beside_a_wrapped_text_stays_and_its_errors_are_quoted():
    out = json.dumps({"output": f"{LISTING}\nValueError: no such berth\n", "metadata": {"exit_code": 1}})
    (text,) = clear_results(call("shell", command=["bash", "-lc", "pytest"], out=out))
    assert json.loads(text)["metadata"] == {"exit_code": 1}
    assert "contains errors: ValueError: no such berth" in json.loads(text)["output"]


def test_json_stays_json_with_its_members_and_fewer_items():
    rows = [{"id": f"eu-{number}x", "healthy": number != 7, "owner": None} for number in range(200)]
    (text,) = clear_results(
        call("get_status", region="eu", out=json.dumps({"build": "4f1c", "hosts": rows})), outline=0.5
    )
    excerpt = json.loads(text.split("\n", 1)[1])
    assert excerpt["build"] == "4f1c"
    assert excerpt["hosts"][0] == {"id": "eu-0x", "healthy": True, "owner": None}
    assert re.fullmatch(r"… \d+ more", excerpt["hosts"][-1])


def test_json_with_many_members_stays_json_and_short_json_stays_whole():
    wide = json.dumps({f"key_{number}": {"value": f"word {number}"} for number in range(40)})
    (text,) = excerpt(wide, 0.1)
    assert json.loads(text)[GAP] == "36 more"
    short = '{"output":"Success. Updated the following files:\\nM README.md\\n","metadata":{"exit_code":0}}'
    assert excerpt(short, 0.1) == [short]


# --- the excerpt ------------------------------------------------------------------------------------------------------


def excerpt(text, share=1.0, at_most=2_000, listed=0):
    return Excerpts(share, at_most, listed).excerpt(text).split("\n")


def test_errors_and_ends_stay_and_what_is_alike_is_counted():
    log = [f"2026-11-22 10:00:{number % 60:02} INFO request_{number} served in {number} ms" for number in range(500)]
    log[333] = "2026-11-22 10:05:33 ERROR request_333 lost its berth"
    text = excerpt("\n".join(log), 0.1, 400)
    assert {log[0], log[333], log[-1]} < {*text}
    assert [line for line in text if line.startswith(GAP)] == ["… 331 similar lines", "… 165 similar lines"]
    assert len(text) <= 6


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "Chunk ID: 17ae2b\nWall time: 0.1 seconds\nProcess exited with code 0\nOriginal token count: 9\nOutput:\n",
            "",
        ),
        ("Exit code: 0\nWall time: 0.1 seconds\nOutput:\n", ""),
        ("Here's the result of running `cat -n` on /src/a.py:\n", "\n[Current working directory: /src]"),
        (
            "The file /src/a.py has been edited. Here's a part of it:\n",
            "\nReview the changes and make sure they are right.",
        ),
        ("Chunk ID: 17ae2b\nWall time: 5.0 seconds\nProcess running with session ID 80697\nOutput:\n", ""),
        ("", "\n[The command completed with exit code 0.]"),
        ("", "\n(Open file: /src/a.py)\n(Current directory: /src)\nbash-$"),
    ],
)
def test_lines_of_a_harness_around_an_output_are_left_out_of_an_excerpt(before, after):
    output = "\n".join(f"line {number} of value_{number}" for number in range(90))
    text = excerpt(f"{before}{output}{after}", 0.1)
    assert [line for line in text if line not in output and not line.startswith(GAP)] == []
    assert text[-1] == output.rpartition("\n")[2]


def test_a_repeated_line_is_quoted_once():
    text = f"ERROR lost its berth\n{TEXT * 20}\nERROR lost its berth"
    assert excerpt(text, 0.3).count("ERROR lost its berth") == 1


def test_of_a_table_its_columns_stay():
    table = [
        " id | name  | price ",
        "----+-------+-------",
        *(f" {n} | item {n} | {n}.50 " for n in range(90)),
        "(90 rows)",
    ]
    text = excerpt("\n".join(table), 0.2)
    assert text[:2] == [line.rstrip() for line in table[:2]]
    assert text[-1] == "(90 rows)"


HARBOUR = "\n".join(
    f"def moor_{name}(berth_{name}, tide_{name}):\n    if tide_{name} < berth_{name}.depth_{name}:\n"
    f"        raise LookupError('a failed tide, and a warning')\n    return berth_{name}.lines_{name}\n"
    for name in map(chr, range(97, 123))
)


@pytest.mark.parametrize(
    "line",
    [
        "sed -n '1,200p' src/harbour.py",
        "cat src/harbour.py",
        "nl -ba src/harbour.py | sed -n '1,200p'",
        "cd src && head -200 harbour.py",
    ],
)
def test_a_file_that_a_command_line_prints_gets_the_excerpt_of_one_that_a_tool_reads(line):
    """Agents that have a shell and no other tool read files so, and quote them in their edits as others do."""
    (by_tool,) = clear_results(call("Read", file_path="src/harbour.py", out=HARBOUR))
    for arguments in ({"cmd": line}, {"command": ["bash", "-lc", line]}):
        (by_shell,) = clear_results(call("shell", **arguments, out=HARBOUR))
        assert by_shell.split("\n")[1:] == by_tool.split("\n")[1:]


@pytest.mark.parametrize(
    "line", ["grep -n moor src/harbour.py", "cat src/harbour.py | grep moor", "cat src/harbour.py && pytest", "ls src"]
)
def test_other_commands_get_a_shorter_excerpt_than_a_file(line):
    (by_tool,) = clear_results(call("Read", file_path="src/harbour.py", out=HARBOUR))
    (by_shell,) = clear_results(call("shell", cmd=line, out=HARBOUR))
    assert by_shell.count("\n") < by_tool.count("\n") / 2


@pytest.mark.parametrize(
    "ask",
    [
        {"tool": "Read", "file_path": "/var/harbour.log"},
        {"tool": "shell", "cmd": "tail -n 400 /var/harbour.log"},
    ],
)
def test_warnings_count_in_a_log_that_was_read(ask):
    rows = [f"10:{number:03} tide_{number} came in at berth_{number}" for number in range(200)]
    rows[31] = "10:031 warning: the tide is late"
    tool, arguments = ask["tool"], {key: value for key, value in ask.items() if key != "tool"}
    (text,) = clear_results(call(tool, **arguments, out="\n".join(rows)))
    assert rows[31] in text.split("\n")


def test_signatures_come_before_other_lines_with_names():
    text = "\n".join(f"value_{n} = compute({n})\ndef handle_{n}(one):" for n in "abcdef")
    assert len([line for line in excerpt(f"begin\n{text}\nend", 0.4) if line.startswith("def")]) >= 3
    assert not [line for line in excerpt(f"begin\n{text}\nend", 0.4) if line.startswith("value")]


DIFF = """diff --git a/proxy/core/state.py b/proxy/core/state.py
index 7bbb35b..0edaae9 100644
--- a/proxy/core/state.py
+++ b/proxy/core/state.py
@@ -10,7 +10,7 @@ the size of this
     if not cut:
         return nothing
     for step in steps:
-        most = cut + step
+        most = the larger of both
     return most
@@ -40,6 +40,7 @@ the state of this
     body = mark this
     if block is nothing:
         return bare
+    raise an error
     return bare"""


def test_lines_that_a_diff_adds_or_removes_stay_before_those_around_them():
    """Without names in them they went, and two lines stayed that the change had not touched."""
    found = excerpt(DIFF, share=0.4)
    changes = ["-        most = cut + step", "+        most = the larger of both", "+    raise an error"]
    assert [line for line in found if line[:1] in "+-"] == changes
    assert len(found) < DIFF.count("\n") - 4
    assert "+ not a change" not in excerpt("A list:\n+ not a change\n- nor this\n" + 40 * "some words here\n", 0.9)


def test_escapes_of_a_terminal_are_gone():
    assert excerpt("\x1b[31mred_apple\x1b[0m\r\n10%\r100% of file_a.py\nlast_line") == [
        "red_apple",
        "100% of file_a.py",
        "last_line",
    ]


def test_a_long_line_is_cut_between_words():
    (text,) = excerpt("Error: " + "many_words " * 200)
    assert text.endswith(f"many_words{GAP}")


def test_names_found_elsewhere_need_no_line_and_those_without_room_are_listed_once():
    excerpts = Excerpts(0.0, 0, 2)
    excerpts.keep(["we spoke of SessionState and os.path.join here"])
    assert excerpts.excerpt(TEXT) == ""
    assert Excerpts(0.0, 0, 2).excerpt(TEXT) == "Names in it: SessionState, os.path.join"


def test_of_paths_that_differ_by_a_hash_a_few_are_listed():
    hashes = [f"{number:08x}-aaaa-bbbb-cccc-0123456789ab" for number in range(9)]
    paths = " ".join(f".tides/{each}.json" for each in hashes)
    assert Excerpts(0.0, 0, 20).excerpt(f"{paths} src/one.py") == (
        f"Names in it: {', '.join(f'.tides/{each}.json' for each in hashes[:3])}, src/one.py"
    )
    commits = "deadbeef01 deadbeef02 deadbeef03 deadbeef04"
    assert Excerpts(0.0, 0, 20).excerpt(commits).split(": ")[1].split(", ") == commits.split()


def list_names(text, listed=20):
    return Excerpts(0.0, 0, listed).excerpt(text).removeprefix("Names in it: ").split(", ")


def test_words_of_prose_that_a_slash_joins_are_listed_only_where_they_are_a_folder():
    prose = "Set offset/limit and/or claim/handoff, see packages/tides for read/write of under_score"
    assert list_names(prose) == ["under_score"]
    assert list_names(f"{prose} packages/tides/src/a.py") == [
        "packages/tides",
        "under_score",
        "packages/tides/src/a.py",
    ]
    assert list_names("1 docs/tides 2 cd /docs/a_b/") == ["docs/tides", "/docs/a_b/"]


def test_keys_of_json_are_not_listed_and_what_they_hold_is():
    rows = [{"flight_type": "one_way", "payment_history": [{"payment_id": "gift_card_41"}], "src/a.py": "HB-7021"}]
    dense = json.dumps(rows, separators=(",", ":"))
    for text in (json.dumps(rows, indent=1), f"found {dense}", json.dumps({"o": dense}, indent=1)):
        assert sorted(list_names(text)) == ["HB-7021", "gift_card_41", "one_way", "src/a.py"]


def test_of_many_paths_that_differ_by_a_hash_no_more_are_listed_in_a_second_text():
    hashes = [f"{number:08x}" for number in range(9)]
    excerpts = Excerpts(0.0, 0, 20)
    paths = [f".tides/{each}.json" for each in hashes]
    assert excerpts.excerpt(" ".join(paths[:2])) == f"Names in it: {', '.join(paths[:2])}"
    assert excerpts.excerpt(" ".join(paths)) == f"Names in it: {paths[2]}"
    assert excerpts.excerpt(" ".join(paths[5:])) == ""


def test_no_excerpt_is_made_where_none_is_wanted():
    nothing = Excerpts(0.0, 1_000, 0)
    nothing.keep([TEXT])
    assert nothing.excerpt(TEXT) == ""
    assert nothing.kept_names == set()


@given(st.text(alphabet="ab_./1\n ", max_size=400), st.floats(0.01, 1))
def test_an_excerpt_holds_lines_that_there_are_and_marks_of_gaps(text, share):
    found = Excerpts(share, 200, 0).excerpt(text).split("\n")
    original = {line.rstrip() for line in text.split("\n")} | {""}
    assert {line for line in found if not line.startswith(GAP)} <= original


FILES_IN_RESULTS = ["skills/SKILL.md", "README.md", "src/explain.go", "test_a.py"]
KEPT_WHOLE = ["tests/test_a.py::test_b", "arn:aws:iam::123456789012:role/Name"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain words, getUser, a/b/c.py, x=1, v1.2.3, under_score", ["getUser", "a/b/c.py", "v1.2.3", "under_score"]),
        ("It goes once. Where. text: (see proxy/cli/transcripts.py:31:)", ["proxy/cli/transcripts.py"]),
        ("took 0.01s of 10_000 at 10:31:07 on 2026-11-22", []),
        ("C:\\r\\n\\r\\nThis. " + "z_" * 100, []),
        ("skills/SKILL.md:159:If ./README.md:89:/plugin src/explain.go:103-107 ./test_a.py:Test", FILES_IN_RESULTS),
        ("tests/test_a.py::test_b arn:aws:iam::123456789012:role/Name", KEPT_WHOLE),
        ("<system-reminder>x</system-reminder> </button> 1568694..443cd2b", []),
        ("src/one.py ./src/one.py", ["src/one.py"]),
        (
            "83:/berth 275:Current-tide 12:src/one.py: 7:under_score",
            ["/berth", "src/one.py", "under_score"],
        ),
        ("./cmd/integration_tes\u2026 https://www.marketwatch.c... see config.yaml", ["config.yaml"]),
        ("~/Work/tides/lint ~/.pi/a.json x~/b_c", ["~/Work/tides/lint", "~/.pi/a.json"]),
        ("${HERE}/src/one.py app/[slug]/page.tsx **/tide/*_a.py", ["src/one.py", "page.tsx", "tide/", "_a.py"]),
    ],
)
def test_a_name_has_something_specific_and_no_punctuation(text, found):
    assert list(find_names(text)) == found


def test_the_texts_of_a_message_are_those_inside_its_arguments_too():
    asked = request(calls(("Edit", {"edits": [{"new": "a"}, 3]}, ""), ("Raw", "{odd", ""), preamble="hm")).body[0]
    assert list_texts(asked) == ["hm", "a", "{odd"]
    assert list_texts(request(call("Read", out="x")).body[1]) == ["x"]


# --- on recorded conversations ----------------------------------------------------------------------------------------

EVERY = 8


@recorded_traces.needed
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_placeholders_of_recorded_results_are_short_and_quote_whole_lines():
    sizes, quoted, whole = [], 0, 0
    for record in islice(recorded_traces.conversations(), 0, None, EVERY):
        body = mark_observations(parse_request(messages.body(record["messages"])).body, OBSERVATIONS)
        left, _ = run(Rules().when_full, Draft((), body, origin=body))
        for old, new in zip(body, left.middle, strict=True):
            if new.made == "clear_results":
                first, *lines = new.text.split("\n")
                assert first[:1] in "[{", first
                assert "\x1b" not in new.text
                sizes.append(len(new.text))
                there = {line.strip() for line in old.text.split("\n")}
                marks = (GAP, "Names in ")
                quoted += sum(not line.startswith(marks) for line in lines)
                whole += sum(
                    line.strip() in there or line.endswith(GAP) for line in lines if not line.startswith(marks)
                )
    assert len(sizes) > 500
    assert median(sizes) <= 800
    assert whole / quoted >= 0.97


@pytest.mark.parametrize(
    "make", ["-".__mul__, ".".__mul__, lambda n: "a" + ":1" * n + "/"], ids=["ruler", "dots", "word"]
)
def test_a_ruler_a_row_of_dots_or_an_endless_word_costs_no_more_than_other_text(make):
    """A progress bar of 100 kB held the interpreter for minutes, and with it all that the worker served."""
    assert_grows_in_proportion(find_names, make, 3_000)


def test_a_long_line_without_blanks_costs_no_more_than_other_text():
    """Rulers are such lines, and whole pages of Chinese."""
    assert_grows_in_proportion(lambda line: Excerpts(0.1, 4_000, 10).excerpt(line), lambda n: "a\n" + "字" * n, 2_000)


# --- misleading results -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_an_excerpt_of_json_is_json_however_little_room_there_is(rows):
    issue = {"id": "2ceb7a6b", "title": "Introduce " + "a handler " * 20, "labels": {"a": "b" * 90, "c": "d" * 90}}
    excerpt = Excerpts(0.12, 400, 0).excerpt(json.dumps({"issues": [issue] * rows, "next": "n" * 200}))
    assert json.loads(excerpt)["issues"]
