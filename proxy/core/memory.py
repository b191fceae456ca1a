"""Memory of a conversation between two requests: the values, their keys, and the bytes that a store keeps.

Keys begin with the tenant. Everything here may be lost: a value that is missing or unreadable means "unknown", never
an error, and is written again by the next request. Nothing is known beside it: what one worker knew alone, another
would not, and the two would forward different bytes.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeVar

from proxy.core.messages import (
    CanonicalForm,
    Message,
    Request,
    canonicalize,
    compute_chain,
    extract_text,
    make_block_key,
    make_bound_key,
)
from proxy.core.overlay import Block
from proxy.core.rules import Anchor
from proxy.core.window import UNCALIBRATED, Calibration, Window, decode_window

# --- head -------------------------------------------------------------------------------------------------------------
# The digest of a head: what a model-written summary is bound to.
#
# A model that writes a summary has read the head (the leading system and developer messages) and may repeat any of it.
# So a summary serves only requests with the same head, even where all messages after it are equal. Agents write some
# things into their heads that change while a conversation goes on: the date and the time, counters of tokens and steps,
# a checksum in a billing line, the state of a repository when a session is resumed. These are left out, or each turn
# would lose its summary. Everything else counts, numbers and ids too: they may be all that tells two customers apart.

DIGEST_BYTES = 8
_SPACE = r"(?:[ \t]{1,3})"
_YEAR = r"(?:19|20)\d\d"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_MONTH = (
    r"(?:jan(?:uary|uar|vier)?|feb(?:ruary|ruar)?|f\u00e9v(?:rier)?|mar(?:ch|s|zo)?|m\u00e4rz|apr(?:il|ile)?|avril|abril"
    r"|may|mai|mayo|maggio|june?|juni|juin|junio|giugno|july?|juli|juillet|julio|luglio|aug(?:ust)?|ao\u00fbt|agosto"
    r"|sep(?:t(?:ember|embre|iembre)?)?|settembre|oct(?:ober|obre|ubre)?|okt(?:ober)?|ottobre"
    r"|nov(?:ember|embre|iembre)?|dec(?:ember)?|dez(?:ember)?|d\u00e9c(?:embre)?|dic(?:iembre|embre)?|enero|febrero"
    r"|gennaio|febbraio)\b\.?"
)
_ZONE = rf"(?:{_SPACE}?(?:z|utc|gmt|[a-z]{{1,4}}st|[a-z]{{1,4}}dt|cet|mez|cest|mesz)\b)?(?:{_SPACE}?[+-]\d\d:?\d\d\b)?"
_CLOCK = rf"\d{{1,2}}:[0-5]\d(?::[0-5]\d(?:[.,]\d{{1,9}})?)?(?:{_SPACE}?[ap]\.?m\b\.?)?{_ZONE}"
_DATES = (
    rf"{_YEAR}([-/.])(?:0?[1-9]|1[0-2])\1{_DAY}(?!\d)(?:t{_CLOCK})?",
    r"20\d\d[01]\d[0-3]\dt\d{4,6}z?",
    rf"{_DAY}(?:/{_DAY}/(?:{_YEAR}|\d\d)|[-.]{_DAY}[-.]{_YEAR})(?!\d)",
    rf"{_DAY}(?:st|nd|rd|th|\.)?(?:{_SPACE}|-)(?:of{_SPACE}|de{_SPACE})?{_MONTH}(?:,?(?:{_SPACE}|-)(?:de{_SPACE})?{_YEAR})?",
    rf"{_MONTH}(?:{_SPACE}|-){_DAY}(?:st|nd|rd|th)?(?!\d)(?:,?{_SPACE}{_YEAR})?",
    rf"{_MONTH},?{_SPACE}{_YEAR}",
    _CLOCK,
    rf"\d{{1,2}}{_SPACE}?[ap]\.?m\b\.?",
    rf"\d{{1,6}}{_SPACE}?(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?){_SPACE}ago",
)
_MOMENT = re.compile(rf"(?<![\w.:/-])(?:{'|'.join(_DATES)})|{_YEAR}\u5e74\d{{1,2}}\u6708\d{{1,2}}\u65e5", re.IGNORECASE)
_EPOCH = re.compile(r"(?<!\d)1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?!\d)(?:\.\d{1,9})?")
_WEEKDAY = re.compile(
    r"\b(?:(?:mon|tue|tues|wed|wednes|thu|thurs|fri|sat|satur|sun)(?:day)?"
    r"|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
    r"|lunes|martes|mi\u00e9rcoles|jueves|viernes|s\u00e1bado|domingo)\b\.?|\u661f\u671f[\u4e00-\u9fff]",
    re.IGNORECASE,
)
_OF_TIME = re.compile(
    r"\b(?:today|now|date|time|timestamp|epoch|heute|datum|aujourd'hui|hoy|fecha)|\u4eca\u5929", re.IGNORECASE
)
_OF_COUNTERS = re.compile(
    r"\b(?:tokens?|context(?: window)?|time|steps?|turns?|iterations?|requests?|messages?|budget)"
    r" (?:usage|used|left|remaining|elapsed|so far)\b|\b(?:elapsed|uptime)\b|\bprevious messages between\b"
    r"|^\W*(?:current )?(?:turn|step|iteration)\b\W{0,3}\d",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[\d.,:]*%?")
# A client's own checksum over the request, different in each of them.
_BILLING = re.compile(r"x-anthropic-billing-header:", re.IGNORECASE)
# A snapshot of the repository, taken again when a session is resumed: its heading, and the lines that may follow it.
_GIT = re.compile(r"[#*<\s]{0,8}git[ _]?status\s?[:>]", re.IGNORECASE)
_OF_GIT = re.compile(
    r"\s*$|(?i:(?:current|main) branch\b|on branch |git user:|status:|recent commits:|\(clean\))"
    r"|[ MADRCUT?!][MADRCUT?! ] \S|[MADRCUT?!] \S+$|[0-9a-f]{7,40} "
)
_PLACE_OF_MOMENT = "\0"
_RUNS = re.compile(r"\0(?:[\s,]{0,8}\0)+")
_CACHED_LINES = 4_096
_CACHED_LINE_CHARACTERS = 1_000


def compute_head_digest(head: Sequence[Message], tenant: str, key: bytes, form: CanonicalForm = canonicalize) -> str:
    """Keyed hash of what a head says, without what changes from turn to turn. A history without a head has one too."""
    digest = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"head")
    for message in head:
        text = "\n".join(find_stable_lines(_extract_text(message, form), tenant)).encode("utf-8", "surrogatepass")
        digest.update(b"%d %s %d " % (len(message.role), message.role.encode(), len(text)) + text)
    return digest.hexdigest()


def find_stable_lines(text: str, tenant: str) -> Iterator[str]:
    """The lines of a tenant's text that say something, without dates, times, counters, the state of a repository."""
    in_git = False
    for line in text.splitlines():
        in_git = bool(_OF_GIT.match(line)) if in_git else bool(_GIT.match(line))
        if not in_git and line.strip() and not _BILLING.match(line):
            yield _remove_moments(tenant, line) if len(line) <= _CACHED_LINE_CHARACTERS else _replace_moments(line)


@lru_cache(maxsize=_CACHED_LINES)
def _remove_moments(_tenant: str, line: str) -> str:
    """The line without moments, cached: the same head comes with each request, and mostly each conversation.

    For each tenant by itself, so that the time this takes tells nothing of the heads of others.
    """
    return _replace_moments(line)


def _replace_moments(line: str) -> str:
    found = _MOMENT.sub(_PLACE_OF_MOMENT, line) if _NUMBER.search(line) else line
    if _OF_TIME.search(line):
        found = _EPOCH.sub(_PLACE_OF_MOMENT, found)
        found = _WEEKDAY.sub(_PLACE_OF_MOMENT, found)
    elif found != line:
        found = _WEEKDAY.sub(_PLACE_OF_MOMENT, found)
    if _OF_COUNTERS.search(line):
        found = _NUMBER.sub(_PLACE_OF_MOMENT, found)
    return _RUNS.sub(_PLACE_OF_MOMENT, found).rstrip()


def _extract_text(message: Message, form: CanonicalForm) -> str:
    """The text of a message; one with more than text in it is taken byte by byte, without its cache markers."""
    content = json.loads(message.content)
    parts: Iterable[object] = content if isinstance(content, list) else ()
    is_text = all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
    if isinstance(content, str | list) and is_text:
        return extract_text(content)
    return form(message).decode("utf-8", "surrogateescape")


# --- memory -----------------------------------------------------------------------------------------------------------

DAY_SECONDS = 24 * 3600.0
FACT_SECONDS = 7 * DAY_SECONDS
FAILED_SECONDS = 600.0
MAX_FAILURES = 2
"""After this many failed calls for a summary in a row, no model is asked again for a day."""
VERSION_0_1_SECRET_BYTES = 32
"""The length of the secret of a store that version 0.1 has made."""
OBSERVED = "observed"
"""Keys of blocks that were only observed begin with tenant/observed, apart from those in force."""
LAST_REQUEST_FORMAT_VERSION = 4
CANDIDATE_FORMAT_VERSION = 1

T = TypeVar("T")
ReadBlock = Callable[[bytes], Block | None]


class Stored(Protocol):
    """A value as the store has it, and the key it was found under."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> bytes: ...


Found = Sequence[Stored | None]
"""The first value under each list of keys of a look-up."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A history as the store knows it: its owner, the links of its chain, and who counts its tokens."""

    tenant: str
    links: Sequence[bytes]
    counter: str
    """Upstream and family of models: what one counts says nothing about another."""
    head: str = ""
    """The digest of its head. Summaries are bound to it: a model may repeat whatever its own head says."""

    @classmethod
    def of(
        cls,
        request: Request,
        tenant: str,
        secret: bytes,
        name: str,
        counter: str,
        *,
        form: CanonicalForm | None = None,
    ) -> "Identity":
        """The identity of a history. `name`: the client's, to tell apart conversations whose content is equal."""
        links = compute_chain(request, tenant, secret, name, form)
        column = compute_head_digest, tenant, secret, form, *(message.raw for message in request.head)

        def digest(known: Sequence[str]) -> Sequence[str]:
            return () if known else (compute_head_digest(request.head, tenant, secret, form or canonicalize),)

        (head,) = request.known.extend(column, 1, digest)
        return cls(tenant, links, counter, head)

    @property
    def conversation(self) -> str:
        return self.links[1].hex()[:16] if len(self.links) > 1 else ""

    @property
    def scale_key(self) -> str:
        return f"{self.tenant}/scale/{self.counter}"

    def anchor_key(self, link: bytes) -> str:
        return f"{self.tenant}/anchor/{link.hex()}"

    def block_key(self, observed: bool, link: bytes) -> str:  # noqa: FBT001 (bound before the link)
        return make_block_key(f"{self.tenant}/{OBSERVED}" if observed else self.tenant, link)

    def block_keys(self, link: bytes, *, observed: bool) -> tuple[str, str]:
        """The keys of a block: that of its link, and one beside it for when another head's summary has the first."""
        space = f"{self.tenant}/{OBSERVED}" if observed else self.tenant
        return make_block_key(space, link), make_bound_key(space, link, self.head)

    def summary_key(self, covers: int, focus: str = "") -> str:
        """The key of a summary. One with a focus is for the request that asks for it, and is not looked up."""
        key = self.summary_key_of(self.links[covers])
        return f"{key}.{blake2b(focus.encode('utf-8', 'replace'), digest_size=8).hexdigest()}" if focus else key

    def summary_key_of(self, link: bytes) -> str:
        return f"{self.tenant}/summary/{link.hex()}.{self.head}"

    def summary_keys(self) -> list[str]:
        """Keys of summaries of every prefix, longest first."""
        return [*map(self.summary_key_of, reversed(self.links))]


@dataclass(frozen=True, slots=True)
class LastRequest:
    """The last request of a history: when it was forwarded, and what the upstream counted (0: unknown)."""

    anchor: Anchor
    forwarded_at: float
    counter: str
    calibration: Calibration
    useless_blocks: int = 0
    """How many blocks in a row did not help."""
    requests_since_block: int = 0
    """How many requests ago a block was last made because of the window."""

    def to_bytes(self) -> bytes:
        anchor, scale = self.anchor, self.calibration
        anchored = anchor.link.hex(), anchor.tokens, anchor.view_id.hex()
        counted = self.counter, scale.ratio, scale.observations
        blocks = self.useless_blocks, self.requests_since_block
        return json.dumps([LAST_REQUEST_FORMAT_VERSION, *anchored, self.forwarded_at, *counted, *blocks]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LastRequest | None":
        return _read(value, cls._of)

    @classmethod
    def _of(cls, fields: Any) -> "LastRequest | None":  # noqa: ANN401 (any JSON)
        version, link, tokens, basis, at, counter, ratio, observations, useless, since = fields
        if version != LAST_REQUEST_FORMAT_VERSION:
            return None
        anchor = Anchor(bytes.fromhex(link), int(tokens), bytes.fromhex(basis))
        calibration = Calibration(float(ratio), int(observations))
        return cls(anchor, float(at), str(counter), calibration, int(useless), int(since))


@dataclass(frozen=True, slots=True)
class SummaryCandidate:
    """A summary of `body[:covers]` before a block uses it: being made, ready, or failed.

    It is stored under the chain link of what it covers, so that every worker sees how far it is.
    """

    state: Literal["making", "ready", "failed"]
    text: str = ""
    """The summary; while it is being made, the worker that makes it."""
    failures: int = 0
    """How many calls in a row failed."""
    covers: int = 0
    """Not stored: it follows from the key."""

    def to_bytes(self) -> bytes:
        return json.dumps([CANDIDATE_FORMAT_VERSION, self.state, self.text, self.failures]).encode()

    @classmethod
    def from_bytes(cls, value: bytes, covers: int = 0) -> "SummaryCandidate | None":
        return _read(value, lambda fields: cls._of(fields, covers))

    @classmethod
    def _of(cls, fields: Any, covers: int) -> "SummaryCandidate | None":  # noqa: ANN401 (any JSON)
        version, state, text, failures = fields
        is_known = version == CANDIDATE_FORMAT_VERSION and state in ("making", "ready", "failed")
        return cls(state, str(text), int(failures), covers) if is_known else None

    @classmethod
    def claim(cls, owner: str) -> "SummaryCandidate":
        """A worker's claim to be making it. `owner` is unique: an expired claim must not undo the next worker's."""
        return cls("making", owner)


NO_CANDIDATE = SummaryCandidate("failed")


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look these keys up in the store, in one round trip. Result: `Found`, or None where the store did not answer."""

    blocks: Sequence[str] = ()
    facts: Sequence[str] = ()
    windows: Sequence[str] = ()
    summaries: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a look-up found of a conversation."""

    block: Block | None = None
    block_key: str = ""
    """The key the block was found under, and its bytes: a deeper block at the same key takes their place."""
    block_bytes: bytes | None = None
    observed: bool = False
    """The block was only observed: it is not in force."""
    last: LastRequest | None = None
    calibration: Calibration = UNCALIBRATED
    window: Window | None = None
    """What an overflow taught of the window, or else what an upstream told another worker."""
    candidate: SummaryCandidate | None = None
    """The newest summary that was asked for, and how far it is."""
    answered: bool = True
    """Whether the store answered at all."""

    @property
    def is_new(self) -> bool:
        """True where the store knows nothing of the conversation."""
        return self.answered and self.last is None and not self.block_bytes

    @classmethod
    def read(
        cls, found: Found | None, looked_up: LookUp, identity: Identity, prior: Calibration, read_block: ReadBlock
    ) -> "Memory":
        """The memory that the stored values make. `prior`: the calibration where nothing was learned yet."""
        if found is None:
            return cls(calibration=prior, answered=False)
        stored, fact, window, summary = found
        last, calibration = _read_fact(fact, identity, prior)
        block = None if stored is None else read_block(stored.value)
        return cls(
            block=block,
            block_key="" if stored is None else stored.key,
            # Kept even where the block is unreadable: a new one must be able to take its place.
            block_bytes=None if stored is None else stored.value,
            observed=stored is not None and stored.key.startswith(f"{identity.tenant}/{OBSERVED}/"),
            last=last,
            calibration=calibration,
            window=None if window is None else _read(window.value, decode_window, is_json=False),
            candidate=read_candidate(summary, looked_up.summaries),
        )


def read_candidate(stored: Stored | None, keys: Sequence[str]) -> SummaryCandidate | None:
    """The candidate found under one of these keys. They come longest first, which tells what it covers."""
    return None if stored is None else SummaryCandidate.from_bytes(stored.value, len(keys) - 1 - keys.index(stored.key))


def _read_fact(fact: Stored | None, identity: Identity, prior: Calibration) -> tuple[LastRequest | None, Calibration]:
    """The last request, if there was one, and how this upstream counts this model, as far as that is known."""
    if fact is None:
        return None, prior
    if fact.key == identity.scale_key:
        return None, _read(fact.value, Calibration.from_bytes, is_json=False) or prior
    last = LastRequest.from_bytes(fact.value)
    return last, last.calibration if last is not None and last.counter == identity.counter else prior


def _read(value: bytes, convert: Callable[[Any], T | None], *, is_json: bool = True) -> T | None:
    """The value that these bytes hold; None where they hold another format, or garbage."""
    try:
        return convert(json.loads(value) if is_json else value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
