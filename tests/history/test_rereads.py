"""A second read that a harness refuses brings the text again, once the first result is shortened."""

import json

import pytest
from msgspec.structs import replace

from proxy.history.repeats import POINTERS, PROMISE, find_pointer_end
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.apis import each_other_api
from tests.support.compaction_worker import Worker
from tests.support.messages import call, history, user

TEXT = "\n".join(f"{number}→line {number} of the file" for number in range(200))
OTHER = "\n".join(f"line {number} of something else" for number in range(250))
POINTER = POINTERS["Claude Code"]
EDITED = "The file a.py has been updated successfully." + PROMISE
RULES = Rules(
    keep=Keep(tokens=1_000, groups=2),
    clear_at_least=2_000,
    min_groups=0,
    summary=SummaryRules(enabled=False),
)
READ = call("Read", file_path="a.py", out=TEXT)
REREAD = call("Read", file_path="a.py", out=POINTER)
WORK = [call("Read", file_path=f"{step}.py", out=f"{step}\n{OTHER}") for step in range(8)]


def follow(*pieces, worker=None, **options):
    """The results that the model reads after each request of a history that grows by one piece a request."""
    worker = worker or Worker(RULES, Facts(usable_tokens=60_000), **options)
    sent = None
    for stop in range(1, len(pieces) + 1):
        sent = worker.send(history(user("Mend it."), *pieces[:stop]))
    return [message for message in sent.plan.view if message.is_result], sent


@pytest.mark.parametrize("pointer", POINTERS.values(), ids=POINTERS)
def test_the_pointers_of_known_harnesses_are_known(pointer):
    text = pointer.replace("a.py", "my src/b.rs")
    assert find_pointer_end(text) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        f"The log says: {POINTER}",
        f"{POINTER} So it was deleted.",
        POINTER.upper(),
        POINTER[:-1],
        f"1\t{POINTER}",
        POINTERS["Hermes Agent"].replace('"unchanged"', '"changed"'),
        POINTERS["Hermes Agent"].replace('"path"', '"content"'),
        POINTERS["Hermes Agent"] + "!",
        POINTERS["Qwen Code 0.24"] + "!",
        '{"status": "unchanged"}',
        "[" * 500,
    ],
)
def test_a_text_that_only_holds_a_pointer_is_none(text):
    assert find_pointer_end(text) is None


def test_once_the_first_result_is_shortened_the_text_comes_in_place_of_the_pointer():
    results, sent = follow(READ, *WORK, REREAD)
    assert results[0].text.startswith("[Shortened by the context proxy: Read(a.py)")
    assert results[-1].text == TEXT
    assert len(sent.left) < len(sent.came)


def test_no_more_text_comes_again_than_the_block_has_saved():
    rules = replace(RULES, clear_at_least=500)
    steps = [call("Bash", command=f"echo {step}", out="ok") for step in range(8)]
    results, _ = follow(READ, *steps, REREAD, worker=Worker(rules, Facts(usable_tokens=60_000)))
    assert results[0].text != TEXT
    assert results[-1].text == POINTER


def test_a_second_pointer_stays_since_the_text_is_in_the_view_again():
    results, _ = follow(READ, *WORK, REREAD, REREAD)
    assert [message.text for message in results[-2:]] == [TEXT, POINTER]


def test_reminders_behind_a_pointer_stay():
    reminder = "\n<system-reminder>The user opened b.py.</system-reminder>"
    results, _ = follow(READ, *WORK, call("Read", file_path="a.py", out=POINTER + reminder))
    assert results[-1].text == TEXT + reminder


@pytest.mark.parametrize(
    "other",
    [
        call("Grep", path="a.py", pattern="unchanged", out=POINTER),
        call("Bash", path="a.py", command="git log -1", out=POINTER),
        call("Edit", file_path="a.py", old_string="a", new_string="b", out=POINTER),
        call("mcp__web__fetch", path="a.py", out=POINTER),
        call("Read", file_path="a.py", out=f"The file was deleted. It is not so that the {POINTER}"),
        call("Read", file_path="a.py", out=f"1\tPOINTER = '{POINTER}'"),
    ],
    ids=lambda other: other[0]["tool_calls"][0]["function"]["name"],
)
def test_a_result_that_is_no_pointer_stays_as_it_came(other):
    results, _ = follow(READ, *WORK, other)
    assert results[-1].text == other[1]["content"]


def test_a_promise_in_the_result_of_another_tool_stays():
    for text in (EDITED, f"{EDITED}\nThat is what the log says."):
        results, _ = follow(READ, *WORK, call("Grep", path="a.py", pattern="x", out=text))
        assert results[-1].text == text
    quoted = call("Edit", file_path="a.py", old_string="a", new_string="b", out=f"Error: 2 matches of {EDITED}!")
    assert follow(READ, *WORK, quoted)[0][-1].text == quoted[1]["content"]


def test_a_failed_read_is_no_text_of_the_file():
    failed = call("Read", file_path="a.py", out="The file is locked.")
    failed[1]["is_error"] = True
    results, _ = follow(READ, *WORK, failed, REREAD)
    assert results[-1].text == TEXT


def test_an_image_is_not_restored_as_text():
    shown = [{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    results, _ = follow(call("Read", file_path="a.py", out=shown), *WORK, REREAD)
    assert results[-1].text == POINTER


def test_a_search_in_the_file_is_no_edit():
    results, _ = follow(READ, *WORK, call("Grep", path="a.py", pattern="x", out="3: x"), REREAD)
    assert results[-1].text == TEXT


def test_a_pointer_to_other_lines_of_the_file_stays():
    part = call("Read", file_path="a.py", offset=10, limit=5, out=POINTER)
    results, _ = follow(READ, *WORK, part)
    assert results[-1].text == POINTER


def test_a_promise_goes_although_there_is_no_room_for_the_text():
    rules = replace(RULES, clear_at_least=500)
    edit = call("Edit", file_path="a.py", old_string="a", new_string="b", out=EDITED)
    steps = [call("Bash", command=f"echo {step}", out="ok") for step in range(8)]
    results, _ = follow(READ, *steps, REREAD, edit, worker=Worker(rules, Facts(usable_tokens=60_000)))
    assert [message.text for message in results[-2:]] == [POINTER, "The file a.py has been updated successfully."]


def test_after_the_model_wrote_the_whole_file_the_pointer_stays_true():
    write = call("Write", file_path="a.py", content=TEXT, out="File created successfully at: a.py" + PROMISE)
    results, _ = follow(READ, *WORK, write, REREAD)
    assert [message.text for message in results[-2:]] == ["File created successfully at: a.py" + PROMISE, POINTER]


def test_what_was_forwarded_stays_the_same_in_later_requests_and_on_another_worker():
    worker = Worker(RULES, Facts(usable_tokens=60_000))
    pieces = [READ, *WORK, REREAD, call("Bash", command="ls", out="x"), REREAD, call("Bash", command="pwd", out="y")]
    before = None
    for stop in range(1, len(pieces) + 1):
        sent = worker.send(history(user("Mend it."), *pieces[:stop]))
        if before is not None and sent.plan.action != "created":
            assert sent.raws[: len(before)] == before
        before = sent.raws
    cold = Worker(RULES, Facts(usable_tokens=60_000), store=worker.store)
    again = cold.send(history(user("Mend it."), *pieces))
    assert again.raws == before


def test_a_text_that_came_again_stays_whole_in_the_next_block():
    more = [call("Read", file_path=f"{step}.txt", out=f"{step}\n{OTHER}") for step in range(8)]
    results, _ = follow(READ, *WORK, REREAD, *more)
    assert [message.text for message in results].count(TEXT) == 1
    results, _ = follow(READ, *WORK, REREAD, *more, REREAD)
    assert results[-1].text == POINTER, "it is true again"


@each_other_api
def test_on_the_other_apis_too(api):
    results, sent = follow(READ, *WORK, REREAD, wire=api.wire, write=api.write)
    assert results[-1].text == TEXT
    assert json.dumps(TEXT, ensure_ascii=False).encode() in sent.left
