"""A model that can be asked for summaries, and an agent whose history needs them."""

import asyncio
import json
from dataclasses import replace

from proxy.config.policies import read_prompt
from tests.support.agent import reading
from tests.support.proxy_client import until
from tests.support.scripted_upstream import Turn, answer, pause, text_turn

ASKED = "write a handover of this conversation"
SECTIONS = read_prompt("structured").headings
# A window that is full after some twenty reads, and nothing but a summary to make room.
SMALL_WINDOW_SETTINGS = {
    "clear_at_least": 1_000_000,
    "when_full": [],
    "always": [],
    "keep": {"tokens": 500},
    "summary": {"max_tokens": 600, "ledger": 800, "prepare": 0.8},
}
WINDOW = 24_000
# The agent's own words are worth a summary, which its reads alone would not be: they can be read again.
THOUGHT = "This part adds a number to each value, as the one before it did, so the sum of the next part depends on it. "
WORK = reading(40, size=2_010, preamble=THOUGHT * 5)
# So much of the work has been seen, is near the trigger, and is over it.
SEEN, NEAR, OVER, BEYOND = WORK[:28], WORK[:32], WORK[:38], WORK[:52]


def account(*, words="The tests of part_1 pass; part_2 is next."):
    return "\n\n".join(f"## {section}\n{words}" for section in SECTIONS)


def asks_for_summary(request) -> bool:
    if request.arrived is None or not request.body:
        return False
    last = (request.json.get("messages") or request.json["input"])[-1]
    return last.get("role") == "user" and ASKED in json.dumps(last["content"])


def model(summary: Turn | None = None, turn: Turn | None = None):
    """Answers agents with a turn, and requests for a summary with one."""
    values, turn = summary or text_turn(account()), turn or text_turn("Go on.")

    def script(request):
        found = values if asks_for_summary(request) else turn
        return found(request) if callable(found) else found

    return script


def answer_late(turn: Turn, seconds: float):
    """The same answer, so much later."""

    def reply(_request):
        whole = answer(turn.completion())
        return replace(whole, parts=(pause(seconds), *whole.parts))

    return reply


def summary_calls(up):
    return [request for request in up.requests if asks_for_summary(request)]


async def wait_until_asked(up):
    """Returns once the model has been asked, and has answered."""
    for call in await until(lambda: summary_calls(up)):
        await call.end()
    await asyncio.sleep(0.1)


def has_summary(step):
    return "Summary of the conversation so far" in json.dumps(step.messages)


def body_has_summary(request):
    return not asks_for_summary(request) and b"Summary of the conversation so far" in request.body
