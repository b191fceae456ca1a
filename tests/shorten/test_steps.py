"""What is true of every way to shorten, and what no golden file can show of one."""

import json
import re

import pytest
from msgspec.structs import replace

from proxy.history.grouping import Flaws
from proxy.history.observations import OBSERVATIONS
from proxy.shorten.block import Block, close
from proxy.shorten.clear_results import ClearResults, ClipOutput, DedupArrivals, restore_repeated
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.pipeline import Draft, run
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.steps import STEPS, step_from_json, step_to_json
from proxy.shorten.tool_designs import ClearArguments, DedupOld, PruneTools, StripAttachments, ToolHints
from tests.support.compaction_worker import Worker
from tests.support.histories import IMAGE
from tests.support.messages import assistant, call, calls, history, mark_output, request, tool, user

BIG = "\n".join(f"{number} line_{number}" for number in range(250))
STEP = pytest.mark.parametrize("step", [make() for make in STEPS.values()], ids=lambda step: step.name)


def draft_of(*pieces, fixed=()):
    body = mark_output(request(*pieces).body, OBSERVATIONS)
    return Draft((), body, fixed=frozenset(fixed), origin=body)


@STEP
def test_where_nothing_may_be_touched_a_step_gives_back_what_it_was_given(step):
    nothing = Draft((), ())
    assert step(nothing) == nothing
    settled = draft_of(user("x"), call("Read", path="a", out=BIG), call("Read", path="a", out=BIG), fixed=range(5))
    assert step(settled).middle == settled.middle


@STEP
def test_a_step_survives_being_written_down(step):
    name, settings = json.loads(json.dumps(step_to_json(step)))
    assert step_from_json(name, settings) == step


def test_a_block_of_version_0_2_is_read_without_the_settings_that_are_gone():
    block = Block(1, (), always=(ClipOutput(over=700),))
    stored = json.loads(block.to_bytes())
    stored["always"][0][1]["outline"] = 0.3
    assert Block.from_bytes(json.dumps(stored).encode()) == block


def test_how_much_a_result_may_be_before_it_is_clipped_grows_with_the_window():
    draft = draft_of(user("x"), call("Read", out=BIG))
    small, large = (replace(draft, window=window) for window in (1_000, 100_000))
    assert ClipOutput(over=500)(small).middle != draft.middle
    assert ClipOutput(over=500)(large).middle == draft.middle


def test_a_result_long_only_in_its_json_or_short_in_lines_is_not_clipped():
    quotes = draft_of(user("x"), call("Read", out='"' * 400))
    assert len(quotes.middle[2].content) > 500
    assert ClipOutput(over=500)(quotes).middle == quotes.middle
    assert ClipOutput(over=500)(draft_of(user("x"), call("Read", out='"' * 600))).middle != quotes.middle
    lines = draft_of(user("x"), call("Read", out=BIG))
    assert ClipOutput(lines=250)(lines).middle == lines.middle
    assert ClipOutput(lines=249)(lines).middle == lines.middle  # to say what was left out would take more
    assert ClipOutput(lines=100)(lines).middle != lines.middle


@pytest.mark.parametrize(
    "step", [ClipOutput(lines=50), ClipOutput(over=100), DedupArrivals()], ids=lambda each: each.name
)
def test_a_cache_mark_decides_nothing(step):
    """Nor the list that a client makes of a text to put the mark in: on the next turn both may be gone."""
    for size in range(51, 90):
        text = "\n".join(f"x{line}" for line in range(size))
        part = {"type": "text", "text": text}
        forms = [text, [part], [{**part, "cache_control": {"type": "ephemeral"}}]]
        drafts = [draft_of(user("x"), call("Read", out=text), call("Read", out=form)) for form in forms]
        done = [[(message.made, message.text) for message in run((step,), draft)[0].middle] for draft in drafts]
        assert done[0] == done[1] == done[2]


def test_words_with_which_the_user_rejects_a_call_are_not_shortened():
    said = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to proceed, "
    )
    rejected = call("Edit", path="a.py", out=f"{said}the user said:\n" + "First look at the tests. " * 100)
    quoted = call("WebFetch", url="https://example.com", out=f"A log: {said}the user said:\n{BIG}")
    draft = draft_of(user("x"), rejected, quoted, call("Bash", command="ls", out=BIG))
    shortened = [message.made for message in ClearResults()(draft).middle if message.is_result]
    assert shortened == ["", "clear_results", "clear_results"]


def test_what_a_person_answered_stays():
    draft = draft_of(user("x"), call("Ask", question="How?", out=BIG), call("AskUserQuestion", question="So?", out=BIG))
    assert [message.made for message in ClearResults()(draft).middle if message.is_result] == ["", ""]


@pytest.mark.parametrize("tool", ["mcp__deepwiki__ask_question", "ask-gemini"])
def test_an_answer_of_a_model_or_a_search_is_cleared_like_other_output(tool):
    draft = draft_of(user("x"), call(tool, question="How?", out=BIG))
    assert [message.made for message in ClearResults()(draft).middle if message.is_result] == ["clear_results"]


def test_a_long_line_is_clipped_between_words():
    words = [f"Pietermaritzburg_{number}" for number in range(400)]
    (text,) = (
        message.text
        for message in ClipOutput(over=500)(draft_of(user("x"), call("sql", out=" ".join(words)))).middle[2:]
    )
    head, _, rest = text.partition("\n[…")
    assert {*head.split(), *rest.rpartition("]\n")[2].split()} <= {*words}


def test_a_line_of_an_error_that_stands_in_the_tail_in_part_is_not_told_as_if_it_ended_there():
    log = "\n".join([*["ready"] * 200, "ERROR the pool is exhausted", f"ERROR {'berth ' * 60}", "ready"])
    (text,) = (
        message.text for message in ClipOutput(over=1_000)(draft_of(user("x"), call("Bash", out=log))).middle[2:]
    )
    _, told, _ = re.split(r"tell of errors:\n|\n… end of what", text)
    assert told == "ERROR the pool is exhausted"


def test_a_result_that_was_clipped_first_is_described_as_it_came():
    log = f"{BIG}\nE   ValueError: no berth\n{BIG}\n=== 229 passed in 4.21s ==="
    draft = draft_of(user("x"), call("Bash", command="pytest", out=log))
    clipped = ClipOutput(over=3_000)(draft)
    assert clipped.middle[2].made == "clip_output"
    assert ClearResults(over=500)(clipped).middle[2].text == ClearResults(over=500)(draft).middle[2].text


def test_a_failed_edit_whose_error_is_a_pointer_to_the_same_error_changes_no_file():
    error = f"<tool_use_error>String to replace not found in file.\nString: {'x' * 600}</tool_use_error>"
    edits = [call("Edit", file_path="a.py", old_string="x", new_string="y", out=error) for _ in range(2)]
    draft = DedupArrivals()(draft_of(user("x"), call("Read", file_path="a.py", out=BIG), *edits))
    assert draft.middle[-1].made == "dedup_arrivals"
    assert "the file was changed or deleted since" not in ClearResults(over=500)(draft).middle[2].text


@pytest.mark.parametrize("settings", [{"over": 500}, {"lines": 20}])
def test_a_text_within_json_is_clipped_in_its_place_so_that_the_result_stays_json(settings):
    wrapped = {"exit_code": 0, "parts": [{"output": BIG}, {"output": "short"}, {"output": BIG.replace("line", "row")}]}
    draft = draft_of(user("x"), call("shell", command="make", out=json.dumps(wrapped)))
    left = json.loads(ClipOutput(**settings)(draft).middle[2].text)
    first, second, third = (part["output"] for part in left["parts"])
    assert (left["exit_code"], second) == (0, "short")
    assert first.startswith("0 line_0\n1 line_1\n")
    assert first.endswith("\n249 line_249")
    assert "left out here by the context proxy" in first
    assert third.endswith("\n249 row_249")
    assert len(json.dumps(left)) < len(json.dumps(wrapped)) * 0.7


def test_where_no_tool_is_to_be_removed_every_call_keeps_its_place():
    draft = draft_of(user("x"), call("Read", path="a", out=BIG), call("Never", out="short"))
    left = ToolHints((("never", "keep", "keep"),))(draft).middle
    assert [message.start for message in left] == [0, 1, 2, 3, 4]
    assert [message.made for message in left] == ["", "", "tool_hints", "", ""]


def test_pruned_tools_stay_away_while_the_block_applies():
    worker = Worker(Rules(when_full=(PruneTools(),)), Facts(force=True))
    messages, tools = history(user("x"), *[call("Read", out=BIG)] * 8), [tool("Read"), tool("Never", why="string")]
    first = worker.send(messages, tools=tools)
    worker.facts = Facts()
    second = worker.send([*messages, *assistant("Go on."), *user("Yes?")], tools=tools)
    for sent in (first, second):
        assert [each["function"]["name"] for each in json.loads(sent.left)["tools"]] == ["Read"]


def test_an_observation_without_its_picture_is_no_word_of_a_user_when_it_is_read_back():
    seen = user([{"type": "text", "text": "Observation: a screen"}, IMAGE])
    text = user([{"type": "text", "text": "What is it?"}, IMAGE])
    body = draft_of(text, assistant("I look."), seen, assistant("A cat."), user([IMAGE])).middle
    shorter = StripAttachments()(Draft((), body, origin=body)).middle
    again = Block(len(body), close(shorter)).apply(body)
    assert [message.made != "" for message in again] == [True, False, True, False, False]
    assert [(message.is_user, message.is_bulk) for message in again] == [
        (message.is_user, message.is_bulk) for message in body
    ]


def test_text_and_calls_of_the_assistant_stay_to_the_byte_by_default():
    written = call("Write", preamble="I write it. " * 300, path="a.py", content=BIG)
    ran = call("Bash", command=f"cat > b.py <<'E'\n{BIG}\nE", out=BIG)
    draft = draft_of(user("x"), written, ran, call("Edit", path="a.py", old=BIG, new=f"{BIG}\n#"))
    left, reports = run(Rules().when_full, draft)
    assert sum(report.messages for report in reports) == 1
    assert [message for message in left.middle if message.calls] == [one for one in draft.middle if one.calls]


def test_of_a_shortened_command_the_lines_stay_that_name_the_files_it_writes():
    command = f"set -e\ncat > a.py <<'E'\n{BIG}\nE\ncat > b.py <<'E'\n{BIG}\nE\npython b.py"
    draft = draft_of(user("x"), call("Bash", command=command))
    (shorter,) = ClearArguments(tools=("bash",), lines=2)(draft).middle[1].calls
    left = shorter.named["command"]
    assert left.startswith("set -e\ncat > a.py <<'E'\ncat > b.py <<'E'\n… [")
    assert left.endswith("by the context proxy; the tool received the full text] …\npython b.py")


LEFT_OUT = "[Left out by the context proxy: word for word the same as the result of Read({}) above.]"
SAME = [call("Read", path="a.py", out=BIG), call("Bash", command="make", out="ok"), call("Read", path="a.py", out=BIG)]


def draft_with_pointers():
    draft, _ = run((DedupArrivals(),), draft_of(user("x"), *SAME))
    assert draft.middle[6].text == LEFT_OUT.format("a.py")
    return draft


ALIKE = [call("Read", path="staging.conf", out=BIG), call("Read", path="production.conf", out=BIG)]


@pytest.mark.parametrize("known", range(5))
def test_a_pointer_names_the_earlier_call_wherever_the_reading_begins(known):
    body = draft_of(user("x"), *ALIKE).middle
    pointed = DedupArrivals()(Draft(body[:known], body[known:], origin=body))
    assert pointed.middle[-1].text == LEFT_OUT.format("staging.conf")


def test_a_pointer_to_a_result_without_its_call_names_none():
    body = draft_of(user("x"), *ALIKE).middle
    pointed = DedupArrivals()(Draft(body[2:3], body[3:], origin=body))
    assert pointed.middle[-1].text == LEFT_OUT.replace("the result of Read({})", "an earlier result")


def test_a_pointer_to_a_cleared_copy_says_so():
    cleared = ClearResults()(draft_with_pointers())
    assert cleared.middle[2].text.startswith("[Shortened by the context proxy: Read(a.py)")
    text = "[Left out by the context proxy: same as the result of Read(a.py), shortened above.]"
    assert cleared.middle[6].text == text


def test_a_pointer_to_a_kept_copy_is_unchanged():
    draft = draft_with_pointers()
    assert ClearResults()(replace(draft, fixed=frozenset({2}))).middle[6] == draft.middle[6]


def test_a_pointer_back_does_not_make_its_first_copy_obsolete():
    draft = draft_with_pointers()
    assert DedupOld()(draft).middle == draft.middle
    whole = draft_of(user("x"), *SAME)
    assert (
        DedupOld()(whole).middle[2].text
        == "[Removed by the context proxy: Read(a.py) was called again; see its newer result below.]"
    )


def test_a_repeated_result_is_whole_again_when_its_first_copy_went_into_a_block():
    rules = Rules(always=(DedupArrivals(),), clear_at_least=1_000, keep=Keep(tokens=500))
    reads = [call("Read", path=f"{number}.py", out=f"{number}\n{BIG}") for number in range(9)]
    sent = Worker(rules).send(history(user("x"), *reads, reads[0]))
    assert sent.plan.reason == "stride"
    results = [message["content"] for message in sent.messages if message["role"] == "tool"]
    assert results[0].startswith("[Shortened by the context proxy: Read(0.py)")
    assert results[-1] == f"0\n{BIG}"


def test_a_pointer_to_a_copy_that_is_wrapped_for_a_cache_mark_is_cleared_with_it():
    wrapped = json.loads(json.dumps(SAME[0]))
    wrapped[1]["content"] = [{"type": "text", "text": BIG, "cache_control": {"type": "ephemeral"}}]
    draft, _ = run((DedupArrivals(),), draft_of(user("x"), wrapped, SAME[2]))
    assert draft.middle[4].text == LEFT_OUT.format("a.py")
    assert ClearResults()(draft).middle[4].text.endswith("shortened above.]")


def test_the_first_pointer_to_a_result_that_is_gone_is_whole_again_and_the_next_one_names_it():
    reads = [call("Read", path=path, out=BIG) for path in ("a.py", "b.py", "c.py")]
    draft, _ = run((DedupArrivals(),), draft_of(user("x"), *reads))
    left = draft.middle
    assert restore_repeated(left, draft.origin) == left
    gone = restore_repeated((left[0], *left[3:]), draft.origin)
    assert gone[2] is draft.origin[4]
    assert gone[4].text == LEFT_OUT.format("b.py")
    assert restore_repeated(gone, draft.origin) == gone
    cleared = ClearResults()(replace(draft, fixed=frozenset({4, 6})))
    assert restore_repeated(cleared.middle, draft.origin) == cleared.middle


@pytest.mark.parametrize("lines", [20, 100])
def test_a_pointer_that_stays_in_a_fold_points_to_a_text_above(lines):
    skill = "\n".join(f"{number}. Run check {number} before the next step of it." for number in range(lines))
    worker = Worker(Rules(keep=Keep(tokens=500)), Facts(usable_tokens=6_000, can_summarize=False))
    pieces = [user("Release it."), call("Skill", skill="deploy", out=skill)]
    before, folds, pointers = [], 0, 0
    for number in range(40):
        again = call("Skill", skill="deploy", out=skill) if number % 8 == 3 else []
        pieces += [call("Read", path=f"{number}.py", out=f"{number}\n{BIG}"), again]
        sent = worker.send(history(*pieces))
        whole = set()
        for message in sent.plan.view:
            if message.text.startswith("[Left out by the context proxy: word for word"):
                assert sent.body[message.start].text in whole
                pointers += 1
            whole.add(message.text)
        assert sent.flaws == Flaws()
        assert sent.plan.action == "created" or sent.raws[: len(before)] == before
        folds += sent.plan.action == "created" and any(
            "replaces older messages" in each.text for each in sent.plan.view
        )
        before = sent.raws
    assert folds
    assert pointers


@pytest.mark.parametrize(("words", "stays"), [(4_700, True), (4_900, False)])
def test_in_the_room_for_exempt_calls_a_pointer_counts_as_the_whole_text(words, stays):
    skill = call("Skill", skill="deploy", out="word " * words)
    draft, _ = run((DedupArrivals(),), draft_of(user("x"), skill, skill, assistant("Done."), user("Go on.")))
    draft = replace(draft, middle=draft.middle[:-2], after=draft.middle[-2:])
    pointer = draft.middle[4]
    assert pointer.made == DedupArrivals.name
    assert (pointer in DropMiddle(exempt=("skill",))(draft).middle) == stays


def test_parallel_calls_point_back_to_one_another_too():
    draft = draft_of(user("x"), calls(("Read", {"path": "a"}, BIG), ("Read", {"path": "b"}, BIG)))
    assert DedupArrivals()(draft).middle[3].text == LEFT_OUT.format("a")


def test_a_pointer_says_that_the_call_failed_and_which_lines_were_read():
    failed = "<tool_use_error>String to replace not found in file." + " The text was not there." * 30
    edits = [call("Edit", file_path="a.tsx", old_string=f"{n}", new_string="x", out=failed) for n in range(2)]
    reads = [call("Read", file_path="b.go", offset=235, limit=20, out=BIG)] * 2
    left = DedupArrivals()(draft_of(user("x"), *edits, *reads)).middle
    pointers = [message.text for message in left if message.made == "dedup_arrivals"]
    assert "Edit(a.tsx) above (failed: String to replace not found in file." in pointers[0]
    assert pointers[1].endswith("the result of Read(b.go) for lines 235-254 above.]")
    searches = [call("Grep", pattern="TODO", path="src", limit=20, out=BIG)] * 2
    (pointer,) = (m.text for m in DedupArrivals()(draft_of(user("x"), *searches)).middle if m.made)
    assert pointer.endswith("the result of Grep(TODO in src) above.]")
