r"""The identity of a history: its owner, its chain and its head, and the keys of all that is stored for it.

A client sends its whole history every time and gives it no name, so everything is stored under links of its chain:

    team-a/block/<link>             the block of a prefix (`shorten/block.py` reads it)
    team-a/block/<link>.<head>      the same, if the first key holds a summary of another head
    team-a/observed/block/<link>    a block that was only observed
    team-a/summary/<link>.<head>    a summary before a block uses it
    team-a/anchor/<link>            the last request that ended at a link
    team-a/scale/<counter>          how an upstream counts the tokens of a family of models

A model that writes a summary has read the head and may repeat it, so the summary serves only the same head. Its digest
leaves out the parts that agents change every turn: dates, counters, a checksum, the state of a repository.

    Today's date: 2026-11-26. Tokens used: 5,120 of 200,000.
    Today's date: \0. Tokens used: \0 of \0.

All other numbers and ids count: they may be all that tells two customers apart.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

from msgspec import Struct

from proxy.history.chain import canonicalize, compute_chain
from proxy.history.messages import Message, extract_text
from proxy.history.request import Request

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

    def list_anchor_keys(self) -> list[str]:
        return self._list_keys("anchor")

    def list_block_keys(self, *, is_observed: bool) -> list[str]:
        return self._list_keys(f"{OBSERVED}/block" if is_observed else "block")

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

    def list_summary_keys(self) -> list[str]:
        return self._list_keys("summary", f".{self.head}")

    def _list_keys(self, kind: str, ending: str = "") -> list[str]:
        """Return a key for each link, the newest first."""
        beginning = f"{self.tenant}/{kind}/"
        return [f"{beginning}{link.hex()}{ending}" for link in reversed(self.links)]


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
_PLACE_OF_MOMENT = "\0"


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
    timeless = _MOMENT.sub(_PLACE_OF_MOMENT, line)
    is_about_time = _OF_TIME.search(line) is not None
    if is_about_time:
        seconds = r"(?<!\d)1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?!\d)(?:\.\d{1,9})?"
        timeless = re.sub(seconds, _PLACE_OF_MOMENT, timeless)
    if is_about_time or timeless != line:
        weekday = r"(?i)\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?"
        timeless = re.sub(weekday, _PLACE_OF_MOMENT, timeless)
    if _OF_COUNTER.search(line):
        timeless = _BESIDE_COUNTER.sub(lambda counts: re.sub(r"\d[\d.,:]*%?", _PLACE_OF_MOMENT, counts[0]), timeless)
    return re.sub(r"\0(?:[\s,]{0,8}\0)+", _PLACE_OF_MOMENT, timeless).rstrip()


def _extract_text(message: Message) -> str:
    """Return the text of a message, or its canonical form if it holds more than text."""
    content = json.loads(message.content)
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return extract_text(content)
    return canonicalize(message).decode("utf-8", "surrogateescape")
