"""One history with a block in place, and the view of it that is forwarded.

    covered          tail
    m0 s1            m6 m7   m8 m9 m10        the view
    before   middle          after            a draft of it, whose middle steps shorten

1. `with_block` puts a block in place of the messages that it covers. `without_block` puts an *opening block* there: it
   covers all that the model has answered, unchanged, and the always-steps begin after it. `with_opening_block` makes
   that last.
2. `TailWriter` writes the messages after the block, each when it arrives. It stays so while the block does, so the
   upstream finds these bytes in its cache again: they follow from the block and from the messages up to them.
3. `draft` and `draft_up_to` cut the view, steps shorten the middle, and `with_draft` makes the result a block.

The functions at the end say whether a shorter view is worth a rewrite, and a summary a call of a model: one test judges
a summary before a model is asked, by the longest answer, and again when it is used.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, islice, takewhile
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from proxy.foundation.model_names import find_binding
from proxy.history import pins
from proxy.history.grouping import find_groups, iterate_groups, repair, snap, snap_to
from proxy.history.identity import remove_wrapping
from proxy.history.messages import (
    JOINED,
    NOTE,
    Message,
    find_last_assistant,
    find_pruned_tools,
    make_literal,
    remove_pruned_tools,
)
from proxy.history.observations import find_newest_words, is_text_style, mark_observations
from proxy.history.repeats import RESTORED, Result, correct_claims, leave_out_promise
from proxy.history.request import Count, Known, Request, is_other
from proxy.recall import offer_tool
from proxy.shorten.back_off import (
    Needs,
    Reading,
    RefetchCost,
    account_refetches,
    append_results,
    find_needs,
)
from proxy.shorten.block import Block, BlockReason, Part, Reason, Refetch, close
from proxy.shorten.clear_results import StripReasoning, restore_repeated
from proxy.shorten.documents import find_kept_documents
from proxy.shorten.economics import UNCALIBRATED, Calibration
from proxy.shorten.fold import find_speaker, join_words, make_notes
from proxy.shorten.pipeline import Draft, Step, estimate_tokens, run
from proxy.shorten.rules import ENOUGH_SHARE, NOTHING_KNOWN, DueFold, Facts, Keep, Rules, find_due_fold
from proxy.shorten.summary import Summary


class TailMessage(Struct, frozen=True, gc=False):
    message: Message
    """The message as it is forwarded."""
    uncarried: Message
    """The same message without the results that it carries."""
    refetch: Refetch | None = None


class TailWriter(Struct, frozen=True):
    """Writes the messages after a block.

    1. The always-steps of the block shorten each.
    2. If it says that an earlier result is in the context, and that is not so any more, the text comes again.
    3. If it brings a shortened result again, it is a refetch, and other results may be appended to it (`back_off.py`).
    """

    state: "ConversationState"
    """The state in which the block is put."""
    block: Block
    block_view: tuple[Message, ...]
    """The messages of the block."""

    def write(self) -> tuple[tuple[Message, ...], tuple[Refetch, ...]]:
        """Return the messages, and the refetches among them and among those that the block covers."""
        state, block = self.state, self.block
        shown = block.made_at, block.refetches, block.carry_tokens
        causes = block.digest, block.covers, block.always, block.window, state.recalls, state.is_marked, shown
        tail = state.known.column("tail", self._extend, *causes)[block.covers :]
        messages = tuple(map(attrgetter("message"), tail))
        # Output in messages of other roles names no calls, so nothing is known to be fetched again.
        return messages, () if state.is_marked else tuple(self._list_refetches(tail))

    def _list_refetches(self, tail: Sequence[TailMessage]) -> list[Refetch]:
        covered_refetches = [refetch for refetch in self.block.refetches if refetch.place < self.block.covers]
        return [*covered_refetches, *filter(None, map(attrgetter("refetch"), tail))]

    def _extend(self, earlier: Sequence[TailMessage]) -> Iterable[TailMessage]:
        start = max(self.block.covers, len(earlier))
        # One value stands for each covered message: separate ones would be kept as long as the history.
        covered = TailMessage(Message(b"", ""), Message(b"", ""))
        return chain([covered] * (start - len(earlier)), self._write_from(start, earlier[self.block.covers :]))

    def _write_from(self, start: int, tail: Sequence[TailMessage]) -> Iterator[TailMessage]:
        """Yield the messages from *start* on, after those of the *tail* before them."""
        known, block = self.state.known, self.block
        new_messages = self._shorten_new(start)
        if self.state.is_marked:  # output in other roles names no calls, so it repeats and claims nothing
            yield from map(TailMessage, new_messages, new_messages)
            return
        results, makes_claim, may_refetch = known.results, False, bool(block.refetches)
        for message in new_messages:
            makes_claim = makes_claim or results[message.start].target is not None
            may_refetch = may_refetch or results[message.start].earlier >= 0
        if makes_claim and block.covers:
            new_messages = self._correct_new(tail, new_messages)
        before = (*self.block_view, *map(attrgetter("message"), tail))
        if not may_refetch or not is_other((*before, *new_messages), known.messages):
            yield from map(TailMessage, new_messages, new_messages)
            return
        stored_refetches = {refetch.place: refetch for refetch in block.refetches}
        reading = Reading(known, block, before, self._list_refetches(tail))
        for message in new_messages:
            refetch = stored_refetches.get(message.start)
            if message.start >= block.made_at:
                refetch = reading.find_refetch(message)
            new_message = message
            if refetch is not None and refetch.carried:
                new_message = append_results(message, known, refetch.carried)
            reading.add(new_message, refetch)
            yield TailMessage(new_message, message, refetch)

    def _shorten_new(self, start: int) -> Sequence[Message]:
        """Let the always-steps shorten the messages from *start* on."""
        known, block = self.state.known, self.block
        new_messages = known.messages[start:]
        hashes = known.map("content hashes", lambda message: hash(remove_wrapping(message.content)))
        few = 16  # the check reads all hashes for each new message
        if len(new_messages) <= few and are_spared(block.always, new_messages, block.window, hashes):
            return new_messages
        if start > block.covers:
            # If the steps leave the new messages as they are, the others stay as they were.
            new_tail = run(block.always, self._draft_from(start))[0].middle
            if new_tail and not is_other(new_tail, new_messages):
                return new_tail
        return run(block.always, self._draft_from(block.covers))[0].middle[start - block.covers :]

    def _draft_from(self, start: int) -> Draft:
        """Return a draft whose middle begins with this message of the history."""
        state, block = self.state, self.block
        earlier, new_messages = state.body[block.covers : start], state.body[start:]
        return Draft(
            state.request.head + self.block_view + earlier,
            new_messages,
            fixed=frozenset(message.start for message in new_messages if not message.is_bulk or message.declares_tools),
            documents=state.find_documents(self.block_view + earlier + new_messages, block.window),
            window=block.window,
            count=state.count,
            recalls=state.recalls,
        )

    def _correct_new(self, tail: Sequence[TailMessage], new_messages: Sequence[Message]) -> Sequence[Message]:
        """Bring the text of a result again if a new message says that it is in the context, and it is not any more."""
        body, results = self.state.body, self.state.known.results
        tail_messages = tuple(map(attrgetter("uncarried"), tail))
        before = self.block_view + tail_messages
        whole_starts = _find_whole_starts((*before, *new_messages), results)
        earlier = body[: self.block.covers + len(tail)]
        saved_bytes = sum(len(message.raw) for message in earlier) - sum(len(message.raw) for message in before)
        messages = [*correct_claims((*tail_messages, *new_messages), body, results, whole_starts, saved_bytes)]
        return messages[len(tail) :]


def are_spared(
    steps: Iterable[Step], new_messages: Iterable[Message], window: int | None, hashes: Sequence[int]
) -> bool:
    """Return whether these steps surely leave new messages as they are.

    *hashes*: those of the contents of the whole history.
    """
    for step in steps:
        spares = getattr(step, "spares", None)
        if spares is None:
            return False
        for message in new_messages:
            if not spares(message, window, hashes):
                return False
    return True


def leave_out_false_promises(known: Known, parts: Sequence[Message]) -> tuple[Message, ...]:
    """Drop promises that a file is in the context if the block shortens it."""
    results, whole_starts = known.results, _find_whole_starts(parts, known.results)
    corrected_parts = []
    for message in parts:
        if message.made == "":
            result = results[message.start]
            if result.act == "edit" and result.target is not None and result.target not in whole_starts:
                message = leave_out_promise(message)  # noqa: PLW2901
        corrected_parts.append(message)
    return tuple(corrected_parts)


def _find_whole_starts(view: Iterable[Message], results: Sequence[Result]) -> set[int]:
    """Return the starts of the messages whose text stands in the view, also if it replaces a pointer to it."""
    starts = set[int]()
    for message in view:
        if message.made in ("", RESTORED):
            starts.add(message.start)
        target = results[message.start].target if message.made == RESTORED else None
        if target is not None:
            starts.add(target)
    return starts


class ConversationState(Struct, frozen=True, dict=True):  # with a dict, for cached properties
    request: Request
    chain: Sequence[bytes]
    known: Known
    """The history and the values computed from it. Output in messages of other roles is marked as such."""
    rules: Rules
    facts: Facts
    estimate: Count
    calibration: Calibration
    block: Block = Block(0, ())
    has_block: bool = False
    """The block is, or will be, stored."""
    known_view: Known = Known(())
    covered_count: int = 0
    """The number of messages in the view that are the block's: neighbouring words of the user are one."""
    refetches: tuple[Refetch, ...] = ()
    """All results that the model fetched again because they had been shortened."""

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
        rules = rules.fit(facts)
        known = mark_observations(request.known, rules.observations, rules.pins)
        bare = cls(request, chain, known, rules, facts, count, calibration)
        if block is None:
            return bare.without_block()
        marked_state = bare
        if block.text_style and not is_text_style(request.known):
            # The observations must be those of the time when the block was made.
            known = mark_observations(request.known, rules.observations, rules.pins, text_style=True)
            marked_state = replace(bare, known=known)
        newest_words = find_newest_words(marked_state.known)
        if block.fits(len(marked_state.body), newest_words) and marked_state.needs_block(block):
            return marked_state.with_block(block, has_block=True)
        return bare.without_block()

    @property
    def body(self) -> tuple[Message, ...]:
        return self.known.messages

    @property
    def view(self) -> tuple[Message, ...]:
        return self.known_view.messages

    @cached_property
    def is_marked(self) -> bool:
        return self.known is not self.request.known

    @property
    def pinned_passages(self) -> tuple[str, ...]:
        pins = self.rules.pins
        # Texts are the same in a marked history, and much is known of the request's own.
        return pins.choose(self.body, self.request.known.map("pinned passages", pins.find, pins))

    @property
    def newest_words(self) -> frozenset[int]:
        """The places of the newest words, which no step may touch."""
        places = {find_newest_words(self.known)}
        if not is_text_style(self.request.known):  # then the newest message in a user's role may be words, too
            places.add(find_newest_words(self.request.known))
        return frozenset(place for place in places if place is not None)

    @property
    def recalls(self) -> bool:
        tools, definition = self.request.tools, self.rules.recall_tool
        return definition != b"" and offer_tool(tools, definition) is not tools

    @property
    def short_by(self) -> Reason:
        """The setting by which the conversation is too short to be shortened; else empty."""
        rules = self.rules
        if len(list(islice(iterate_groups(self.known.group_starts), rules.min_groups))) < rules.min_groups:
            return "min_groups"
        if rules.min_turns > 0 and rules.min_turns >= max(self.known.turns[-1:], default=0):
            return "min_turns"
        return ""

    @property
    def count(self) -> Count:
        return partial(count_calibrated, self.estimate, self.calibration)

    def count_tokens(self, messages: Iterable[Message]) -> int:
        raws = map(attrgetter("raw"), messages)
        return self.calibration.calibrate(sum(map(self.estimate, raws)))

    def count_body(self) -> int:
        return self.calibration.calibrate(self.request.known.count_tokens(self.estimate))

    def with_block(self, block: Block, *, has_block: bool) -> "ConversationState":
        block_view = None if self.is_marked else self.request.known.find_covered(block, block.covers)
        if block_view is None:
            block_view = block.apply(self.body)
            if has_block:
                block_view = join_words(block_view)
        tail, refetches = TailWriter(self, block, block_view).write()
        # Under an opening block messages were forwarded unrepaired before it was stored.
        if has_block and self.rules.repair and block.reason != "opening":
            callers = block_view[-1:]
            if callers and not callers[0].calls:
                callers = ()
            repaired = repair(callers + tail, takes_late_results=self.request.takes_late_results)
            tail = repaired[len(callers) :]
        if block.reasoning_until:
            block_view = _strip_reasoning(block_view, block.reasoning_until)
            tail = _strip_reasoning(tail, block.reasoning_until)
        view, known_view = block_view + tail, self.known
        if is_other(view, self.body):
            lasting_block = None if self.is_marked or block.reasoning_until else block
            known_view = self.request.known.continue_view(view, lasting_block, len(block_view))
        return replace(
            self,
            block=block,
            has_block=has_block,
            known_view=known_view,
            covered_count=len(block_view),
            refetches=refetches,
        )

    def find_documents(self, view: Iterable[Message], window: int | None) -> frozenset[int]:
        return find_kept_documents(self.known, view, window) if self.rules.keep_documents else frozenset()

    def without_block(self) -> "ConversationState":
        body, rules = self.body, self.rules
        covers = find_last_assistant(body) or 0
        always = rules.always if rules.new_blocks else ()
        if self.facts.refetches_much and self.facts.fits(self._count_outside() + self.count_body()):
            always = ()  # a clipped result would be read again, part by part
        block = Block(
            covers,
            (Part(0, covers),) if covers else (),
            always=always,
            window=self.facts.usable_tokens,
            reason="opening",
            policy=rules.label,
            text_style=is_text_style(self.request.known),
        )
        return self.with_block(block, has_block=False)

    def with_opening_block(self) -> "ConversationState":
        """Store the opening block: an always-step has acted for the first time."""
        if self.tools == self.request.tools or not self.binds_reasoning(is_refused=self.block.is_reasoning_refused):
            return replace(self, has_block=True)
        # A tool is offered from now on, and tools stand before all messages: an upstream that binds reasoning to the
        # text before it would refuse the old one.
        return self.with_block(replace(self.block, reasoning_until=len(self.body)), has_block=True)

    def needs_block(self, block: Block) -> bool:
        """Return whether a block is needed: one made for a smaller window is not, while the history fits without it."""
        facts, nominal_tokens = self.facts, self.facts.nominal_tokens
        made_for = block.window if block.nominal_tokens is None else block.nominal_tokens
        if not block.is_for_window or nominal_tokens is None or made_for is None or nominal_tokens <= made_for * 1.25:
            return True
        # Ignore this request's `max_tokens`: clients alternate between 8k and 64k, and the block would flap.
        base = facts.trigger_base_tokens if self.rules.trigger_of == "window" else None
        limit = self.rules.find_limit(replace(facts, usable_tokens=nominal_tokens, trigger_base_tokens=base))
        size = self._count_outside() + self.count_body()
        if not self.rules.new_blocks and not facts.fits(size):
            return True
        return limit is not None and size > limit.tokens

    @cached_property
    def tools(self) -> bytes | None:
        tools = self.request.tools
        if self.block.pruned:
            pruned_names = [name for name in self.block.pruned if name != self.request.forced_tool]
            tools = remove_pruned_tools(tools, pruned_names)
        # Once offered, the tool stays for ever: tools come first in an upstream's cache, and removing one voids it.
        if self.rules.recall_tool and (self.has_block or not self.is_untouched):
            return offer_tool(tools, self.rules.recall_tool)
        return tools

    @property
    def is_untouched(self) -> bool:
        return self.known_view is self.known

    @property
    def refetch_cost(self) -> RefetchCost:
        return account_refetches(self.body, self.refetches, self.count) if self.refetches else RefetchCost()

    @property
    def view_id(self) -> bytes:
        """The identity of the view, for `Anchor`. The link is not enough: two blocks at one link may differ."""
        return self.chain[self.block.covers] + self.block.digest if self.has_block else b""

    @property
    def newer_summary(self) -> Summary | None:
        summary = self.facts.summary
        if summary is not None and (summary.covers > self._summarized_messages or self.is_refocused):
            return summary
        return None

    @property
    def is_refocused(self) -> bool:
        has_other_focus = self.facts.focus not in ("", self.block.focus)
        return self.facts.force and has_other_focus and self.block.summary is not None

    @property
    def awaits_summary(self) -> bool:
        return self.facts.summary_in_progress_covers > self._summarized_messages

    @property
    def _summarized_messages(self) -> int:
        return 0 if self.block.summary is None else self.block.summary.covers

    @cached_property
    def size(self) -> int:
        """The upstream's count of an earlier request plus the new messages, or our count."""
        anchor = self.facts.anchor
        if anchor is not None and anchor.tokens > 0 and anchor.view_id == self.view_id:
            uncounted_messages, covers = self.view, 0
            if self.has_block:
                uncounted_messages, covers = self.view[self.covered_count :], self.block.covers
            # The anchor may be older than the last answer: it was cut off, refused, or given through another replica.
            for place in reversed(range(covers, len(self.chain))):
                if self.chain[place] == anchor.link:
                    newer = takewhile(lambda message: message.start >= place, reversed(uncounted_messages))  # noqa: B023 (used at once)
                    return anchor.tokens + self.count_tokens(newer)
        return self._count_outside() + self.view_tokens

    def fits(self, freed_tokens: float = 0) -> bool:
        """Return whether the request fits in the window once it is shorter by *freed_tokens*."""
        return self.facts.fits(self.size - freed_tokens)

    @cached_property
    def view_tokens(self) -> int:
        return self.calibration.calibrate(self.known_view.count_tokens(self.estimate))

    def find_due_fold(self) -> DueFold | None:
        body, needs, needed_tokens = self.body, self.needs, 0
        if needs.in_use or needs.reach_tokens:
            needed_tokens = needs.in_use_tokens + max(needs.reach_tokens, self.rules.keep.tokens)
        user_writes = bool(body) and body[-1].is_user
        return find_due_fold(self.rules, self.facts, self.size, user_writes=user_writes, needed_tokens=needed_tokens)

    @cached_property
    def needs(self) -> Needs:
        limit = self.rules.find_limit(self.facts) if self.refetches else None
        if limit is None:
            return Needs()
        return find_needs(self.refetches, self.known, self.known.token_sums(self.estimate), limit.tokens)

    def _count_outside(self) -> int:
        tools = self.tools
        return self.count_tokens(self.request.head) + (self.count(tools) if tools else 0)

    def draft(self, keep: Keep) -> Draft:
        joined_count = len(self.parted_view) - len(self.view)
        return self._draft_before(self.find_cut(keep) + joined_count, keep)

    @cached_property
    def parted_view(self) -> tuple[Message, ...]:
        """The view with each message of the user by itself, as a step takes them."""
        if all(message.made != JOINED for message in self.view[: self.covered_count]):
            return self.view
        covered = self.block.apply(self.body)
        if self.block.reasoning_until:
            covered = _strip_reasoning(covered, self.block.reasoning_until)
        return covered + self.view[self.covered_count :]

    def draft_up_to(self, covers: int) -> Draft | None:
        """Cut where `body[:covers]` ends; None if that is inside a group or a note."""
        view = self.parted_view
        cut = len(view)
        for place, message in enumerate(view):
            if message.stop > covers:
                cut = min(cut, place)
            if place >= cut and message.start < covers:
                return None
        if not cut or snap(view, cut) != cut:
            return None
        return self._draft_before(cut, self.rules.keep)

    def _draft_before(self, cut: int, keep: Keep) -> Draft:
        """Return a draft that ends before *cut*, a place in the view in which each of the user's messages is apart."""
        view, first = self.parted_view, 0
        groups = find_groups(view)[: keep.first] if keep.first else ()
        for group in groups:
            if any(message.made == NOTE for message in view[group.start : group.stop]):
                break  # an earlier fold went deeper, and a newer note may take this one up
            first = min(cut, group.stop)
        fixed = pins.find_fixed(view, self.pinned_passages, None) | self.newest_words
        calls = self.known_view.callers[first:cut] if view is self.view else None
        return Draft(
            self.request.head + view[:first],
            view[first:cut],
            view[cut:],
            tools=self.tools,
            takes_user_rows=self.request.takes_user_rows,
            forced_tool=self.request.forced_tool,
            fixed=fixed,
            documents=self.find_documents(view, self.facts.usable_tokens),
            in_use=self.needs.in_use,
            origin=self.body,
            window=self.facts.usable_tokens,
            recalls=self.recalls,
            pointer=self.rules.summary.pointer,
            count=self.count,
            measure=self.request.measure,
            calls=calls,
        )

    def find_cut(self, keep: Keep) -> int:
        """Return the start of the newest part, with the last answer at least until the client has followed that up."""
        if keep is self.rules.keep and self.needs.reach_tokens > keep.tokens:
            keep = replace(keep, tokens=self.needs.reach_tokens)
        view, starts = self.view, self.known_view.group_starts
        covered_count = self.covered_count if self.has_block else 0
        last_answer = find_last_assistant(view)
        if last_answer is None:
            return covered_count
        latest = snap_to(starts, last_answer)
        if not keep.groups and not keep.tokens:
            stop = next(group.stop for group in iterate_groups(starts) if group.start <= last_answer)
            if stop < len(view):
                latest = stop
        sums = self.known_view.token_sums(self.estimate)
        cut, tokens = len(view), 0
        for number, group in enumerate(iterate_groups(starts)):
            group_tokens = sums[group.stop - 1]
            if group.start:
                group_tokens -= sums[group.start - 1]
            tokens += self.calibration.calibrate(group_tokens)
            if number >= keep.groups and tokens > keep.tokens and group.start < latest:
                break
            cut = group.start
        if keep.turns:
            turns = self.known_view.turns
            cut = min(cut, bisect_left(turns, turns[-1] - keep.turns + 1))
        return max(covered_count, min(latest, cut))

    def with_draft(self, draft: Draft, reason: BlockReason, summary: Summary | None = None) -> "ConversationState":
        rules, facts = self.rules, self.facts
        # A look-up finds the longest block of a history. So this block covers all messages that the one before it
        # covers, and also those before a late result that the repair has moved.
        stop = draft.middle_stop
        if self.has_block:
            stop = max(stop, self.block.covers)
        passed_over = tuple(takewhile(lambda message: message.start < stop, draft.after))
        after = draft.after[len(passed_over) :]
        covers = after[0].start if after else len(self.body)
        view = draft.before[len(self.request.head) :] + draft.middle + passed_over
        if rules.repair:
            view = repair(view, takes_late_results=self.request.takes_late_results)
        lost_passages = pins.find_missing_passages(self.pinned_passages, (*view, *self.body[covers:]))
        if lost_passages:
            text = "\n".join(("Pinned, word for word:", *lost_passages))
            view += make_notes(text, find_speaker(reversed(view)), find_speaker(after), covers, covers)
        if self.has_block and covers == self.block.covers and after:
            # The block before it is stored under this link, and the first writer wins (decision 0005): cover a message
            # more, so that the store holds both.
            view, covers = (*view, after[0]), after[0].stop
        view = restore_repeated(view, self.body)
        if not self.is_marked:
            view = leave_out_false_promises(self.known, view)
        parts = []
        for message in view:
            # A block stores rewritten messages, which may hold secrets; it refers to others by their places.
            raw = rules.redact(message.raw) if message.literal else message.raw
            is_same = raw == message.raw
            parts.append(message if is_same else make_literal(raw, message.start, message.stop, message.made))
        is_refused = self.block.is_reasoning_refused or reason == "signature"
        reasoning_until = self.block.reasoning_until
        if self.binds_reasoning(is_refused=is_refused):
            reasoning_until = len(self.body)
        limit = rules.find_limit(facts)
        block = Block(
            covers,
            close(parts),
            always=rules.always,
            window=facts.usable_tokens,
            nominal_tokens=facts.nominal_tokens,
            reason=reason,
            policy=rules.label,
            pruned=find_pruned_tools(self.request.tools, draft.tools),
            summary=summary or self.block.summary,
            focus=facts.focus if summary is not None and facts.force else self.block.focus,
            text_style=self.block.text_style or is_text_style(self.request.known),
            reasoning_until=reasoning_until,
            is_reasoning_refused=is_refused,
            made_at=len(self.body),
            refetches=self.refetches,
            # The view grows by carried results to less than the limit, or they would bring the next fold nearer.
            carry_tokens=int(limit.tokens * ENOUGH_SHARE) if limit is not None else 0,
        )
        return self.with_block(block, has_block=True)

    def binds_reasoning(self, *, is_refused: bool) -> bool:
        binding = find_binding(self.request.model, has_budget=self.request.has_thinking_budget)
        if binding == "no" or (binding == "if-refused" and not is_refused):
            return False
        return any(message.has_claude_thinking for message in self.body)


def count_calibrated(estimate: Count, calibration: Calibration, piece: bytes) -> int:
    return calibration.calibrate(estimate(piece))


def _strip_reasoning(messages: Iterable[Message], until: int) -> tuple[Message, ...]:
    strip = StripReasoning(with_calls=True, signed=True).strip
    bare_messages = []
    for message in messages:
        is_bound = message.start < until and message.role == "assistant"
        bare_messages.append(strip(message) if is_bound else message)
    return tuple(bare_messages)


def is_worth_rewriting(state: ConversationState, freed_tokens: float, limit: int) -> bool:
    """Return whether a view that is shorter by *freed_tokens* lasts until the next block is due.

    A block that follows another must bring the view well under the limit, or every turn would make one.
    """
    follows_another = state.has_block and state.block.is_for_window
    required_tokens = max(1, int(state.size * state.rules.min_progress))
    if follows_another:
        required_tokens = max(required_tokens, limit - int(limit * ENOUGH_SHARE))
    if freed_tokens < required_tokens:
        return False
    # A large gain is of use, even if the view stays over its limit (decision 0005).
    return not follows_another or state.size - freed_tokens <= limit or freed_tokens >= state.size * 0.3


def may_call_again(state: ConversationState) -> bool:
    """Return whether requests have read enough since the last call for a summary to pay for another one.

    Four times as much as one call reads is enough. Each call in a row whose answer was not used doubles that amount.
    """
    read_tokens = state.facts.read_since_question
    if read_tokens is None:
        return True
    return read_tokens >= 4 * state.size << state.facts.unused_summaries
