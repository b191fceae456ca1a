"""The user's messages that a fold leaves in a row are one, and the next fold takes them one by one."""

import json

import pytest
from msgspec.structs import replace

from proxy.history.messages import JOINED, NOTE, make_literal, read_message
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.fold import GO_ON, join_words
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.apis import MESSAGES, each_api
from tests.support.compaction_worker import Worker
from tests.support.messages import assistant, history, system, user

PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, {"type": "text", "text": "This."}]
SEPARATOR = make_literal(json.dumps({"role": "assistant", "content": GO_ON}).encode(), 3, 4, NOTE)


def said(content, start=0, **more):
    raw = json.dumps({"role": "user", "content": content, **more}).encode()
    return replace(read_message(json.loads(raw), raw), start=start, stop=start + 1)


def contents(view):
    return [json.loads(message.raw)["content"] for message in view]


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (("A", "B", "C"), ["A\n\nB\n\nC"]),
        (('"quoted" \\ \u2028', "größe 😀"), ['"quoted" \\ \u2028\n\ngröße 😀']),
        (("A", [{"type": "text", "text": "B"}]), [[{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]]),
        (("A", PICTURE, "B", "C"), ["A", GO_ON, PICTURE, GO_ON, "B\n\nC"]),
        (("A",), ["A"]),
        (("A", [], "B"), [[{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]]),
        (([], []), [[]]),
        (("A", ["odd"]), ["A", GO_ON, ["odd"]]),
    ],
)
def test_texts_between_which_only_a_separator_stands_are_one_message(words, joined):
    covered = []
    for number, content in enumerate(words):
        covered += [SEPARATOR] * bool(number) + [said(content, 2 * number)]
    view = join_words([*covered, SEPARATOR, said("The newest.", 100)])
    assert contents(view) == [*joined, GO_ON, "The newest."]
    assert [message.start for message in view if message.made == JOINED] in ([], [0], [4])


def test_messages_with_other_members_and_messages_without_a_separator_stay_apart():
    named = [said("A", 0, name="ann"), SEPARATOR, said("B", 2)]
    assert join_words(named) == tuple(named)
    neighbours = [said("A", 0), said("B", 1), SEPARATOR, said("C", 3), SEPARATOR, said("D", 5)]
    assert contents(join_words(neighbours)) == ["A", "B\n\nC", GO_ON, "D"]
    assert join_words(neighbours[:2]) == tuple(neighbours[:2])


RULES = Rules(summary=SummaryRules(enabled=False), keep=Keep(tokens=300, groups=2), fold=(DropMiddle(user_tokens=500),))


def talk(turns):
    said = [[*assistant(f"Answer {turn}. " + "long " * 120), *user(f"Point {turn}, please.")] for turn in range(turns)]
    return history(system("You help."), user("The task."), *said)


@each_api
def test_a_chat_does_not_read_as_a_row_of_separators_and_what_was_forwarded_stays(api):
    worker = Worker(RULES, Facts(usable_tokens=2_048), wire=api.wire, write=api.write)
    earlier, rewrites = None, 0
    for turns in range(1, 40):
        sent = worker.send(talk(turns))
        text = sent.left.decode()
        assert text.count("[Separator") <= 3
        assert "The task." in text
        assert f"Point {turns - 1}, please." in text
        assert api.find_faults(sent.left) == []
        if sent.plan.action == "created":
            rewrites += 1
        elif earlier is not None:
            assert sent.raws[: len(earlier)] == earlier
        earlier = sent.raws
    assert rewrites > 2
    # Anthropic's API takes several texts in one message as they are.
    assert any(message.made == JOINED for message in sent.plan.view) == (api is not MESSAGES)


def test_what_is_joined_is_counted_as_it_is_forwarded():
    worker = Worker(RULES, Facts(usable_tokens=2_048))
    for turns in (20, 30):
        sent = worker.send(talk(turns))
        assert sent.plan.tokens_after == sum(worker.count(raw) for raw in sent.raws)
