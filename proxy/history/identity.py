r"""The identity of a history: its owner, its chain and its head, and the keys of all that is stored for it.

The chain has one keyed hash per message, over its canonical form and the hash before it: a *link*. Two requests share a
link only if they share everything up to it. So the longest known link finds the block, after a rewind, an edit or a
fork too, and tenants are kept apart.

    h(0) = hash(tenant, user, x-conversation-id)
    h(n) = hash(h(n - 1), canonical form of message n)

- The head is left out, as system prompts carry dates. Only summaries are bound to it.
- The key is secret and shared by all workers: a forged collision would hand out the summary of another tenant.

The canonical form does not depend on a client's way of writing JSON, nor on its cache markers:

    {"content": [{"text": "gr\u00fc\u00df", "type": "text", "cache_control": {}}], "role": "user"}
    {"role":"user","content":"grüß"}

The first becomes the second. A text that is not JSON stays.

A client sends its whole history every time and gives it no name, so what is known of it is stored under links of its
chain, and what is known of its models (see also `make_model_keys`) beside them:

    team.a/block/<link>             the block of a prefix (`shorten/block.py` reads it)
    team.a/block/<link>.<head>      the same, if the first key holds a summary of another head
    team.a/observed/block/<link>    a block that was only observed
    team.a/summary/<link>.<head>    a summary before a block uses it
    team.a/anchor/<link>            the last request that ended at a link
    team.a/scale/<counter>          how an upstream counts the tokens of a family of models

A model that writes a summary has read the head and may repeat it, so the summary serves only the same head. Its digest
leaves out the parts that agents change every turn: dates, counters, a checksum, the state of a repository.

    Today's date: 2026-11-26. Tokens used: 5,120 of 200,000.
    Today's date: \0. Tokens used: \0 of \0.

All other numbers and ids count: they may be all that tells two customers apart.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice, repeat
from typing import Any, overload

from msgspec import Struct

from proxy.history import splice
from proxy.history.messages import HEAD, RESULTS, Message, extract_text
from proxy.history.request import Request

LINK_BYTES = 20
_ROLES = frozenset({*HEAD, *RESULTS, "user", "assistant"})

CanonicalForm = Callable[[Message], bytes]
CanonicalKinds = Mapping[tuple[str, bool], bool]
"""Whether the client writes messages of a role, with or without calls, in canonical form."""

MARKERS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""The first is Anthropic's: https://platform.claude.com/docs/en/build-with-claude/prompt-caching."""
_MARKER_NAME_PART = b"cache_"
# An escape follows an odd number of backslashes. Control characters without a short form can be written in one way.
_ESCAPE = re.compile(rb"(?<!\\)(\\++)u(?!00(?:0[0-7be-f]|1[0-9a-f]))")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def canonicalize(message: Message) -> bytes:
    """Write a message in the canonical form. A long text is parsed only if it holds escapes."""
    raw, long_bytes = message.raw, 1_024
    if len(raw) <= long_bytes or _MARKER_NAME_PART in raw or not message.is_text:
        return _rewrite(keep_as_written(message))
    text = message.content
    key, _, rest = raw.partition(text)
    if not key.rstrip(b" \t\r\n:").endswith(b'"content"'):  # the same text stands in another member before
        return _rewrite(raw)
    before, separator, after = _rewrite(key + b"0" + rest).partition(b'"content":0')
    if not separator:
        return _rewrite(raw)
    if has_ambiguous_escape(text):
        text = _rewrite(text)
    return b"".join((before, b'"content":', text, after))


def keep_as_written(message: Message) -> bytes:
    """Return a message without cache marks: the canonical form, but for escapes, if its client writes that."""
    raw = remove_cache_marker(message.raw)
    if not message.has_parts:
        return raw
    content = splice.find_member(raw, "content")
    if content is None:
        return raw
    return splice.replace_bytes(raw, content.start, content.stop, remove_wrapping(raw[content.start : content.stop]))


def has_ambiguous_escape(raw: bytes) -> bool:
    r"""Return whether a `\u` stands for a character that could be written in another way."""
    if b"\\u" not in raw:
        return False
    return any(len(escape[1]) % 2 for escape in _ESCAPE.finditer(raw))


def remove_cache_marker(raw: bytes) -> bytes:
    if _MARKER_NAME_PART not in raw:
        return raw
    raw = splice.remove_members(raw, MARKERS)
    for key in ("content", "tool_calls"):
        member = splice.find_member(raw, key)
        if member is not None and raw[member.start : member.start + 1] == b"[":
            raw = splice.replace_elements(raw, member.start, _strip_markers)
    return raw


def remove_wrapping(content: bytes) -> bytes:
    """Remove cache marks, and the list that a single text needs for them: clients move both with each turn."""
    if content[:1] != b"[":
        return content
    if _MARKER_NAME_PART in content:
        content = splice.replace_elements(content, 0, _strip_markers)
    if content.count(b'"text"') < 2:  # noqa: PLR2004 (the value of `type`, and a key)
        return content
    parts = list(islice(splice.iterate_elements(content), 2))
    if len(parts) != 1:
        return content
    start = parts[0][0]
    if content[start : start + 1] != b"{":
        return content
    members = {member.key: content[member.start : member.stop] for member in splice.iterate_members(content, start)}
    text = members.get("text", b"")
    if members.keys() != {"type", "text"} or members["type"] != b'"text"' or not text.startswith(b'"'):
        return content
    return text


def _rewrite(raw: bytes) -> bytes:
    """Write JSON in the canonical form. A text that cannot be read stays."""
    try:
        return _ENCODER.encode(_sort_keys(json.loads(raw))).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return raw


def _sort_keys(value: Any) -> Any:  # noqa: ANN401 - JSON
    # The order of keys in which most clients write a message; other keys follow by name.
    order = ("role", "tool_call_id", "content", "tool_calls", "id", "type", "function", "name", "arguments")
    if isinstance(value, dict):
        sorted_value: dict[str, Any] = {}
        for key in (*filter(value.__contains__, order), *sorted(value.keys() - order)):
            member = value[key]
            # Most members are texts, for which a call is not worth it.
            sorted_value[key] = _sort_keys(member) if isinstance(member, (dict, list)) else member
        return sorted_value
    if isinstance(value, list):
        return list(map(_sort_keys, value))
    return value


def _strip_markers(element: bytes) -> bytes:
    if element[:1] != b"{" or _MARKER_NAME_PART not in element:
        return element
    return splice.remove_members(element, MARKERS)


def compute_chain(request: Request, tenant: str, secret: bytes, name: str = "") -> tuple[bytes, ...]:
    """Compute the links h(0) .. h(n) of a request with n messages after its head.

    Parsing costs more than hashing, so the first message of each kind tells whether the others are hashed as they are
    written. Escapes are looked for in every message. Stored keys depend on this: a history with thinking in some
    answers only has other links if all its messages are written in canonical form, and its blocks would be lost.
    """
    origin, body = _compute_origin(request, tenant, secret, name), request.body

    def compare_first(values: Sequence[CanonicalKinds]) -> Iterator[CanonicalKinds]:
        is_canonical: CanonicalKinds = values[-1] if values else {}
        for message in body[len(values) :]:
            kind = message.role, bool(message.calls)
            if kind not in is_canonical and message.role in _ROLES:
                is_canonical = {**is_canonical, kind: canonicalize(message) == keep_as_written(message)}
            yield is_canonical

    def continue_chain(links: Sequence[bytes]) -> Iterator[bytes]:
        link = links[-1] if links else origin
        canonical_kinds = request.known.column("canonical kinds", compare_first)
        for message, is_canonical in zip(body[len(links) :], canonical_kinds[len(links) :], strict=True):
            form = canonicalize
            if is_canonical.get((message.role, bool(message.calls))) and not has_ambiguous_escape(message.raw):
                form = keep_as_written
            link = compute_link(link, message, secret, form=form)
            yield link

    return origin, *request.known.column("links", continue_chain, origin, secret)


def compute_beginning(request: Request, tenant: str, secret: bytes, name: str = "") -> bytes:
    """Compute h(1), which identifies a conversation; h(0) if it has no message."""
    origin = _compute_origin(request, tenant, secret, name)
    if not request.body:
        return origin
    return compute_link(origin, request.body[0], secret)


def compute_link(link: bytes, message: Message, secret: bytes, *, form: CanonicalForm = canonicalize) -> bytes:
    digest = blake2b(link, digest_size=LINK_BYTES, key=secret)
    digest.update(form(message))
    return digest.digest()


def _compute_origin(request: Request, tenant: str, secret: bytes, conversation: str) -> bytes:
    content = b"c1"  # a version, which must change with the canonical form
    for name in (tenant, request.user, conversation):
        name_bytes = name.encode("utf-8", "surrogatepass")
        content += len(name_bytes).to_bytes(8, "big") + name_bytes
    return blake2b(content, digest_size=LINK_BYTES, key=secret).digest()


OBSERVED = "observed"


class Identity(Struct, frozen=True):
    tenant: str
    links: Sequence[bytes]
    counter: str
    """Upstream and family of models: the counts of one say nothing about another."""
    head: str = ""
    """A digest of the head."""

    @classmethod
    def of(cls, request: Request, tenant: str, secret: bytes, name: str, counter: str) -> "Identity":
        """Identify a history. *name* is the client's, to tell apart conversations with equal content."""
        links = compute_chain(request, tenant, secret, name)
        cause = request.head, tenant, secret
        digest = request.known.memo("head digest", cause, lambda: compute_head_digest(*cause))
        return cls(tenant, links, counter, digest)

    @property
    def conversation(self) -> str:
        """The name that its first message gives it, or its owner if it has only a head. Tenants share no names."""
        return self.links[:2][-1].hex()[:16] if self.links else ""

    @property
    def scale_key(self) -> str:
        return f"{self.tenant}/scale/{self.counter}"

    def anchor_key(self, link: bytes) -> str:
        return f"{self.tenant}/anchor/{link.hex()}"

    def list_anchor_keys(self) -> Sequence[str]:
        """Return the keys of the last request, and that of the tenant's calibration."""
        return LinkKeys(f"{self.tenant}/anchor/", self.links, others=(self.scale_key,))

    def list_block_keys(self, *, observes: bool) -> Sequence[str]:
        """Return the keys of blocks, and those of observed ones if the policy observes."""
        others = LinkKeys(f"{self.tenant}/{OBSERVED}/block/", self.links) if observes else ()
        return LinkKeys(f"{self.tenant}/block/", self.links, others=others)

    def block_keys(self, link: bytes, *, is_observed: bool) -> tuple[str, str]:
        """Return the keys of a block without and with the head, to which a summary is bound."""
        key = make_block_key(f"{self.tenant}/{OBSERVED}" if is_observed else self.tenant, link)
        return key, f"{key}.{self.head}"

    def summary_key(self, covers: int, focus: str = "") -> str:
        """Return the key of a summary; one with a focus is only for the request that asks for it."""
        key = f"{self.tenant}/summary/{self.links[covers].hex()}.{self.head}"
        if not focus:
            return key
        return f"{key}.{blake2b(focus.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"

    def list_summary_keys(self) -> Sequence[str]:
        return LinkKeys(f"{self.tenant}/summary/", self.links, ending=f".{self.head}")


class LinkKeys(Sequence[str]):
    """A key for each link, the newest first, and other keys after them.

    Each is written when it is asked for: a look-up ends at the first that is there, so most of a long history's are not
    needed.
    """

    def __init__(self, beginning: str, links: Sequence[bytes], ending: str = "", others: Sequence[str] = ()) -> None:
        self._beginning = beginning
        self._links = links
        self._ending = ending
        self._others = others

    def __len__(self) -> int:
        return len(self._links) + len(self._others)

    def __iter__(self) -> Iterator[str]:
        hexes = map(bytes.hex, reversed(self._links))
        return chain(map("".join, zip(repeat(self._beginning), hexes, repeat(self._ending))), self._others)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice) or place < 0:
            return list(self)[place]
        if place < len(self._links):
            return f"{self._beginning}{self._links[-1 - place].hex()}{self._ending}"
        return self._others[place - len(self._links)]


def make_block_key(tenant: str, link: bytes) -> str:
    """Return the key of a block. The tenant comes first: a store keeps tenants apart."""
    return f"{tenant}/block/{link.hex()}"


def _compile_moment() -> re.Pattern[str]:
    """Build an expression for moments.

    `2026-11-27T09:30:19Z`, `11/27/26`, `27 Nov 2026`, `Nov 27, 2026`, `9:30 pm CET`, `5 minutes ago`
    """
    month = (
        r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
        r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
    )
    day, year = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:19|20)\d\d"
    space = r"[ \t]{1,3}"
    zone = rf"(?:(?:{space})?(?:z|utc|gmt|[a-z]{{1,4}}[sd]t|cet|mez|cest|mesz)\b)?(?:(?:{space})?[+-]\d\d:?\d\d\b)?"
    clock = rf"\d{{1,2}}:[0-5]\d(?::[0-5]\d(?:[.,]\d{{1,9}})?)?(?:(?:{space})?[ap]\.?m\b\.?)?{zone}"
    moments = (
        rf"{year}([-/.])(?:0?[1-9]|1[0-2])\1{day}(?!\d)(?:t{clock})?",
        rf"{day}(?:/{day}/(?:{year}|\d\d)|[-.]{day}[-.]{year})(?!\d)",
        rf"{day}(?:st|nd|rd|th|\.)?[ -](?:of )?{month}(?:,?[ -]{year})?",
        rf"{month}(?:[ -]{day}(?:st|nd|rd|th)?(?!\d)(?:,? {year})?|,? {year})",
        clock,
        r"\d{1,6} (?:second|minute|hour|day|week|month)s? ago",
    )
    return re.compile(rf"(?<![\w.:/-])(?:{'|'.join(moments)})", re.IGNORECASE)


def _compile_counters() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Build expressions for a line about use, and its numbers: `Tokens used: 5,120 of 200,000`, `3/8 requests left`.

    Numbers count only in such a line: a rule may speak of guests that left, and accounts that are used.
    """
    number = r"(?<![\w.,:])\d++(?:[.,:]\d++)*+"
    unit = r"(?: ?(?:tokens?|requests?|messages?|steps?|turns?|[kms%])(?!\w)){0,2}"
    counts = rf"\$?{number}{unit}(?:(?: ?/ ?\(?| ?\(|,? (?:out )?of )\$?{number}{unit}){{0,3}}"
    counter = (
        r"(?:tokens?|context(?: window)?|time|steps?|turns?|requests?|messages?|budget)"
        r" (?:usage|used|left|remaining|elapsed)"
    )
    turn = r"^\W*(?:current )?(?:turn|step)"
    line = rf"\b(?:{counter}|elapsed|previous messages between)\b|{turn}\b(?=\W{{0,3}}\d)"
    numbers = (
        rf"(?:\b{counter}|{turn})[^\w.;\0]{{1,3}}{counts}[.,:]*+"
        rf"|{counts} (?:left|remaining|used|elapsed|previous messages between)\b"
    )
    return re.compile(line, re.IGNORECASE), re.compile(numbers, re.IGNORECASE)


_MOMENT = _compile_moment()
# Weekdays and seconds count only in a line about time: a rule may speak of Fridays, and ten digits may be a customer's
# number.
_OF_TIME = re.compile(r"\b(?:today|now|date|time|timestamp|epoch)", re.IGNORECASE)
_OF_COUNTER, _BESIDE_COUNTER = _compile_counters()
# Lines of a snapshot of the repository, taken again when a session is resumed.
_OF_GIT = re.compile(
    r"\s*$|(?i:(?:current|main) branch\b|on branch |git user:|status:|recent commits:|\(clean\))"
    r"|[ MADRCUT?!][MADRCUT?! ] \S|[MADRCUT?!] \S+$|[0-9a-f]{7,40} "
)


def compute_head_digest(head: Sequence[Message], tenant: str, secret: bytes) -> str:
    """Return a digest of the parts of a head that stay from turn to turn. An empty head has a digest, too."""
    digest = blake2b(key=secret, digest_size=8, person=b"head")
    for message in head:
        text = "\n".join(find_stable_lines(_extract_text(message), tenant)).encode("utf-8", "surrogatepass")
        digest.update(b"%d %s %d " % (len(message.role), message.role.encode(), len(text)) + text)
    return digest.hexdigest()


def find_stable_lines(text: str, tenant: str) -> Iterator[str]:
    """Yield the lines that are not empty, without the parts that agents change from turn to turn."""
    in_git, cached_characters = False, 1_000
    for line in text.splitlines():
        if in_git:
            in_git = _OF_GIT.match(line) is not None
        else:
            heading = line[:40].lower().lstrip("#*< \t").replace("git_", "git").replace("git ", "git")
            in_git = heading.startswith(("gitstatus:", "gitstatus>", "gitstatus :"))
        # This header holds a client's checksum over each request.
        if in_git or line[:27].lower() == "x-anthropic-billing-header:" or not line.strip():
            continue
        if len(line) <= cached_characters:
            yield _remove_moments(tenant, line)
        else:
            yield _replace_moments(line)


@lru_cache(maxsize=4_096)
def _remove_moments(_tenant: str, line: str) -> str:
    """Remember a line by its tenant, so that timing tells no tenant about the heads of others."""
    return _replace_moments(line)


def _replace_moments(line: str) -> str:
    mark = "\0"
    timeless = _MOMENT.sub(mark, line)
    is_about_time = _OF_TIME.search(line) is not None
    if is_about_time:
        seconds = r"(?<!\d)1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?!\d)(?:\.\d{1,9})?"
        timeless = re.sub(seconds, mark, timeless)
    if is_about_time or timeless != line:
        weekday = r"(?i)\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?"
        timeless = re.sub(weekday, mark, timeless)
    if _OF_COUNTER.search(line):
        timeless = _BESIDE_COUNTER.sub(lambda counts: re.sub(r"\d[\d.,:]*%?", mark, counts[0]), timeless)
    return re.sub(r"\0(?:[\s,]{0,8}\0)+", mark, timeless).rstrip()


def _extract_text(message: Message) -> str:
    """Return the text of a message, or its canonical form if it holds more than text."""
    content = json.loads(message.content)
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return extract_text(content)
    return canonicalize(message).decode("utf-8", "surrogateescape")
