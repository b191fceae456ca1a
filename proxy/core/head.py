"""The digest of a head: what a model-written summary is bound to.

A model that writes a summary has read the head (the leading system and developer messages) and may repeat any of it.
So a summary serves only requests with the same head, even where all messages after it are equal. Agents write some
things into their heads that change while a conversation goes on: the date and the time, counters of tokens and steps,
a checksum in a billing line, the state of a repository when a session is resumed. These are left out, or each turn
would lose its summary. Everything else counts, numbers and ids too: they may be all that tells two customers apart.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

from proxy.core.model.identity import canonical
from proxy.core.model.messages import Message, text_of

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
# A snapshot of the repository, taken anew when a session is resumed: its heading, and the lines that may follow it.
_GIT = re.compile(r"[#*<\s]{0,8}git[ _]?status\s?[:>]", re.IGNORECASE)
_OF_GIT = re.compile(
    r"\s*$|(?i:(?:current|main) branch\b|on branch |git user:|status:|recent commits:|\(clean\))"
    r"|[ MADRCUT?!][MADRCUT?! ] \S|[MADRCUT?!] \S+$|[0-9a-f]{7,40} "
)
_GONE = "\0"
_RUNS = re.compile(r"\0(?:[\s,]{0,8}\0)+")
_CACHED_LINES = 4_096
_CACHED_LINE_CHARACTERS = 1_000


def head_digest(head: Sequence[Message], key: bytes) -> str:
    """Keyed hash of what a head says, without what changes from turn to turn. A history without a head has one too."""
    digest = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"head")
    for message in head:
        said = "\n".join(stable_lines(_text(message))).encode("utf-8", "surrogatepass")
        digest.update(b"%d %s %d " % (len(message.role), message.role.encode(), len(said)) + said)
    return digest.hexdigest()


def stable_lines(text: str) -> Iterator[str]:
    """The lines of a text that say something, without dates, times, counters and the state of a repository."""
    in_git = False
    for line in text.splitlines():
        in_git = bool(_OF_GIT.match(line)) if in_git else bool(_GIT.match(line))
        if not in_git and line.strip() and not _BILLING.match(line):
            yield _stable(line) if len(line) <= _CACHED_LINE_CHARACTERS else _without_moments(line)


@lru_cache(maxsize=_CACHED_LINES)
def _stable(line: str) -> str:
    """The line without moments, cached: the same head comes with each request, and mostly each conversation."""
    return _without_moments(line)


def _without_moments(line: str) -> str:
    found = _MOMENT.sub(_GONE, line) if _NUMBER.search(line) else line
    if _OF_TIME.search(line):
        found = _EPOCH.sub(_GONE, found)
        found = _WEEKDAY.sub(_GONE, found)
    elif found != line:
        found = _WEEKDAY.sub(_GONE, found)
    if _OF_COUNTERS.search(line):
        found = _NUMBER.sub(_GONE, found)
    return _RUNS.sub(_GONE, found).rstrip()


def _text(message: Message) -> str:
    """The text of a message; one with more than text in it is taken byte by byte, without its cache markers."""
    content = json.loads(message.content)
    parts: Iterable[object] = content if isinstance(content, list) else ()
    is_text = all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
    if isinstance(content, str | list) and is_text:
        return text_of(content)
    return canonical(message).decode("utf-8", "surrogateescape")
