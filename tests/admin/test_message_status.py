"""What became of each message, told from a history and the block that stands for it, as it was forwarded."""

import json

from msgspec.structs import replace

from proxy.admin.conversations import show_with_block, show_without_block
from proxy.decide.planning import Plan, make_plan
from proxy.history.identity import compute_chain
from proxy.history.pins import Pins
from proxy.shorten.block import Block, Part
from proxy.shorten.rules import NOTHING_KNOWN, Facts, Keep, Rules
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import SummaryRules
from proxy.store.transcripts.archive import role_and_text
from tests.support.messages import KEY, TENANT, assistant, call, request, system, user

LONG = "a line of output\n" * 400
WORK = [piece for number in range(12) for piece in [call("Read", out=f"{number} {LONG}", path=f"src/{number}.py")]]
PLAIN = Rules(keep=Keep(tokens=500, groups=1), clear_at_least=2_000, summary=SummaryRules(enabled=False))


def forward_with_statuses(asked, rules, facts=NOTHING_KNOWN):
    """What the core forwards, and the statuses that are shown of it."""
    links = compute_chain(asked, TENANT, KEY)
    ready = make_plan(ConversationState.of(asked, links, None, rules, facts=facts))
    assert isinstance(ready, Plan)
    return ready, show_with_block(asked, links, ready.block, rules)


def statuses(view):
    return [status.status for status in view.statuses]


def test_without_a_block_every_message_is_kept():
    assert statuses(show_without_block(request(user("hi"), assistant("hello")))) == ["kept", "kept"]


def test_the_view_is_what_was_forwarded():
    ready, view = forward_with_statuses(request(system("You help."), user("Go."), *WORK), PLAIN)
    assert ready.reason == "stride"
    assert [message.raw for message in view.messages] == [message.raw for message in ready.view[1:]]


def test_a_cleared_result_names_the_step_and_shows_its_placeholder():
    _, view = forward_with_statuses(request(user("Go."), *WORK), PLAIN)
    cleared = [status for status in view.statuses if status.status == "cleared"]
    assert {status.step for status in cleared} == {"clear_results"}
    assert all(status.instead[0].text.startswith("[Shortened by the context proxy: Read(src/") for status in cleared)
    assert statuses(view)[0] == "kept"
    assert statuses(view)[-1] == "kept"


def test_a_message_with_a_pin_is_pinned():
    rules = replace(PLAIN, pins=Pins(markers=("Never",)))
    _, view = forward_with_statuses(request(user("Never push."), assistant("Well."), user("Go."), *WORK), rules)
    assert statuses(view)[:3] == ["pinned", "kept", "kept"]


def test_folded_messages_are_explained_by_notes_or_not_at_all():
    talk = [piece for number in range(40) for piece in (assistant(f"{number} {LONG}"), user(f"And {number}?"))]
    _, view = forward_with_statuses(request(user("Go."), *talk), PLAIN, Facts(usable_tokens=20_000))
    folded = [status for status in view.statuses if status.status == "folded"]
    assert folded
    assert any(status.instead for status in folded)


def test_a_block_that_does_not_fit_replaces_nothing():
    asked = request(user("Go."))
    block = Block(5, (Part(0, 5),))
    assert statuses(show_with_block(asked, compute_chain(asked, TENANT, KEY), block, PLAIN)) == ["kept"]


def test_an_unreadable_message_is_shown_as_it_was_sent():
    assert role_and_text(b"[1, 2]") == ("?", "[1, 2]")
    assert role_and_text(b'{"role": "user", "content": "hi"}') == ("user", "hi")
    made = call("Read", path="x")[0]
    made["tool_calls"][0]["id"] = "1"
    assert role_and_text(json.dumps(made).encode()) == ("assistant", 'Read({"path": "x"})')
