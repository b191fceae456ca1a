"""Conversation state: one history at one moment, with its current block, the view, the rules and the facts.

It answers the questions of `planning.decide()`: how large the view is, which part of it may be shortened, and what
would be forwarded with the block that a shortened draft makes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice, takewhile
from math import inf
from operator import is_

from proxy.history import grouping
from proxy.history.agents import find_pruned_tools, is_text_style, mark_observations, remove_pruned_tools
from proxy.history.grouping import (
    Groups,
    find_callers,
    find_group_starts,
    find_last_assistant,
    find_last_user,
    find_turns,
    repair,
    snap,
)
from proxy.history.identity import remove_wrapping
from proxy.history.messages import Columns, KnownView, Message, Request, ToolCall, make_literal
from proxy.history.rereads import PROMISE, RESTORED, Reread, correct_rereads, find_rereads, leave_out_promise
from proxy.models.thinking import find_binding
from proxy.recall.own_tools import RECALL, offer_tool
from proxy.shorten.block import Block, Part, close
from proxy.shorten.documents import find_documents
from proxy.shorten.notes import find_speaker, make_notes
from proxy.shorten.pipeline import (
    BYTES_PER_TOKEN,
    Count,
    Draft,
    Step,
    Worth,
    estimate_tokens,
    find_worth,
    is_spared,
    run,
)
from proxy.shorten.rules import NOTHING_KNOWN, Facts, Keep, Rules
from proxy.shorten.steps.dedup_arrivals import restore_repeated
from proxy.shorten.steps.strip_reasoning import StripReasoning
from proxy.shorten.summary import Summary
from proxy.shorten.window import UNCALIBRATED, Calibration

WINDOW_REASONS = ("window", "cliff")
OPENING_REASON = "opening"
REASONING_REFUSED = "signature"
LARGER_WINDOW_RATIO = 1.25
_REASONING = StripReasoning(with_calls=True, signed=True)
WHOLE_TEXT = ("", RESTORED)
"""What may have been done to a result whose text still stands in the view."""
DOCUMENT_SHARE = 0.25
"""Of the usable window: a longer document is treated like any other output."""
PINNED_HEADING = "Pinned, word for word:"
NO_BLOCK = Block(0, ())
FEW_MESSAGES = 16
"""For so many new ones it is worth looking whether the always-steps spare them."""


@dataclass(frozen=True, slots=True)
class ConversationState:
    """A body with a block in place: `covered` stands for what the block covers, `tail` for what came since."""

    request: Request
    chain: Sequence[bytes]
    body: tuple[Message, ...]
    rules: Rules
    facts: Facts
    estimate: Count
    """Tokens of one message, by our tokenizer."""
    calibration: Calibration
    """How the upstream counts, as far as it has told."""
    block: Block
    has_block: bool
    covered: tuple[Message, ...]
    tail: tuple[Message, ...]
    view: tuple[Message, ...] = ()
    """The messages that are forwarded after the head: both of them."""
    columns: Columns = field(default_factory=Columns, compare=False, repr=False)
    """Values computed for the view, message by message."""

    @classmethod
    def of(
        cls,
        request: Request,
        chain: Sequence[bytes],
        block: Block | None,
        rules: Rules,
        *,
        count: Count = estimate_tokens,
        calibration: Calibration = UNCALIBRATED,
        facts: Facts = NOTHING_KNOWN,
    ) -> "ConversationState":
        """The state of a request, with the block that was found for a link of its chain, where that may be used.

        `count` returns the tokens of one message, given its bytes.
        """
        rules = rules.fit(facts)
        body = _mark_observations(request, rules)
        bare = cls(
            request, chain, body, rules, facts, count, calibration, NO_BLOCK, has_block=False, covered=(), tail=()
        )
        if block is None:
            return bare.without_block()
        as_made = bare._mark_as_under(block)
        if block.fits(len(as_made.body), as_made.find_last_user()) and as_made.needs_block(block):
            return as_made.with_block(block, has_block=True)
        return bare.without_block()

    def _mark_as_under(self, block: Block) -> "ConversationState":
        """The same history with its observations marked as they were when this block was made."""
        rules = self.rules
        if not block.text_style or is_text_style(self.body):
            return self
        return replace(self, body=_mark_observations(self.request, rules, text_style=True))

    def with_block(self, block: Block, *, has_block: bool) -> "ConversationState":
        """The same history with this block in place."""
        covered = self.request.columns.find_covered(block, block.covers) if self.is_unmarked else None
        covered = block.apply(self.body) if covered is None else covered
        tail = self._correct_rereads(block, covered, self._apply_always_steps(block, covered))
        # Under an opening block nothing was folded: what left unrepaired before it was stored goes on so.
        if has_block and self.rules.repair and block.reason != OPENING_REASON:
            # A block may end with a message of calls (see `with_draft`): their results come first in the tail.
            calling = covered[-1:] if covered and covered[-1].calls else ()
            tail = repair((*calling, *tail), self.request.wire)[len(calling) :]
        if block.reasoning_until:
            covered, tail = (
                _strip_reasoning(covered, block.reasoning_until),
                _strip_reasoning(tail, block.reasoning_until),
            )
        view = covered + tail
        columns = self.request.columns.continue_view(view)
        return replace(self, block=block, has_block=has_block, covered=covered, tail=tail, view=view, columns=columns)

    def _apply_always_steps(self, block: Block, covered: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages behind a block as they are forwarded, computed on from those of the request before.

        The always-steps change a message by itself, or because of one before it. So where they leave the new messages
        as they are, they leave all the others as they were left the last time.
        """
        body, covers, recalls = self.body, block.covers, self.recalls

        def run_steps(start: int) -> tuple[Message, ...]:
            tail = body[start:]
            fixed = frozenset(each.start for each in tail if not each.is_bulk or each.declares_tools)
            before = self.request.head + covered + body[covers:start]
            documents = self._find_documents(block.window)
            draft = Draft(
                before,
                tail,
                fixed=fixed,
                documents=documents,
                window=block.window,
                count=self.count,
                recalls=recalls,
                go_on=self.rules.go_on,
            )
            return run(block.always, draft)[0].middle

        if not self.is_unmarked:
            return run_steps(covers)

        def forward_new(known: Sequence[Message]) -> Sequence[Message]:
            arrived = body[len(known) :]
            if self._are_spared(block, max(covers, len(known))):
                return arrived
            new = run_steps(len(known)) if len(known) > covers else ()
            is_unchanged = new and all(map(is_, new, arrived))
            return new if is_unchanged else (*body[:covers], *run_steps(covers))[len(known) :]

        name = ("always", block.digest, covers, block.always, block.window, recalls)
        return tuple(self.request.columns.extend(name, len(body), forward_new)[covers:])

    def _correct_rereads(
        self, block: Block, covered: tuple[Message, ...], tail: tuple[Message, ...]
    ) -> tuple[Message, ...]:
        """The messages behind a block, true about what the view holds of earlier results (see `rereads.py`)."""
        body, covers = self.body, block.covers
        if not (covers and self.is_unmarked):
            return tail
        columns, rereads = self.request.columns, self._rereads

        def correct_new(known: Sequence[Message]) -> Sequence[Message]:
            start = max(covers, len(known))
            new = tail[start - covers :]
            if all(rereads[message.start] is None for message in new):
                return (*body[len(known) : start], *new)
            before = (*covered, *known[covers:])
            whole = {message.start for message in (*before, *new) if message.made in WHOLE_TEXT}
            saved = sum(len(message.raw) for message in body[:start]) - sum(len(message.raw) for message in before)
            corrected = correct_rereads((*known[covers:], *new), body, rereads, whole, saved)
            return (*body[len(known) : start], *islice(corrected, start - covers, None))

        name = ("rereads", block.digest, covers, block.always, block.window, self.recalls)
        return tuple(columns.extend(name, len(body), correct_new)[covers:])

    def _leave_out_false_promises(self, parts: Sequence[Message]) -> tuple[Message, ...]:
        """The parts of a block without promises that a file is in the context which this block shortens."""
        if not self.is_unmarked:
            return tuple(parts)
        rereads = self._rereads
        whole = {message.start for message in parts if message.made in WHOLE_TEXT}
        corrected = []
        for message in parts:
            reread = rereads[message.start] if message.made == "" else None
            if reread is not None and reread.target not in whole and PROMISE in message.text:
                corrected.append(leave_out_promise(message))
            else:
                corrected.append(message)
        return tuple(corrected)

    @property
    def _rereads(self) -> Sequence[Reread | None]:
        """For each message of the client's history, the earlier result that it says is in the context."""
        body, callers = self.body, self._body_callers
        return self.request.columns.extend(find_rereads, len(body), partial(find_rereads, body, callers))

    @property
    def _body_callers(self) -> Sequence[ToolCall | None]:
        """The call that each message of the client's history answers."""
        columns = self.request.columns if self.is_unmarked else Columns()
        return columns.extend(find_callers, len(self.body), partial(find_callers, self.body))

    def _are_spared(self, block: Block, start: int) -> bool:
        """True where each always-step surely leaves the messages from here on as they are."""
        body = self.body
        hashes = self.request.columns.extend(
            hash, len(body), lambda known: [hash(remove_wrapping(message.content)) for message in body[len(known) :]]
        )
        return len(body) - start <= FEW_MESSAGES and all(
            is_spared(step, body[place], block.window, hashes[:place])
            for place in range(start, len(body))
            for step in block.always
        )

    def find_last_user(self) -> int | None:
        """The place of the newest message of a real user."""
        body = self.body
        if not self.is_unmarked:
            return find_last_user(body)

        def find_on(known: Sequence[int | None]) -> Iterator[int | None]:
            last = known[-1] if known else None
            for place in range(len(known), len(body)):
                last = place if body[place].is_user else last
                yield last

        return self.request.columns.extend(find_last_user, len(body), find_on)[len(body) - 1] if body else None

    @property
    def is_unmarked(self) -> bool:
        """True where no message had to be marked as an observation."""
        return self.body is self.request.body

    @property
    def tools(self) -> bytes | None:
        """The tools that are forwarded."""
        forced = self.request.forced_tool
        left = remove_pruned_tools(self.request.tools, [name for name in self.block.pruned if name != forced])
        # From the first block on, at the same place ever after: in an upstream's cache the tools come before all else.
        is_offered = self.rules.recall_tool and (self.has_block or not self.is_untouched)
        return offer_tool(left, self.rules.recall_tool, RECALL.name) if is_offered else left

    @property
    def is_untouched(self) -> bool:
        """True where the view is what the client sent."""
        return len(self.view) == len(self.body) and all(map(is_, self.view, self.body))

    @property
    def recalls(self) -> bool:
        """True where the tool is offered as soon as something is shortened."""
        tools, definition = self.request.tools, self.rules.recall_tool
        return definition != b"" and offer_tool(tools, definition, RECALL.name) is not tools

    @property
    def known_view(self) -> KnownView:
        """The view, for the next request that begins with this history."""
        keeps = self.is_unmarked and not self.block.reasoning_until
        block = self.block if keeps else None
        return KnownView(self.view, self.columns, len(self.body), block, len(self.covered))

    @property
    def link(self) -> bytes:
        """The chain link under which the current block is stored; empty where there is none."""
        return self.chain[self.block.covers] if self.has_block else b""

    @property
    def view_id(self) -> bytes:
        """The identity of the view: link and block, since two blocks at one link may differ."""
        return self.link + self.block.digest if self.has_block else b""

    @property
    def pinned_passages(self) -> tuple[str, ...]:
        """The pinned passages of the body."""
        pins, body = self.rules.pins, self.body

        def find_new(known: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
            return pins.find_in_each(body[len(known) :])

        # Which messages are observations is looked at afterwards: their texts are the same.
        return pins.choose(body, self.request.columns.extend(pins, len(body), find_new))

    @property
    def newer_summary(self) -> Summary | None:
        """The summary at hand, where it covers more than the current one."""
        known = self.facts.summary
        is_newer = known is not None and (known.covers > self._summarized_messages or self.is_refocused)
        return known if is_newer else None

    @property
    def is_refocused(self) -> bool:
        """True where the client asks for a summary with another focus than that of the current one."""
        is_other = self.facts.focus not in ("", self.block.focus)
        return self.facts.force and is_other and self.block.summary is not None

    def without_block(self) -> "ConversationState":
        """The same history as the client sent it."""
        return self.with_block(_build_opening_block(self.body, self.rules, self.facts), has_block=False)

    def with_opening_block(self) -> "ConversationState":
        """The same history with its opening block in place for good: an always-step has acted for the first time."""
        if self.tools == self.request.tools or not self._binds_reasoning(is_refused=self.block.is_reasoning_refused):
            return replace(self, has_block=True)
        # A tool is offered from now on, and tools stand before all messages.
        return self.with_block(replace(self.block, reasoning_until=len(self.body)), has_block=True)

    @property
    def awaits_summary(self) -> bool:
        """True where a model is writing a summary that covers more."""
        return self.facts.summary_in_progress_covers > self._summarized_messages

    @property
    def count(self) -> Count:
        """Tokens of one piece, as the upstream counts them."""
        return partial(count_calibrated, self.estimate, self.calibration)

    def count_tokens(self, messages: Iterable[Message]) -> int:
        """Tokens of these messages."""
        estimate = self.estimate
        return self.calibration.calibrate(sum([estimate(message.raw) for message in messages]))

    def count_view(self) -> int:
        """Tokens of the view."""
        return self.calibration.calibrate(count_all(self.columns, self.view, self.estimate))

    def count_body(self) -> int:
        """Tokens of the history as the client sent it, without its head."""
        return self.calibration.calibrate(count_all(self.request.columns, self.request.body, self.estimate))

    def size(self) -> int:
        """Tokens of the view: the upstream's count of an earlier request plus what is new, or else our own count."""
        anchor = self.facts.anchor
        if anchor is not None and anchor.tokens > 0 and anchor.view_id == self.view_id:
            # Without a block `tail` begins at the last answer, but the anchor may be much older: the answers
            # since then were cut off, refused, or given through another replica.
            uncounted = self.tail if self.has_block else self.view
            for place in reversed(range(self.block.covers if self.has_block else 0, len(self.chain))):
                if self.chain[place] == anchor.link:
                    return anchor.tokens + self._count_newer(uncounted, place)
        return self.count_request()

    def count_request(self) -> int:
        """Tokens of all that is forwarded by our own count."""
        return self._outside_tokens + self.count_view()

    def _count_newer(self, messages: Sequence[Message], start: int) -> int:
        """Tokens of those of these messages that stand for the history from this place on."""
        return self.count_tokens(takewhile(lambda message: message.start >= start, reversed(messages)))

    def find_exceeded_limit(self, size: int) -> tuple[int, str] | None:
        """The lowest limit that a view of this size exceeds, with the reason it gives for a block; None for none."""
        limits = self.rules.limits(self.facts)
        return limits[0] if limits and size > limits[0][0] else None

    def needs_block(self, block: Block) -> bool:
        """True where this block is used: one made for a smaller window is not, while the history fits without it."""
        facts, nominal = self.facts, self.facts.nominal_tokens
        made_for = block.window if block.nominal_tokens is None else block.nominal_tokens
        if (
            block.reason not in WINDOW_REASONS
            or nominal is None
            or made_for is None
            or nominal <= made_for * LARGER_WINDOW_RATIO
        ):
            return True
        # Not by what this request reserves for its answer: where a client asks for 8,000 tokens and 64,000 in turn, the
        # block would come and go. A request that reserves more than is usual gets a new block, if it needs one.
        base = facts.trigger_base_tokens if self.rules.trigger_of == "window" else None
        limits = self.rules.limits(replace(facts, usable_tokens=nominal, trigger_base_tokens=base))
        size, usable = self._outside_tokens + self.count_body(), facts.usable_tokens
        if not self.rules.new_blocks and usable is not None and size > usable:
            return True
        return bool(limits) and size > limits[0][0]

    def draft(self, keep: Keep) -> Draft:
        """The view, divided into what may be shortened and what is left alone. A new block covers at least the old."""
        return self._build_draft(self._find_cut(keep), keep)

    def bound_reach(self, steps: Sequence[Step]) -> float:
        """The most tokens that these steps could clear of the view: what they would if nothing of it were fixed."""
        cut = self._find_cut(self.rules.keep)
        return self._bound_reach_before(cut, steps) if cut else 0.0

    def may_reach(self, least: float, steps: Sequence[Step]) -> bool:
        """False where these steps surely clear fewer tokens of the view than this."""
        # All of the view first, the newest part with it: where that is too little, no cut has to be found.
        return self._bound_reach_before(len(self.view), steps) >= least and self.bound_reach(steps) >= least

    def _bound_reach_before(self, cut: int, steps: Sequence[Step]) -> float:
        view, calls, estimate = self.view, self._calls, self.estimate
        most = float(cut)  # each count is rounded

        def add_up(worth: Worth, known: Sequence[float]) -> Iterator[float]:
            pairs = zip(view[len(known) :], calls[len(known) :], strict=True)
            tokens = (worth(message, call, estimate) for message, call in pairs)
            return islice(accumulate(tokens, initial=known[-1] if known else 0.0), 1, None)

        for step in steps:
            worth = find_worth(step)
            if worth is None:
                return inf
            sums = self.columns.extend((step, estimate), len(view), partial(add_up, worth))
            most += self.calibration.ratio * (sums[cut - 1] if cut else 0.0)
        return most

    @property
    def _groups(self) -> Groups:
        return Groups(self.columns.extend(find_group_starts, len(self.view), partial(find_group_starts, self.view)))

    @property
    def _calls(self) -> Sequence[ToolCall | None]:
        """The call that each message of the view answers."""
        return self.columns.extend(find_callers, len(self.view), partial(find_callers, self.view))

    def draft_up_to(self, covers: int) -> Draft | None:
        """The view divided where `body[:covers]` ends; None where that is inside a group or inside a note."""
        view = self.view
        cut = next((place for place, message in enumerate(view) if message.stop > covers), len(view))
        parts = cut > 0 and snap(view, cut) == cut and all(message.start >= covers for message in view[cut:])
        return self._build_draft(cut, self.rules.keep) if parts else None

    def with_draft(self, draft: Draft, reason: str, summary: Summary | None = None) -> "ConversationState":
        """The same history with the block that this draft makes."""
        # Of the blocks of a history the longest is found, so this one covers all that the one before it does. It also
        # covers what stood before a late result that the repair has moved to its call.
        stop = max((message.stop for message in draft.middle), default=0)
        stop = max(stop, self.block.covers) if self.has_block else stop
        covered = tuple(takewhile(lambda message: message.start < stop, draft.after))
        draft = replace(draft, middle=draft.middle + covered, after=draft.after[len(covered) :])
        covers = draft.after[0].start if draft.after else len(self.body)
        parts = draft.before[len(self.request.head) :] + draft.middle
        parts = repair(parts, self.request.wire) if self.rules.repair else parts
        parts += self._restore_lost_pins(parts, covers, draft.after)
        if self.has_block and covers == self.block.covers and draft.after:
            # The block before is stored under this link. This one covers a message more, so that both are there.
            parts, covers = (*parts, draft.after[0]), draft.after[0].stop
        parts = self._leave_out_false_promises(restore_repeated(parts, self.body))
        is_refused = self.block.is_reasoning_refused or reason == REASONING_REFUSED
        block = Block(
            covers,
            close(self._redact(parts)),
            always=self.rules.always,
            window=self.facts.usable_tokens,
            nominal_tokens=self.facts.nominal_tokens,
            reason=reason,
            policy=self.rules.label,
            pruned=find_pruned_tools(self.request.tools, draft.tools),
            summary=summary or self.block.summary,
            focus=self.facts.focus if summary is not None and self.facts.force else self.block.focus,
            text_style=self.block.text_style or is_text_style(self.body),
            reasoning_until=self._find_bound_reasoning(is_refused=is_refused),
            is_reasoning_refused=is_refused,
        )
        return self.with_block(block, has_block=True)

    def _find_bound_reasoning(self, *, is_refused: bool) -> int:
        """The place up to which a new block takes reasoning out: it is bound to the history that the model read."""
        if not self._binds_reasoning(is_refused=is_refused):
            return self.block.reasoning_until
        # The client will send the answer that has begun as one message. Its reasoning was written before the block.
        return len(self.body) + 1 if self.facts.answer_has_begun else len(self.body)

    def _binds_reasoning(self, *, is_refused: bool) -> bool:
        """True if the history holds reasoning that the upstream refuses once anything before it is changed."""
        has_budget = self.request.has_thinking_budget
        if not any(message.has_claude_thinking for message in self.body):
            if not self.facts.answer_has_begun:
                return False
            # The answer may hold the first thought. Behind chat completions only a model that is known to bind may.
            has_budget = has_budget or self.request.wire != "messages"
        binding = find_binding(self.request.model, has_budget=has_budget)
        return binding == "yes" or (binding == "if-refused" and is_refused)

    @property
    def _outside_tokens(self) -> int:
        """Tokens of head and tools."""
        return self.count_tokens(self.request.head) + (self.count(self.tools) if self.tools else 0)

    @property
    def _summarized_messages(self) -> int:
        """The number of messages that the current summary covers."""
        return 0 if self.block.summary is None else self.block.summary.covers

    def _find_cut(self, keep: Keep) -> int:
        """The index where the newest part begins, which is left alone and holds the model's last answer.

        Where nothing is to be kept, it holds that only if the client has not followed it up yet. A new block covers at
        least what the old one does.
        """
        view, found = self.view, self._groups
        least = len(self.covered) if self.has_block else 0
        last = find_last_assistant(view)
        if last is None:
            return least
        answered = found.snap(last)
        cut, tokens = len(view), 0
        if not (keep.groups or keep.tokens):
            followed_up = next(group.stop for group in found.newest_first() if group.start <= last)
            answered = followed_up if followed_up < len(view) else answered
        sums = sum_up(self.columns, view, self.estimate)
        for number, group in enumerate(found.newest_first()):
            before = sums[group.start - 1] if group.start else 0
            tokens += self.calibration.calibrate(sums[group.stop - 1] - before)
            if number >= keep.groups and tokens > keep.tokens and group.start < answered:
                break
            cut = group.start
        if keep.turns:
            cut = min(cut, [turn.start for turn in find_turns(view)][-keep.turns :][0])
        return max(least, min(answered, cut))

    def _build_draft(self, cut: int, keep: Keep) -> Draft:
        view = self.view
        opening = [*self._groups.newest_first()][::-1][: keep.first] if keep.first else []
        first = min(cut, opening[-1].stop) if opening else 0
        return Draft(
            self.request.head + view[:first],
            view[first:cut],
            view[cut:],
            tools=self.tools,
            wire=self.request.wire,
            forced_tool=self.request.forced_tool,
            fixed=grouping.find_fixed(view, self.pinned_passages) | self._newest_user_message,
            documents=self._find_documents(self.facts.usable_tokens),
            origin=self.body,
            window=self.facts.usable_tokens,
            recalls=self.recalls,
            pointer=self.rules.summary.pointer,
            count=self.count,
            calls=self._calls[first:cut],
            go_on=self.rules.go_on,
        )

    def _find_documents(self, window: int | None) -> frozenset[int]:
        """The starts of documents in force that take no more than their share of the window."""
        if not self.rules.keep_documents:
            return frozenset()
        body, columns = self.body, self.request.columns if self.is_unmarked else Columns()
        readings = columns.extend(find_documents, len(body), partial(find_documents, body, self._body_callers))
        limit = inf if window is None else DOCUMENT_SHARE * window * BYTES_PER_TOKEN
        return frozenset(
            message.start
            for message, reading in zip(body, readings, strict=False)
            if reading.is_document and len(message.content) <= limit
        )

    @property
    def is_short(self) -> bool:
        """True where the conversation has too few groups or turns to be compacted by choice."""
        return self.short_by != ""

    @property
    def short_by(self) -> str:
        """The setting by which the conversation is too short to be compacted by choice; empty if it is long enough."""
        rules, body = self.rules, self.body
        if self.is_unmarked:
            known = self.request.columns.extend(find_group_starts, len(body), partial(find_group_starts, body))
        else:
            known = tuple(find_group_starts(body))
        if Groups(known).are_fewer_than(rules.min_groups):
            return "min_groups"
        return "min_turns" if rules.min_turns > 0 and len(find_turns(body)) <= rules.min_turns else ""

    @property
    def _newest_user_message(self) -> frozenset[int]:
        """The newest user message, fixed even if it was read as output before the history held a tool call."""
        if is_text_style(self.body):
            return frozenset()
        newest = next((place for place in reversed(range(len(self.body))) if self.body[place].role == "user"), None)
        return frozenset(() if newest is None else (newest,))

    def _restore_lost_pins(
        self, parts: Sequence[Message], covers: int, after: Sequence[Message]
    ) -> tuple[Message, ...]:
        """Notes that repeat the pinned passages that the view would lose."""
        lost = grouping.find_missing_passages(self.pinned_passages, (*parts, *self.body[covers:]))
        if not lost:
            return ()
        return make_notes(
            "\n".join((PINNED_HEADING, *lost)), find_speaker(reversed(parts)), find_speaker(after), covers, covers
        )

    def _redact(self, parts: Iterable[Message]) -> Iterator[Message]:
        """The parts without secrets. Only rewritten messages are stored in a block; others are stored as places."""
        for message in parts:
            raw = self.rules.redact(message.raw) if message.literal else message.raw
            yield message if raw == message.raw else make_literal(raw, message.start, message.stop, message.made)


def _mark_observations(request: Request, rules: Rules, *, text_style: bool = False) -> tuple[Message, ...]:
    """The body with its observations marked; the same value where there are none."""
    body = request.body
    marked = mark_observations(body, rules.observations, rules.pins, text_style=text_style)
    return body if all(map(is_, marked, body)) else marked


def count_calibrated(estimate: Count, calibration: Calibration, piece: bytes) -> int:
    """Tokens of one piece, as the upstream counts them."""
    return calibration.calibrate(estimate(piece))


def count_all(columns: Columns, messages: Sequence[Message], estimate: Count) -> int:
    """Tokens of all these messages by our tokenizer; `columns` are theirs."""
    return sum_up(columns, messages, estimate)[-1] if messages else 0


def sum_up(columns: Columns, messages: Sequence[Message], estimate: Count) -> Sequence[int]:
    """Tokens of each of these messages and all before it."""

    def add_up(sums: Sequence[int]) -> Iterator[int]:
        counts = (estimate(message.raw) for message in messages[len(sums) :])
        return islice(accumulate(counts, initial=sums[-1] if sums else 0), 1, None)

    return columns.extend(estimate, len(messages), add_up)


def _build_opening_block(body: tuple[Message, ...], rules: Rules, facts: Facts) -> Block:
    """The block in place of none: what the model has answered goes out as it came, always-steps begin after it.

    Once an always-step acts, this block is stored, so that later requests apply the steps from the same place on.
    """
    covers = find_last_assistant(body) or 0
    always = rules.always if rules.new_blocks else ()
    return Block(
        covers,
        (Part(0, covers),) if covers else (),
        always=always,
        window=facts.usable_tokens,
        reason=OPENING_REASON,
        policy=rules.label,
        text_style=is_text_style(body),
    )


def _strip_reasoning(messages: Iterable[Message], until: int) -> tuple[Message, ...]:
    """The messages, those before this place without their reasoning."""
    return tuple(
        _REASONING.strip(message) if message.start < until and message.role == "assistant" else message
        for message in messages
    )
