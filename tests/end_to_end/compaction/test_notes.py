"""Notes before old results are shortened, seen from outside: a real proxy, an agent, and a model that writes them."""

import json

from tests.support.agent import compactions, reading
from tests.support.compacting_proxy import metric
from tests.support.scripted_upstream import text_turn
from tests.support.summary_model import summary_ended

NOTE = "part_3.py:12 part_3_12() adds 36; `make test` failed with: 2 errors. The branch is frozen."
WORK = reading(16, size=2_400)
STRIDES = {
    "clear_at_least": 3_000,
    "when_full": [{"clear_results": {}}],
    "summary": {"notes": 400},
}


def asks_for_notes(request):
    return bool(request.body) and "are about to be shortened" in json.dumps(request.json["messages"][-1]["content"])


def write_notes(text):
    def script(request):
        return text_turn(text if asks_for_notes(request) else "Go on.")

    return script


async def test_notes_stand_where_results_are_shortened_and_the_cached_history_is_asked(small_window_stack):
    async with small_window_stack(write_notes(NOTE), **STRIDES) as (up, agent, proxy):
        ended = await metric(proxy, "summaries_total")
        first, due = await agent.send(WORK[:12]), await agent.send(WORK[:16])
        await summary_ended(proxy, ended)
        cut, later = await agent.send(WORK[:18]), await agent.send(WORK[:20])
        (question,) = filter(asks_for_notes, up.requests)
    assert compactions([first, due, cut, later]) == ["none", "none", "created", "applied"]
    assert due.header("x-compaction-reason") == "notes-pending"
    assert question.json["messages"][:-1] == json.loads(due.forwarded)["messages"]
    (note,) = (message["content"] for message in cut.messages if NOTE in str(message["content"]))
    assert note.startswith("[Background from the context proxy, not from the user:")
    assert "[Shortened by" in json.dumps(cut.messages)
    assert later.extends(cut)
