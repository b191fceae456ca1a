"""One history at one moment: the client's body, the promise that stands, the view that follows from both, and the
rules to judge it by.

Everything the plan weighs is asked here: how large the view is, where the newest part begins that is left alone, what
a block made of a shortened draft would forward.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.core import pins
from proxy.core.groups import groups, last_assistant, repair, snap, turns
from proxy.core.messages import Message, Request, literal, observed
from proxy.core.notes import notes
from proxy.core.overlay import Block, close
from proxy.core.pipeline import Count, Draft, run
from proxy.core.rules import Facts, Keep, Rules
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
        count: Count,
        facts: Facts,
    ) -> "Scene":
        body = observed(request.body, rules.observations)
        opening = _opening(body, rules, facts)
        bare = cls(request, chain, body, rules, facts, count, opening, stands=False, covered=(), rest=())
        standing = next((block for block in blocks if block.fits(body) and bare.needs(block)), None)
        return bare.under(opening if standing is None else standing, stands=standing is not None)

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
        return offered(self.request.tools, self.block.pruned)

    @property
    def basis(self) -> bytes:
        """The link under which the block is kept that this view is built on; empty when none is."""
        return self.chain[self.block.covers] if self.stands else b""

    @property
    def ground(self) -> bytes:
        """The same and the block itself: two blocks may cut at one place and forward different things."""
        return self.basis + self.block.digest if self.stands else b""

    def _clean(self, parts: Iterable[Message]) -> Iterator[Message]:
        """What is ours in a block is written down, and so holds no secret; what is the client's is only pointed to."""
        for message in parts:
            raw = self.rules.clean(message.raw) if message.literal else message.raw
            yield message if raw == message.raw else literal(raw, message.start, message.stop, message.made)

    def needs(self, block: Block) -> bool:
        """A block made for a window holds for windows about that size, and for whatever is too long without."""
        usable = self.facts.usable
        if block.reason not in WINDOWED or usable is None or block.window is None or usable <= block.window * SLACK:
            return True
        return self.over(self._outside + self.total(self.body)) is not None

    def over(self, size: int) -> tuple[int, str] | None:
        """The lowest limit that a view of this size is over, and the reason it gives for a block."""
        limits = self.rules.limits(self.facts.usable, self.facts.prices)
        return limits[0] if limits and size > limits[0][0] else None

    def total(self, messages: Iterable[Message]) -> int:
        count = self.count
        return sum(count(message.raw) for message in messages)

    @property
    def _outside(self) -> int:
        return self.total(self.request.head) + (self.count(self.tools) if self.tools else 0)

    def size(self) -> int:
        """Tokens of the view: what the upstream counted last time plus what is new, or else counted by ourselves."""
        anchor = self.facts.anchor
        if anchor is not None and anchor.tokens > 0 and anchor.block == self.ground:
            for place in reversed(range(self.block.covers if self.stands else 0, len(self.chain))):
                if self.chain[place] == anchor.link:
                    return anchor.tokens + self.total(message for message in self.rest if message.start >= place)
        return self._outside + self.total(self.view)

    def draft(self, keep: Keep) -> Draft:
        """The view parted into what is left alone and what may be shortened. A promise only ever grows."""
        promised = len(self.covered) if self.stands else 0
        return self._parted(max(promised, self._cut(self.view, keep)), keep)

    def draft_of(self, covers: int) -> Draft | None:
        """The view parted where `body[:covers]` ends; None where that is within a group, or told as one with more."""
        view = self.view
        cut = next((place for place, message in enumerate(view) if message.stop > covers), len(view))
        parts = cut > 0 and snap(view, cut) == cut and all(message.start >= covers for message in view[cut:])
        return self._parted(cut, self.rules.keep) if parts else None

    def _parted(self, cut: int, keep: Keep) -> Draft:
        view = self.view
        opening = groups(view)[: keep.first]
        first = min(cut, opening[-1].stop) if opening else 0
        return Draft(
            self.request.head + view[:first],
            view[first:cut],
            view[cut:],
            tools=self.tools,
            fixed=pins.fixed(view, self.passages),
            origin=self.body,
            window=self.facts.usable,
            count=self.count,
        )

    @property
    def summary(self) -> Summary | None:
        """The summary at hand, where it tells more than the one that stands."""
        known = self.facts.summary
        return known if known is not None and known.covers > self._told else None

    @property
    def awaits_summary(self) -> bool:
        """A model is at one that tells more."""
        return self.facts.making > self._told

    @property
    def _told(self) -> int:
        """So many messages are told by the summary that stands."""
        return 0 if self.block.summary is None else self.block.summary.covers

    @property
    def passages(self) -> tuple[str, ...]:
        return self.rules.pins.passages(self.body)

    def _cut(self, view: Sequence[Message], keep: Keep) -> int:
        """Where the newest part begins that is left alone: the last answer of the model is always in it."""
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

    def settled(self, draft: Draft, reason: str, summary: Summary | None = None) -> "Scene":
        """The same history under the block that this draft makes."""
        head = len(self.request.head)
        covers = draft.after[0].start if draft.after else len(self.body)
        parts = draft.before[head:] + (repair(draft.middle) if self.rules.repair else draft.middle)
        gone = pins.missing(self.passages, parts + self.body[covers:]) if self.passages else ()
        if gone:
            after = draft.after[0] if draft.after else None
            parts += notes("\n".join((PINNED, *gone)), parts[-1] if parts else None, after, covers, covers)
        if self.stands and covers == self.block.covers and draft.after:
            # Under this link a promise stands already, and the first one holds. So this one goes a message further.
            parts, covers = (*parts, draft.after[0]), draft.after[0].stop
        block = Block(
            covers,
            close(self._clean(parts)),
            always=self.rules.always,
            window=self.facts.usable,
            reason=reason,
            policy=self.rules.signed,
            pruned=tuple(name for name in tool_names(self.request.tools) if name not in tool_names(draft.tools)),
            summary=summary or self.block.summary,
        )
        return self.under(block, stands=True)


def _opening(body: tuple[Message, ...], rules: Rules, facts: Facts) -> Block:
    """No promise yet: what the model has answered to was forwarded as it came; the always-steps begin behind it.

    Once one of them acts this becomes a block, so that they go on as they began.
    """
    covers = last_assistant(body) or 0
    always = rules.always if rules.new_blocks else ()
    return Block(
        covers, close(body[:covers]), always=always, window=facts.usable, reason="opening", policy=rules.signed
    )
