"""Summaries: a model's account of the old part of a history, put in its place.

A summary is a model's word on other people's words. So it is put as background and never as an instruction, and it is
never alone: the user's own messages stay verbatim beside it, and the ledger lists the deeds mechanically, whatever
the model forgot. It is made over a prefix of the client's history and kept under the chain link of its end, so it can
be prepared before it is needed, and any worker finds it.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from proxy.declaration import internal, setting
from proxy.history.agents import Hint
from proxy.shorten.fold import count_bytes, fold_stretches
from proxy.shorten.kept_messages import count_words, find_kept_words, find_lost_documents
from proxy.shorten.ledger import write_ledger
from proxy.shorten.notes import HEADING, LOST_WORDS
from proxy.shorten.pipeline import Draft

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
    """Ask a model for a summary. If false, old messages are replaced by a list of what was done, made without a
    model."""
    prepare: float = setting(0.95, gt=0)
    """Share of the trigger at which a summary is requested in the background. Lower it if requests have to wait for
    summaries."""
    ahead: bool = True
    """Request summaries in the background before they are needed. If false, the request that exceeds the trigger asks
    for one and waits."""
    call: Literal["aligned", "transcript"] = "aligned"
    """How to ask: `aligned` appends the question to the conversation, which the provider has cached; `transcript` sends
    the old part as one text. Another upstream or model always gets a transcript."""
    prompt: str = internal("")
    """The instructions to the model; `{words}` in it is the length that they ask for."""
    headings: tuple[str, ...] = internal(())
    """Sections of which an answer must have at least half."""
    max_tokens: int = setting(4_000, ge=100)
    """Longest summary in tokens. At most a third of `target` is used, and no more than the model can write."""
    stream: bool = True
    """Stream the summary if the client streams. Set it to false for models that cannot stream."""
    input_chars: int = 0
    """With `call: transcript`, send only this many characters from the beginning of the old part; 0 sends all that
    fits."""
    verbatim: float = setting(0.5, lt=1)
    """Share of `target` for the newest messages, which stay word for word after a summary, unless `keep` keeps more."""
    shape: Literal["notes", "single", "pair"] = "notes"
    """Form of the summary: `notes` between the user's own messages, a `single` message, or a `pair` of a message and an
    acknowledgement."""
    user_tokens: int = internal(20_000)
    """With `notes`: tokens of the user's messages that stay word for word, the first one, then the newest."""
    ledger: int = 8_000
    """Bytes for a list of files, commands and errors below the summary, taken from the tool calls; 0 leaves it out."""
    notes: int = 0
    """Tokens of notes that a model writes on old results before they are shortened; 0 asks for none. The policy `notes`
    sets 750, about 300 words."""
    scope: int = 0
    """Number of earlier summaries to keep before the newest one; 0 updates a single summary each time."""
    pointer: str = ""
    """Sentence at the end of a summary. `{path}` in it becomes the folder of the originals, and `{conversation}` the id
    of the conversation; without originals the sentence is left out."""
    hints: tuple[Hint, ...] = internal(())
    """What the policy says of results by tool: the newest of those to keep stay with their calls, up to half of the
    target."""

    @property
    def instruction(self) -> str:
        """The prompt with the number of words that fit in `max_tokens`."""
        return self.prompt.replace("{words}", str(int(self.max_tokens * WORDS_PER_TOKEN)))


def join_summaries(earlier: Summary | None, newest: Summary, scope: int) -> Summary:
    """Put the *scope* newest of the earlier summaries before the newest one."""
    if earlier is None or not scope:
        return newest
    texts = earlier.text.split(THEN)[-scope:]
    return Summary(newest.covers, THEN.join([*texts, newest.text]))


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
