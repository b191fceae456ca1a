"""Summaries: a model's account of the old part of a history, put in its place.

A summary is a model's word on other people's words. So it is put as background and never as an instruction, and it is
never alone: the user's own messages stay verbatim beside it, and the ledger lists the deeds mechanically, whatever
the model forgot. It is made over a prefix of the client's history and kept under the chain link of its end, so it can
be prepared before it is needed, and any worker finds it.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from proxy.history.agents import Hint
from proxy.shorten.fold import count_bytes, fold_stretches
from proxy.shorten.kept_messages import count_words, find_kept_words, find_lost_documents
from proxy.shorten.ledger import write_ledger
from proxy.shorten.notes import HEADING, LOST_WORDS
from proxy.shorten.pipeline import Count, Draft

LEDGER_SHARE = 0.25
"""What the ledger may take of the goal of a view."""
AS_OF = "(The state at this place; what follows is newer.)"
LEDGER = "Taken from the calls themselves:"
WORDS_PER_TOKEN = 0.4
"""Paths and identifiers take more tokens than prose."""
THEN = "\n\nAnd after that, as the next summary tells it:\n\n"
"""Between two summaries, one after the other. Words, because models draw lines of their own."""
NOTED = "Noted. I go on from there."
NOTES_HEADING = "Notes on older results that are shortened above, written by a model before they were:"


@dataclass(frozen=True, slots=True)
class Summary:
    """A model's account of `body[:covers]`."""

    covers: int
    text: str


@dataclass(frozen=True, slots=True)
class SummaryRules:
    """Rules for summaries: when a model is asked, for what, and how its answer is used."""

    enabled: bool = True
    """Ask a model where clearing is not enough; off: clearing and folding without a model."""
    prepare: float = 0.8
    """Over this share of the trigger it is asked ahead, in the background."""
    ahead: bool = True
    """Off: it is asked at the trigger, of a first request too, and the request waits."""
    stream: bool = True
    """Its answer is streamed where the client's request is."""
    input_chars: int = 0
    """The first so many characters of a retold history are sent, whatever fits (0: all that fits)."""
    verbatim: float = 0.5
    """The share of the target that stays word for word behind a summary, where `Keep` does not say more."""
    call: Literal["aligned", "transcript"] = "aligned"
    """`aligned` puts the question to the conversation as last forwarded, which the upstream has cached; `transcript`
    retells it in one message."""
    prompt: str = ""
    """The instructions to the model; `{words}` in it is the length that they ask for."""
    headings: tuple[str, ...] = ()
    """Sections of which an answer must have at least half."""
    max_tokens: int = 4_000
    """The longest that a summary may be."""
    shape: Literal["notes", "single", "pair"] = "notes"
    """`notes`: the user's messages stay, with notes between them; `single`: one message; `pair`: one, and an
    acknowledgement."""
    user_tokens: int = 20_000
    """In `notes`, how many tokens of the user's messages stay verbatim: the first message, then the newest."""
    ledger: int = 6_000
    """Bytes of ledger below the summary (0: none)."""
    notes: int = 0
    """The most tokens of notes that a model writes before old results are cleared in bulk (0: none are asked for)."""
    scope: int = 0
    """How many earlier summaries stay before the newest; 0: a single one, brought up to date each time."""
    scope_tokens: int = 0
    """Tokens of the earlier ones (0: no bound)."""
    pointer: str = ""
    """A sentence at its end that says where the originals are: `{path}` and `{conversation}` are filled in."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: the newest of those to keep stay with their calls, up to half of the target."""

    @property
    def instruction(self) -> str:
        """The prompt with the number of words that fit in `max_tokens`."""
        return self.prompt.replace("{words}", str(int(self.max_tokens * WORDS_PER_TOKEN)))


def join_summaries(earlier: Summary | None, newest: Summary, rules: SummaryRules, count: Count) -> Summary:
    """The newest summary, and those before it that the scope keeps."""
    if earlier is None or not rules.scope:
        return newest
    texts, room = [newest.text], rules.scope_tokens
    for text in reversed(earlier.text.split(THEN)[-rules.scope :]):
        room -= count(text.encode("utf-8", "replace"))
        if rules.scope_tokens and room < 0:
            break
        texts.insert(0, text)
    return Summary(newest.covers, THEN.join(texts))


@dataclass(frozen=True, slots=True)
class Summarize:
    """Replace the middle by a summary of it."""

    name: ClassVar[str] = "summary"

    text: str
    rules: SummaryRules
    may_fold_words: bool = False
    """Fold the user's words as well if the view is not shorter otherwise: the client has asked for this summary."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.may_fold(message))

    def __call__(self, draft: Draft) -> Draft:
        summarized = self._summarize(draft, find_kept_beside(draft, self.rules))
        if self.may_fold_words and count_bytes(summarized.middle) >= count_bytes(draft.middle):
            # A talk of short messages: notes between all words of the user would take as much room as the answers did.
            kept_ids = find_kept_words(draft, 0, repeats_notes=True, hints=self.rules.hints)
            summarized = self._summarize(draft, kept_ids)
        return summarized if count_bytes(summarized.middle) < count_bytes(draft.middle) else draft

    def _summarize(self, draft: Draft, kept_ids: set[int]) -> Draft:
        # Even if the account is longer than the last stretch: it tells of the others too.
        answer = NOTED if self.rules.shape == "pair" else ""
        account = self._write_account(draft, kept_ids)
        return fold_stretches(draft, kept_ids, lambda stretch: stretch.notes(account, answer), once=True)

    def _write_account(self, draft: Draft, kept_ids: set[int]) -> str:
        """The summary, the ledger of all it covers (with the user's words if these go), and the pointer."""
        covered = draft.origin[: max((message.stop for message in draft.middle), default=0)]
        lost = _count_lost_user_messages(draft, kept_ids)
        ledger = write_ledger(
            covered,
            draft.bytes_within(LEDGER_SHARE, self.rules.ledger),
            with_user_words=lost > 0,
            lost_documents=find_lost_documents(draft, kept_ids),
        )
        lines = [HEADING, AS_OF, self.text]
        if ledger:
            lines += ["", LEDGER, ledger]
        if lost and self.rules.shape == "notes":
            lines += ["", LOST_WORDS.format(lost)]
        if self.rules.pointer:
            lines += ["", self.rules.pointer]
        return "\n".join(lines)


def find_kept_beside(draft: Draft, rules: SummaryRules) -> set[int]:
    """The ids of messages of the middle that stay beside a summary."""
    user_tokens = rules.user_tokens if rules.shape == "notes" else 0
    return find_kept_words(draft, user_tokens, repeats_notes=True, hints=rules.hints)


def _count_lost_user_messages(draft: Draft, kept_ids: set[int]) -> int:
    """The number of user messages that are no longer in the view, because of this block or an earlier one."""
    stop = max((message.stop for message in draft.middle), default=0)
    beside = (*draft.before, *(message for message in draft.middle if id(message) in kept_ids))
    kept_starts = {message.start for message in beside if message.is_user}
    return count_words(message for message in draft.origin[:stop] if message.start not in kept_starts)
