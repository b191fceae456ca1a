"""What a model is asked when the old part of a history shall become a summary, and how to put it so that it fits.

The best way is to put it to the conversation itself: model, tools and messages as they were last forwarded, which the
upstream has cached, and one instruction more. Where that cannot be, or was not answered, the old part is retold in one
message, with long results clipped, then with its oldest groups left out. No two tries have the same body.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from proxy.core import retelling
from proxy.core.fold import is_of_summary
from proxy.core.groups import groups
from proxy.core.messages import NOTE, Message
from proxy.core.notes import GO_ON
from proxy.core.pipeline import Count
from proxy.core.rules import Facts, Rules
from proxy.core.scene import Scene
from proxy.core.summary import NOTED, Summaries, standing

FOCUS = "\n\nAbove all, keep what concerns this: {focus}"
CLIPPED = 2_000
"""Characters of a result that stay where it is retold."""
AGAIN = "\n\nAnswer with the summary itself, at once and in full."
SLACK = 1.1
"""Counts are estimates."""
MORE_TO_TELL = 0.25
"""After a question that came to nothing there must be so much more of the view to tell, or it is not put again."""


@dataclass(frozen=True, slots=True)
class Question:
    """Tell what `body[:covers]` was."""

    covers: int
    view: tuple[Message, ...]
    """The messages as last forwarded, the head included."""
    tools: bytes | None
    old: tuple[Message, ...]
    """Those of them that the answer shall stand for."""
    earlier: str
    """The summary that stands among them already, to be brought up to date."""
    words: str
    """What the user said, for the language of it."""
    weight: int
    """Tokens of what goes for its sake: an answer that is not shorter is none."""
    rules: Summaries
    focus: str

    @property
    def instruction(self) -> str:
        return self.rules.prompt + (FOCUS.format(focus=self.focus) if self.focus else "")


@dataclass(frozen=True, slots=True)
class Try:
    """One way to put a question: these messages, and so many tokens for the answer."""

    messages: tuple[Message, ...]
    tools: bytes | None
    answer: int
    aligned: bool
    again: bool = False
    """The same again: only worth it where the answer had no room."""


def may_ask(rules: Rules, facts: Facts) -> bool:
    """A model is asked only about what was sent before: who sends once, or another beginning each time, never pays.

    Except whoever asks for it.
    """
    return rules.summary.enabled and facts.may_ask and (facts.seen or facts.force)


def asked(scene: Scene, size: int, limit: int) -> Question | None:
    """The question for this view, where the answer would be worth its price; half the target stays as it is."""
    rules, facts = scene.rules, scene.facts
    if not may_ask(rules, facts):
        return None
    tokens = max(rules.keep.tokens, int(limit * rules.target) // 2)
    draft = scene.draft(rules.keep if facts.force else replace(rules.keep, tokens=tokens))
    covers = draft.after[0].start if draft.after else len(scene.body)
    stays = standing(draft, rules.summary)
    weight = scene.total(message for message in draft.middle if id(message) not in stays)
    gain = weight - rules.summary.max_tokens - rules.summary.ledger // 4
    more = scene.total(scene.body[facts.failed : covers])
    least = int(size * rules.min_progress)
    if gain < least or size - gain > limit or (facts.failed and more < size * MORE_TO_TELL):
        return None
    earlier = scene.block.summary
    return Question(
        covers=covers,
        view=scene.request.head + scene.view,
        tools=scene.tools,
        old=draft.middle,
        earlier="" if earlier is None or rules.summary.scope > 1 else earlier.text,
        words="\n".join(message.text for message in scene.body if message.is_user),
        weight=weight,
        rules=rules.summary,
        focus=facts.focus,
    )


def tries(question: Question, room: int | None, count: Count) -> Iterator[Try]:
    """The ways to put it that fit: as it stands, the same with more room for the answer, then each smaller.

    `room`: what a request may hold beside an answer of `max_tokens`, if that is known.
    """
    most = question.rules.max_tokens
    if question.rules.call == "aligned":
        messages = (*question.view, _user(question.instruction))
        taken = sum(count(message.raw) for message in messages) + (count(question.tools) if question.tools else 0)
        if room is None or taken * SLACK <= room:
            yield Try(messages, question.tools, most, aligned=True)
        if room is None or taken * SLACK + most <= room:
            messages = (*question.view, _user(question.instruction + AGAIN))
            yield Try(messages, question.tools, 2 * most, aligned=True, again=True)
    said = set[str]()
    for clip, share in ((0, 0.9), (CLIPPED, 0.9), (CLIPPED // 4, 0.45)):
        text = _retold(question, clip, None if room is None else int(room * share) - most, count)
        if text is not None and text not in said:
            said.add(text)
            yield Try((_user(text),), None, 2 * most, aligned=False)


def _retold(question: Question, clip: int, room: int | None, count: Count) -> str | None:
    """All of it as one text; what has no room goes, the oldest first. None: not even the newest group has room."""
    old = [message for message in question.old if not (question.earlier and _is_known(message))]
    texts = [retelling.told([old[place] for place in group], clip) for group in groups(old)]
    left = len(texts)
    if room is not None:
        room -= count(_encoded(retelling.whole(question.instruction, question.earlier, (), gone=left)))
        left = 0
        for text in reversed(texts):
            room -= count(_encoded(text))
            if room < 0:
                break
            left += 1
    gone = len(texts) - left
    return retelling.whole(question.instruction, question.earlier, texts[gone:], gone=gone) if left else None


def _is_known(message: Message) -> bool:
    """Where the earlier summary is told first, its notes and what holds them together say nothing more."""
    return is_of_summary(message) or (message.made == NOTE and message.text in (GO_ON, NOTED))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _user(text: str) -> Message:
    """Not `notes.note`: that remembers what it makes, and this is said once."""
    return Message(json.dumps({"role": "user", "content": text}, ensure_ascii=False).encode("utf-8", "replace"), "user")
