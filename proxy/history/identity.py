"""Identity of a conversation: a chain of keyed hashes that tells how much of a history was seen before.

The client sends its whole history every time and gives it no name. So a history is known by a chain: one keyed hash
per message, each over the one before it. Two requests share a link only if they share everything up to it. So after a
rewind, an edit or a fork, the longest known link finds the block; tenants and siblings are kept apart without a
lock.

- The first link holds the tenant, the `user` of the request and the `x-conversation-id`. Nothing of another tenant
  can ever match.
- The head is left out: system prompts carry dates. What a model wrote is bound to it beside the chain (see below).
- Cache markers are left out: clients move them every turn, and wrap a text into parts to have somewhere to put them.
- A message is known by what its JSON means: a gateway or another version of a client may write it with other spaces,
  another order of keys, other escapes. Most clients write it in one form; that is hashed as it is, unparsed.
- The key is secret and shared by all workers: a forged collision would hand out the summary of another tenant.
- It begins with a version, which must change with the canonical form below.

Read next: `memory.py`, what is stored under these keys.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, repeat
from typing import Any

from proxy.history import splice
from proxy.history.messages import HEAD, RESULTS, Message, Request, extract_text

# --- chain ------------------------------------------------------------------------------------------------------------

_ROLES = frozenset({*HEAD, *RESULTS, "user", "assistant"})
CHAIN_VERSION = b"c1"
LINK_BYTES = 20
MARKERS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_OF_MARKERS = b"cache_"
"""Part of the name of each marker."""
# The order of keys in which most clients write a message; other keys follow by name.
_ORDER = ("role", "tool_call_id", "content", "tool_calls", "id", "type", "function", "name", "arguments")
_RANKS = {key: rank for rank, key in enumerate(_ORDER)}
_CONTENT = b'"content"'
_CONTENT_KEY = re.compile(_CONTENT + rb"\s*:\s*")
# All but those of control characters that have no short form: these are written in one way. It is an escape after an
# odd number of backslashes only.
_ESCAPE = re.compile(rb"(?<!\\)(\\++)u(?!00(?:0[0-7be-f]|1[0-9a-f]))")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# A shorter message is parsed whole.
_SHORT_MESSAGE_BYTES = 1_024

CanonicalForm = Callable[[Message], bytes]
"""The bytes that a message is hashed as."""
Kind = tuple[str, bool]
"""Who speaks, and whether there are calls in it."""


def canonicalize(message: Message) -> bytes:
    """The bytes of a message in one form, in whatever way its JSON is written, and without cache markers."""
    raw = message.raw
    is_parsed = len(raw) <= _SHORT_MESSAGE_BYTES or _OF_MARKERS in raw or message.content[:1] != b'"'
    return _rewrite(raw) if is_parsed else _rewrite_around(message)


def _is_ambiguous(raw: bytes) -> bool:
    r"""True where a `\u` stands for a character that could be written in another way."""
    return any(len(found[1]) % 2 for found in _ESCAPE.finditer(raw))


def _rewrite_around(message: Message) -> bytes:
    """A message with a long text in the usual form: what is around the text is parsed, the text only where it must."""
    raw, text = message.raw, message.content
    name = _CONTENT_KEY.search(raw)
    if name is None or not raw.startswith(text, name.end()):
        return _rewrite(raw)
    start = name.end()
    outer = raw[:start] + b"0" + raw[start + len(text) :]
    before, place, after = _rewrite(outer).partition(_CONTENT + b":0")
    if not place:
        return _rewrite(raw)
    if b"\\u" in text and _is_ambiguous(text):
        text = _rewrite(text)
    return b"".join((before, _CONTENT, b":", text, after))


def _rewrite(raw: bytes) -> bytes:
    """The message in the usual form; bytes that cannot be read as JSON stay as they are."""
    try:
        return _encode(_ENCODER.encode(_sort_keys(_remove_markers(json.loads(raw)))))
    except (ValueError, RecursionError):
        return raw


def _remove_markers(message: Any) -> Any:  # noqa: ANN401 - JSON
    """The message without cache markers and the wrapping that they need."""
    if not isinstance(message, dict):
        return message
    found = _drop_markers(message)
    for key in ("content", "tool_calls"):
        if isinstance(found.get(key), list):
            found[key] = [_drop_markers(part) if isinstance(part, dict) else part for part in found[key]]
    match found.get("content"):
        case [{"type": "text", "text": str(text), **more}] if not more:  # one part of text and nothing else
            found["content"] = text
    return found


def _drop_markers(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in MARKERS}


def _sort_keys(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        ordered = sorted(value, key=lambda key: (_RANKS.get(key, len(_RANKS)), key))
        return {key: _sort_keys(value[key]) for key in ordered}
    return [_sort_keys(each) for each in value] if isinstance(value, list) else value


def compute_chain(
    request: Request, tenant: str, key: bytes, conversation: str = "", form: CanonicalForm | None = None
) -> tuple[bytes, ...]:
    """The links h(0) .. h(n) of a request with n messages after its head. `form`: of all its messages."""
    origin, body = _compute_origin(request, tenant, key, conversation), request.body

    def continue_chain(known: Sequence[bytes]) -> Iterator[bytes]:
        link = known[-1] if known else origin
        forms = repeat(form) if form is not None else _choose_forms(request, len(known))
        for message, chosen in zip(body[len(known) :], forms, strict=False):
            link = compute_link(link, message, key, form=chosen)
            yield link

    return origin, *request.columns.extend((compute_chain, origin, key, form), len(body), continue_chain)


def _choose_forms(request: Request, start: int) -> Iterator[CanonicalForm]:
    """The form in which each message from `start` on is hashed: as it is, where it is in the one form already.

    Parsing every message would cost more than hashing it. One client writes all its JSON in one way, so the first
    message of each kind tells; it is part of every prefix that holds others of its kind. Only escapes are looked for in
    all of them.
    """
    body = request.body

    def compare_first(known: Sequence[Mapping[Kind, bool]]) -> Iterator[Mapping[Kind, bool]]:
        is_usual = known[-1] if known else {}
        for message in body[len(known) :]:
            kind = message.role, bool(message.calls)
            if kind not in is_usual and message.role in _ROLES:
                is_usual = {**is_usual, kind: canonicalize(message) == canonicalize_as_0_1(message)}
            yield is_usual

    kinds = request.columns.extend(_choose_forms, len(body), compare_first)
    for message, is_usual in zip(body[start:], kinds[start:], strict=True):
        is_escaped = b"\\u" in message.raw and _is_ambiguous(message.raw)
        is_kept = is_usual.get((message.role, bool(message.calls)), False) and not is_escaped
        yield canonicalize_as_0_1 if is_kept else canonicalize


def compute_beginning(request: Request, tenant: str, key: bytes, conversation: str = "") -> bytes:
    """The link h(1), which identifies a conversation from its first message on; h(0) where it has none."""
    link = _compute_origin(request, tenant, key, conversation)
    return compute_link(link, request.body[0], key) if request.body else link


def _compute_origin(request: Request, tenant: str, key: bytes, conversation: str) -> bytes:
    names = (tenant, request.user, conversation)
    content = CHAIN_VERSION + b"".join(len(name).to_bytes(8, "big") + name for name in map(_encode, names))
    return blake2b(content, digest_size=LINK_BYTES, key=key).digest()


def compute_link(link: bytes, message: Message, key: bytes, *, form: CanonicalForm = canonicalize) -> bytes:
    """The link after this one: of the message, over all that came before it."""
    step = blake2b(link, digest_size=LINK_BYTES, key=key)
    step.update(form(message))
    return step.digest()


def make_block_key(tenant: str, link: bytes) -> str:
    """The key under which a block is stored. The tenant comes first, so that a store can keep tenants apart as well."""
    return f"{tenant}/block/{link.hex()}"


def make_bound_key(tenant: str, link: bytes, head: str) -> str:
    """The key of a block where the link's own key holds a summary of another head."""
    return f"{make_block_key(tenant, link)}.{head}"


def canonicalize_as_0_1(message: Message) -> bytes:
    """The bytes that version 0.1 knew a message by: its own, without cache markers. For what it has stored."""
    raw = remove_cache_marker(message.raw)
    return _unwrap_text(raw) if message.content[:1] == b"[" else raw


def remove_cache_marker(raw: bytes) -> bytes:
    """A message without the cache markers on it, on the parts of its content and on its calls."""
    if _OF_MARKERS not in raw:
        return raw
    raw = splice.remove_members(raw, MARKERS)
    for key in ("content", "tool_calls"):
        place = splice.find_member(raw, key)
        if place is not None and raw[place.start : place.start + 1] == b"[":
            raw = splice.replace_elements(raw, place.start, _strip_markers)
    return raw


def _strip_markers(element: bytes) -> bytes:
    return splice.remove_members(element, MARKERS) if element[:1] == b"{" else element


def remove_wrapping(content: bytes) -> bytes:
    """The content of a message without cache markers, and without the list that these need around a single text.

    A client moves its marker with each turn: what is compared or measured must not change by that.
    """
    if content[:1] != b"[":
        return content
    if _OF_MARKERS in content:
        content = splice.replace_elements(content, 0, _strip_markers)
    only = _find_only_text(content, 0)
    return content if only is None else only


def _unwrap_text(raw: bytes) -> bytes:
    """The message with a single text part written as plain text: both are the same words."""
    content = splice.find_member(raw, "content")
    only = None if content is None else _find_only_text(raw, content.start)
    return raw if content is None or only is None else splice.replace_bytes(raw, content.start, content.stop, only)


def _find_only_text(raw: bytes, start: int) -> bytes | None:
    """The text in the list at `start`, as JSON, where that is one part of text and nothing else."""
    parts = list(islice(splice.iterate_elements(raw, start), 2))
    if len(parts) != 1 or raw[parts[0][0] : parts[0][0] + 1] != b"{":
        return None
    found = {each.key: raw[each.start : each.stop] for each in splice.iterate_members(raw, parts[0][0])}
    return found["text"] if found.keys() == {"type", "text"} and found["type"] == b'"text"' else None


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


# --- head -------------------------------------------------------------------------------------------------------------
# The digest of a head: what a model-written summary is bound to.
#
# A model that writes a summary has read the head (the leading system and developer messages) and may repeat any of it.
# So a summary serves only requests with the same head, even where all messages after it are equal. Agents write some
# things into their heads that change while a conversation goes on: the date and the time, counters of tokens and steps,
# a checksum in a billing line, the state of a repository when a session is resumed. These are left out, or each turn
# would lose its summary. Everything else counts, numbers and ids too: they may be all that tells two customers apart.

HEAD_DIGEST_BYTES = 8
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
# A count, or a moment that was replaced.
_COUNT = re.compile(r"\d[\d.,:]*%?|\0")
_COUNTER = re.compile(
    r"\b(?:(?:tokens?|context(?: window)?|time|steps?|turns?|iterations?|requests?|messages?|budget)"
    r" (?:usage|used|left|remaining|elapsed|so far)|elapsed|uptime|previous messages between)\b"
    r"|^\W*(?:current )?(?:turn|step|iteration)\b(?=\W{0,3}[\d\0])",
    re.IGNORECASE,
)
_UNITS = (
    r"(?:(?:out of|of|from|max|total|used|left|remaining|tokens?|requests?|messages?|steps?|turns?|iterations?|percent"
    r"|[kms]|ms|h|d|hrs?|hours?|min(?:ute)?s?|sec(?:ond)?s?|days?)(?![a-z])[^\w.;]{0,3}){1,2}"
)
# What may stand between a count and its counter, between two counts, between a counter and its count, and behind a
# count of what is left.
_BEFORE_COUNTER = re.compile(rf"\s{{0,2}}(?:{_UNITS})?", re.IGNORECASE)
_BETWEEN_COUNTS = re.compile(rf"\s?(?:[/|(\[~\u2013-]|{_UNITS})\s?\(?", re.IGNORECASE)
_BEHIND_COUNTER = re.compile(r"[^\w.;]{0,4}(?:(?:is|are|was|now|about|of|so far)\b[^\w.;]{0,3}){0,2}", re.IGNORECASE)
_IS_LEFT = re.compile(rf"\s(?:{_UNITS})?(?:remaining|left|used|elapsed|so far)\b", re.IGNORECASE)
_GAP_CHARACTERS = 24
_COUNTS_MAX = 8
_PUNCTUATION = ".,:"
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
    digest = blake2b(key=key, digest_size=HEAD_DIGEST_BYTES, person=b"head")
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
        found = _remove_counts(found)
    return _RUNS.sub(_PLACE_OF_MOMENT, found).rstrip()


def _remove_counts(line: str) -> str:
    """The line without the numbers beside its counters. Others may be all that tells two customers apart."""
    counts = [count.span() for count in _COUNT.finditer(line)]
    starts = [start for start, _ in counts]
    beside = {start for start, stop in counts if line[stop - 1] not in _PUNCTUATION and _IS_LEFT.match(line, stop)}
    for counter in _COUNTER.finditer(line):
        first = bisect_left(starts, counter.end())
        beside.update(_find_counts_behind(line, counter.end(), counts[first : first + _COUNTS_MAX]))
        last = bisect_left(starts, counter.start())
        beside.update(_find_counts_before(line, counter.start(), counts[max(0, last - _COUNTS_MAX) : last]))
    return _NUMBER.sub(lambda count: _PLACE_OF_MOMENT if count.start() in beside else count[0], line)


def _find_counts_behind(line: str, end: int, counts: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Where the counts begin that follow the counter which ends here: "tokens used: 5 of 20"."""
    gap = _BEHIND_COUNTER
    for start, stop in counts:
        if start - end > _GAP_CHARACTERS or not gap.fullmatch(line, end, start):
            return
        yield start
        end, gap = stop, _BETWEEN_COUNTS


def _find_counts_before(line: str, start: int, counts: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Where the counts begin that precede the counter which begins here: "5 of 20 tokens used"."""
    gap = _BEFORE_COUNTER
    for begin, stop in reversed(counts):
        is_far = start - stop > _GAP_CHARACTERS or line[stop - 1] in _PUNCTUATION
        if is_far or not gap.fullmatch(line, stop, start):
            return
        yield begin
        start, gap = begin, _BETWEEN_COUNTS


def _extract_text(message: Message, form: CanonicalForm) -> str:
    """The text of a message; one with more than text in it is taken byte by byte, without its cache markers."""
    content = json.loads(message.content)
    parts: Iterable[object] = content if isinstance(content, list) else ()
    is_text = all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
    if isinstance(content, str | list) and is_text:
        return extract_text(content)
    return form(message).decode("utf-8", "surrogateescape")


# --- identity ---------------------------------------------------------------------------------------------------------

OBSERVED = "observed"
"""Keys of blocks that were only observed begin with tenant/observed, apart from those in force."""


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

        (head,) = request.columns.extend(column, 1, digest)
        return cls(tenant, links, counter, head)

    @property
    def conversation(self) -> str:
        """The name of the conversation. A history of a head alone is named by its owner: tenants share no name."""
        return self.links[:2][-1].hex()[:16] if self.links else ""

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
