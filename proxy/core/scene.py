"""One history at one moment: the client's body, the promise that stands, the view that follows from the two, and the
rules and facts to judge it by.

`decide()` (plan.py) weighs; here it gets its answers: how large is the view, what of it may be shortened, and what
would be forwarded under the block that a shortened draft makes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.core import pins
from proxy.core.groups import groups, last_assistant, repair, snap, turns
from proxy.core.messages import Message, Request, literal
from proxy.core.notes import notes, speaker
from proxy.core.observations import is_text_style, mark_observations
from proxy.core.overlay import Block, close
from proxy.core.pipeline import Count, Draft, quarter, run
from proxy.core.rules import NOTHING_KNOWN, Facts, Keep, Rules
from proxy.core.summary import Summary
from proxy.core.tools import offered, tool_names

WINDOWED = ("window", "cliff")
SLACK = 1.25
PINNED = "Pinned, word for word:"


@dataclass(frozen=True, slots=True)
class Scene:
    """A body under a block: `covered` stands for what the block covers, `rest` for what came since."""

    request: Request
    chain: Sequence[bytes]
    body: tuple[Message, ...]
    rules: Rules
    facts: Facts
    count: Count
    block: Block
    stands: bool
    covered: tuple[Message, ...]
    rest: tuple[Message, ...]

    @classmethod
    def of(
        cls,
        request: Request,
        chain: Sequence[bytes],
        blocks: Sequence[Block],
        rules: Rules,
        *,
        count: Count = quarter,
        facts: Facts = NOTHING_KNOWN,
    ) -> "Scene":
        """`blocks` are the promises known for links of the `chain`, longest first: the first that fits stands.

        `count` is told the bytes of a message.
        """
        body = mark_observations(request.body, rules.observations, rules.pins)
        opening = _opening(body, rules, facts)
        bare = cls(request, chain, body, rules, facts, count, opening, stands=False, covered=(), rest=())
        for block in blocks:
            as_made = bare._read_as_in(block)
            if block.fits(as_made.body) and as_made.needs(block):
                return as_made.under(block, stands=True)
        return bare.under(opening, stands=False)

    def _read_as_in(self, block: Block) -> "Scene":
        """The same history, its observations marked as they were when this block was made."""
        rules = self.rules
        if not block.text_style or is_text_style(self.body):
            return self
        body = mark_observations(self.body, rules.observations, rules.pins, text_style=True)
        return replace(self, body=body)

    def under(self, block: Block, *, stands: bool) -> "Scene":
        """The same history with this block in place."""
        covered, rest = block.apply(self.body), self.body[block.covers :]
        draft = Draft(
            self.request.head + covered,
            rest,
            fixed=frozenset(message.start for message in rest if not message.is_bulk),
            window=block.window,
            count=self.count,
        )
        return replace(self, block=block, stands=stands, covered=covered, rest=run(block.always, draft)[0].middle)

    @property
    def view(self) -> tuple[Message, ...]:
        """What is forwarded after the head."""
        return self.covered + self.rest

    @property
    def tools(self) -> bytes | None:
        """What is forwarded of the tools."""
        return offered(self.request.tools, self.block.pruned)

    @property
    def link(self) -> bytes:
        """The chain link under which the standing block is kept; empty when none stands."""
        return self.chain[self.block.covers] if self.stands else b""

    @property
    def basis(self) -> bytes:
        """What this view is built on: link and block, for two blocks at one link may forward different things."""
        return self.link + self.block.digest if self.stands else b""

    @property
    def passages(self) -> tuple[str, ...]:
        """What is pinned."""
        return self.rules.pins.passages(self.body)

    @property
    def summary(self) -> Summary | None:
        """The summary at hand, where it covers more than the one that stands."""
        known = self.facts.summary
        return known if known is not None and known.covers > self._summarised else None

    @property
    def awaits_summary(self) -> bool:
        """Whether a model is just writing one that covers more."""
        return self.facts.making > self._summarised

    def total(self, messages: Iterable[Message]) -> int:
        """Tokens of these messages."""
        count = self.count
        return sum(count(message.raw) for message in messages)

    def size(self) -> int:
        """Tokens of the view: what the upstream counted last time plus what is new, or else our own count."""
        anchor = self.facts.anchor
        if anchor is not None and anchor.tokens > 0 and anchor.basis == self.basis:
            # Without a standing block `rest` begins at the last answer, but the anchor may be much older: the answers
            # since then were cut off, refused, or given through another replica.
            uncounted = self.rest if self.stands else self.view
            for place in reversed(range(self.block.covers if self.stands else 0, len(self.chain))):
                if self.chain[place] == anchor.link:
                    return anchor.tokens + self.total(message for message in uncounted if message.start >= place)
        return self._outside + self.total(self.view)

    def over(self, size: int) -> tuple[int, str] | None:
        """The lowest limit that a view of this size is over, and the reason it gives for a block."""
        limits = self.rules.limits(self.facts.usable, self.facts.prices)
        return limits[0] if limits and size > limits[0][0] else None

    def needs(self, block: Block) -> bool:
        """A block made for a window holds for windows about that size, and for whatever is too long without it."""
        usable = self.facts.usable
        if block.reason not in WINDOWED or usable is None or block.window is None or usable <= block.window * SLACK:
            return True
        return self.over(self._outside + self.total(self.body)) is not None

    def draft(self, keep: Keep) -> Draft:
        """The view, parted into what may be shortened and what is left alone. A promise only ever grows."""
        promised = len(self.covered) if self.stands else 0
        return self._parted(max(promised, self._cut(self.view, keep)), keep)

    def draft_of(self, covers: int) -> Draft | None:
        """The view parted where `body[:covers]` ends; None where that is inside a group, or inside a note of ours."""
        view = self.view
        cut = next((place for place, message in enumerate(view) if message.stop > covers), len(view))
        parts = cut > 0 and snap(view, cut) == cut and all(message.start >= covers for message in view[cut:])
        return self._parted(cut, self.rules.keep) if parts else None

    def settled(self, draft: Draft, reason: str, summary: Summary | None = None) -> "Scene":
        """The same history under the block that this draft makes."""
        covers = draft.after[0].start if draft.after else len(self.body)
        parts = draft.before[len(self.request.head) :] + (repair(draft.middle) if self.rules.repair else draft.middle)
        parts += self._lost_pins(parts, covers, draft.after)
        if self.stands and covers == self.block.covers and draft.after:
            # A promise stands under this link already, and the first one holds: so this one goes a message further.
            parts, covers = (*parts, draft.after[0]), draft.after[0].stop
        left = tool_names(draft.tools)
        block = Block(
            covers,
            close(self._clean(parts)),
            always=self.rules.always,
            window=self.facts.usable,
            reason=reason,
            policy=self.rules.signed,
            pruned=tuple(name for name in tool_names(self.request.tools) if name not in left),
            summary=summary or self.block.summary,
            text_style=self.block.text_style or is_text_style(self.body),
        )
        return self.under(block, stands=True)

    @property
    def _outside(self) -> int:
        """Tokens of what stands outside the body: head and tools."""
        return self.total(self.request.head) + (self.count(self.tools) if self.tools else 0)

    @property
    def _summarised(self) -> int:
        """How many messages the standing summary covers."""
        return 0 if self.block.summary is None else self.block.summary.covers

    def _cut(self, view: Sequence[Message], keep: Keep) -> int:
        """Where the newest part begins, which is left alone: the last answer of the model is always in it."""
        answered = last_assistant(view)
        if answered is None:
            return 0
        cut, tokens = len(view), 0
        for number, group in enumerate(reversed(groups(view))):
            tokens += self.total(view[place] for place in group)
            if number >= keep.groups and tokens > keep.tokens and group.start < answered:
                break
            cut = group.start
        if keep.turns:
            cut = min(cut, [turn.start for turn in turns(view)][-keep.turns :][0])
        return min(snap(view, answered), cut)

    def _parted(self, cut: int, keep: Keep) -> Draft:
        view = self.view
        opening = groups(view)[: keep.first]
        first = min(cut, opening[-1].stop) if opening else 0
        return Draft(
            self.request.head + view[:first],
            view[first:cut],
            view[cut:],
            tools=self.tools,
            fixed=pins.fixed(view, self.passages) | self._last_words,
            origin=self.body,
            window=self.facts.usable,
            count=self.count,
        )

    @property
    def _last_words(self) -> frozenset[int]:
        """Where the newest user message starts, where each is a person's: one that was read as output may be it."""
        if is_text_style(self.body):
            return frozenset()
        newest = next((place for place in reversed(range(len(self.body))) if self.body[place].role == "user"), None)
        return frozenset(() if newest is None else (newest,))

    def _lost_pins(self, parts: Sequence[Message], covers: int, after: Sequence[Message]) -> tuple[Message, ...]:
        """Notes that say the pinned passages again which stand nowhere any more."""
        gone = pins.missing(self.passages, (*parts, *self.body[covers:]))
        if not gone:
            return ()
        return notes("\n".join((PINNED, *gone)), speaker(reversed(parts)), speaker(after), covers, covers)

    def _clean(self, parts: Iterable[Message]) -> Iterator[Message]:
        """What is ours is written into the block, so it may hold no secret; what is the client's is only pointed to."""
        for message in parts:
            raw = self.rules.clean(message.raw) if message.literal else message.raw
            yield message if raw == message.raw else literal(raw, message.start, message.stop, message.made)


def _opening(body: tuple[Message, ...], rules: Rules, facts: Facts) -> Block:
    """Where no promise stands yet: what the model has answered was forwarded as it came; always-steps begin after it.

    As soon as one of them acts, this becomes a block, so that they go on as they began.
    """
    covers = last_assistant(body) or 0
    always = rules.always if rules.new_blocks else ()
    return Block(
        covers,
        close(body[:covers]),
        always=always,
        window=facts.usable,
        reason="opening",
        policy=rules.signed,
        text_style=is_text_style(body),
    )
