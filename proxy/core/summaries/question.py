"""The question that asks a model for a summary of the old part of a history, and ways to make it fit.

The best way is to ask the conversation itself: model, tools and messages as they were last forwarded, which the
upstream has cached, and one more instruction. Where that does not fit, or was not answered, the old part is retold in
one message, then with long results clipped, then with the oldest groups left out. No two tries have the same body.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from proxy.core.fold import is_of_summary
from proxy.core.model.groups import groups
from proxy.core.model.messages import NOTE, Message
from proxy.core.notes import GO_ON
from proxy.core.pipeline import Count
from proxy.core.rules import Facts, Rules
from proxy.core.state import ConversationState
from proxy.core.summaries import retelling
from proxy.core.summaries.summary import NOTED, Summaries, standing
from proxy.core.summaries.verdict import Said, Verdict, judge_answer

FOCUS = "\n\nAbove all, keep what concerns this: {focus}"
CLIP_CHARACTERS = 2_000
"""Characters that stay of a result that is retold."""
AGAIN = "\n\nAnswer with the summary itself, at once and in full."
SLACK_RATIO = 1.1
"""How much larger than our count a request may turn out: counts are estimates."""
MIN_NEW_SHARE = 0.25
"""A question that came to nothing is put again only once there is this share of the view more to tell."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request to summarize `body[:covers]`."""

    covers: int
    view: tuple[Message, ...]
    """The messages as last forwarded, the head included."""
    tools: bytes | None
    old: tuple[Message, ...]
    """Those of them that the answer shall stand for."""
    earlier: str
    """The summary that stands among them already, to be brought up to date."""
    words: str
    """What the user said: the summary shall be in the same language."""
    weight: int
    """Tokens of what the answer replaces: one that is not shorter is none."""
    rules: Summaries
    focus: str

    @property
    def instruction(self) -> str:
        return self.rules.prompt + (FOCUS.format(focus=self.focus) if self.focus else "")

    def verdict(self, said: Said, count: Count) -> Verdict:
        """The verdict on an answer to this question."""
        rules = self.rules
        return judge_answer(
            said, weight=self.weight, most=rules.max_tokens, headings=rules.headings, words=self.words, count=count
        )


@dataclass(frozen=True, slots=True)
class Try:
    """One way to put a question: these messages, and at most `answer` tokens in reply."""

    messages: tuple[Message, ...]
    tools: bytes | None
    answer: int
    aligned: bool
    again: bool = False
    """The same once more with more room: only worth it where the answer had too little."""


def may_ask(rules: Rules, facts: Facts) -> bool:
    """True where a model may be asked for a summary: only about what was sent before, unless the client asks for one.

    So a one-shot prompt, or a client whose history begins differently each time, never pays for a summary.
    """
    return rules.summary.enabled and facts.can_summarize and (facts.was_forwarded or facts.force)


def find_question(state: ConversationState, size: int, limit: int) -> Question | None:
    """The question for this view, where the answer would be worth its price. Half of the target stays as it is."""
    rules, facts = state.rules, state.facts
    if not may_ask(rules, facts):
        return None
    tokens = max(rules.keep.tokens, int(limit * rules.target) // 2)
    draft = state.draft(rules.keep if facts.force else replace(rules.keep, tokens=tokens))
    covers = draft.after[0].start if draft.after else len(state.body)
    stays = standing(draft, rules.summary)
    weight = state.count_tokens(message for message in draft.middle if id(message) not in stays)
    gain = weight - rules.summary.max_tokens - rules.summary.ledger // 4
    more = state.count_tokens(state.body[facts.failed_summary_covers : covers])
    least = int(size * rules.min_progress)
    if gain < least or size - gain > limit or (facts.failed_summary_covers and more < size * MIN_NEW_SHARE):
        return None
    earlier = state.block.summary
    return Question(
        covers=covers,
        view=state.request.head + state.view,
        tools=state.tools,
        old=draft.middle,
        earlier="" if earlier is None or rules.summary.scope > 1 else earlier.text,
        words="\n".join(message.text for message in state.body if message.is_user),
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
        if room is None or taken * SLACK_RATIO <= room:
            yield Try(messages, question.tools, most, aligned=True)
        if room is None or taken * SLACK_RATIO + most <= room:
            messages = (*question.view, _user(question.instruction + AGAIN))
            yield Try(messages, question.tools, 2 * most, aligned=True, again=True)
    said = set[str]()
    for clip, share in ((0, 0.9), (CLIP_CHARACTERS, 0.9), (CLIP_CHARACTERS // 4, 0.45)):
        text = _retell(question, clip, None if room is None else int(room * share) - most, count)
        if text is not None and text not in said:
            said.add(text)
            yield Try((_user(text),), None, 2 * most, aligned=False)


def _retell(question: Question, clip: int, room: int | None, count: Count) -> str | None:
    """The old part as one text, the oldest groups left out where there is no room for them; None: no room for any."""
    old = [message for message in question.old if not (question.earlier and _is_known(message))]
    texts = [retelling.retell([old[place] for place in group], clip) for group in groups(old)]
    left = len(texts)
    if room is not None:
        room -= count(_encode(retelling.render_request(question.instruction, question.earlier, (), gone=left)))
        left = 0
        for text in reversed(texts):
            room -= count(_encode(text))
            if room < 0:
                break
            left += 1
    gone = len(texts) - left
    return retelling.render_request(question.instruction, question.earlier, texts[gone:], gone=gone) if left else None


def _is_known(message: Message) -> bool:
    """True where a message only repeats the earlier summary, which the question quotes first."""
    return is_of_summary(message) or (message.made == NOTE and message.text in (GO_ON, NOTED))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _user(text: str) -> Message:
    """A user message with this text."""
    return Message(json.dumps({"role": "user", "content": text}, ensure_ascii=False).encode("utf-8", "replace"), "user")
