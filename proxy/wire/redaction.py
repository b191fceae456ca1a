"""Secrets inside messages: recognised by their form and removed before anything is written down. Best effort.

Every rule has marks, a few letters that such a secret begins with (`ghp_`, `://`). Its pattern is tried only at a mark,
over a bounded stretch, so the time grows with the length of any text. Every byte of a message but its secrets stays.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from msgspec import Struct

from proxy.history import pins, splice

_HAS_DIGIT = r"(?=[A-Za-z_.~+/-]{0,199}[0-9])"
"""Keys are random, words are not: `sk-learn-pipelines` is no key."""


class Rule(Struct, frozen=True, dict=True):
    """One kind of secret."""

    name: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    reach: int = 512
    """The pattern is tried on this many characters from a mark on."""
    group: int = 0
    """The group of the pattern that is the secret; 0 is all that it matches."""

    @cached_property
    def marks_in_json(self) -> list[str]:
        return [splice.write_json(mark)[1:-1].decode() for mark in self.marks]

    def iterate_spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        for mark in self.marks:
            start = text.find(mark)
            while start >= 0:
                secret = self.pattern.match(text, start, start + self.reach)
                if secret is None:
                    start = text.find(mark, start + 1)
                else:
                    yield *secret.span(self.group), self.name
                    start = text.find(mark, secret.end())


class Redaction(Struct, frozen=True, dict=True):
    """Removes the secrets that its rules know. Without rules, as with `transcripts.redact: false`, everything stays."""

    rules: tuple[Rule, ...] = ()

    @cached_property
    def _marks_backwards(self) -> re.Pattern[str]:
        """An expression for all marks, read from their ends: `-(?:ks|xlpp)|_(?:fh)` for `sk-`, `pplx-` and `hf_`.

        They end in rarer characters than they begin with, so this takes a tenth of the time of looking for each.
        """
        beginnings: dict[str, list[str]] = {}
        for rule in self.rules:
            for mark in rule.marks_in_json:
                beginnings.setdefault(mark[-1], []).append(re.escape(mark[:-1][::-1]))
        ends = [f"{re.escape(end)}(?:{'|'.join(before)})" for end, before in beginnings.items()]
        return re.compile("|".join(ends))

    def of_text(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Redact a text. Return the names of the rules that applied as well."""
        spans: list[tuple[int, int, str]] = []
        for rule in self.rules:
            spans += rule.iterate_spans(text)
        if not spans:
            return text, ()
        pieces: list[str] = []
        names: list[str] = []
        end = 0
        for start, stop, name in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start >= end:
                pieces += [text[end:start], f"[redacted: {name}]"]
                names.append(name)
            end = max(end, stop)  # of secrets that overlap, nothing stays
        pieces.append(text[end:])
        return "".join(pieces), tuple(dict.fromkeys(names))

    def of_name(self, name: str) -> str:
        """Return the name of a user or a session as it is stored: some clients put a key in."""
        return self.of_text(name)[0][:200] if name else ""

    def of_json(self, raw: bytes) -> tuple[bytes, tuple[str, ...]]:
        """Redact each string of a JSON value. Return the names of the rules that applied as well."""
        if not self.rules:
            return raw, ()
        json_text = _without_needless_escapes(raw.decode("utf-8", "replace"))
        if self._marks_backwards.search(json_text[::-1]) is None:
            return raw, ()
        rules: list[Rule] = []
        marks: list[str] = []
        for rule in self.rules:
            if any(map(json_text.__contains__, rule.marks_in_json)):
                rules.append(rule)
                marks += rule.marks
        redaction_here = Redaction(tuple(rules))
        changes: list[tuple[int, int, bytes]] = []
        names: list[str] = []
        media = re.compile(rb'"data:[a-z0-9.+-]{1,40}\\?/[a-z0-9.+-]{1,80};base64,')
        for string in splice.TEXT.finditer(raw):
            token = string[0]
            text = str(json.loads(token)) if b"\\" in token else token[1:-1].decode("utf-8", "replace")
            if not any(map(text.__contains__, marks)) or media.match(token):
                continue
            clean, kinds = redaction_here.of_text(text)
            if kinds:
                changes.append((*string.span(), splice.write_json(clean)))
                names += kinds
        return splice.replace_spans(raw, changes), tuple(dict.fromkeys(names))


def _without_needless_escapes(json_text: str) -> str:
    """Write slashes and ASCII characters without escapes, as `splice.write_json` does: some clients escape them."""
    if "\\/" not in json_text and "\\u00" not in json_text:
        return json_text
    return re.sub(r"\\(?:\\|/|u00[2-7][0-9A-Fa-f])", lambda escape: _write_again(escape[0]), json_text)


@lru_cache(maxsize=256)
def _write_again(escape: str) -> str:
    return splice.write_json(json.loads(f'"{escape}"'))[1:-1].decode()


def redaction(patterns: Iterable[str] = ()) -> Redaction:
    """Return the shipped rules with the operator's own patterns, which `fault` has checked."""
    own = [Rule("own-pattern", (_literal(pattern),), re.compile(pattern)) for pattern in patterns]
    return Redaction((*SHIPPED, *own))


def fault(pattern: str) -> str | None:
    """Return the reason why a pattern of an operator cannot be used, or None."""
    if why := pins.find_pin_fault(pattern):
        return why
    outer_pattern, removals = pattern, 1
    while removals:  # from the innermost groups outwards
        outer_pattern, removals = re.subn(r"\\.|\[[^\]]*\]|\([^()]*\)", "", outer_pattern)
    if "|" in outer_pattern:
        return "a pattern is one kind of secret: write two instead of a | between them, or put it into a group"
    if len(_literal(pattern)) < 3:  # noqa: PLR2004 (fewer would be found everywhere)
        return "a pattern must begin with three plain characters or more, such as corp- in corp-[0-9a-f]{32}"
    return None


def _literal(pattern: str) -> str:
    plain = re.match(r"(?:[A-Za-z0-9_ :=/@#,;<>\"'-]|\\[.+/$*-])*", pattern)
    assert plain is not None  # noqa: S101 - it matches the empty text, too
    text = re.sub(r"\\(.)", r"\1", plain[0])
    if pattern.startswith(("*", "?", "{", "+"), plain.end()):
        return text[:-1]
    return text


def _rule(name: str, marks: str, rest: str, reach: int = 512) -> Rule:
    """Make a rule for secrets that begin with one of these marks (separated by spaces)."""
    # Before a key there is no letter but that of an escape in nested JSON (`\nghp_`) or in a URL (`%20ghp_`), or of a
    # colour (`ESC[32m`).
    escapes = r"(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)|(?<=\[[mK])"
    before = rf"(?:(?<![A-Za-z0-9])|{escapes})"
    return _rule_after_label(name, tuple(marks.split()), rest, reach, before)


def _rule_after_label(name: str, marks: tuple[str, ...], rest: str, reach: int = 512, before: str = "") -> Rule:
    """Make a rule for secrets after a label such as `AccountKey=`, which stays if the rest has a group."""
    pattern = re.compile(f"{before}(?:{'|'.join(map(re.escape, marks))}){rest}")
    return Rule(name, marks, pattern, reach, pattern.groups)


_QUOTED = r"[\"'\\]{0,2}\s{0,2}[:=]\s{0,2}[\"'\\]{0,2}"
_NO_VARIABLE = r"(?![${<%]|\*\*)"
"""Excludes variables (`$PASSWORD`), placeholders (`<password>`) and secrets that are hidden already (`***`)."""


SHIPPED = (
    _rule_after_label(
        "private-key",
        ("-----BEGIN ",),
        r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----))*+-----END[A-Z0-9 ]*-----|(?:(?:\\[nr]|\s){0,4}[A-Za-z0-9+/=]{16,}+)*+)",  # or cut off
        reach=64 * 1024,
    ),
    _rule("api-key", "sk-", _HAS_DIGIT + r"[A-Za-z0-9_-]{12,250}"),
    _rule("api-key", "gsk_ hf_ r8_ fw_ pplx- xai- nvapi- tvly- csk- fal_", _HAS_DIGIT + r"[A-Za-z0-9_-]{20,250}"),
    _rule("api-key", "cp-", r"[0-9a-f]{10}-[A-Za-z0-9_-]{32}"),  # our own: a team's, and the admin pages'
    _rule("api-key", "cpa-", r"[A-Za-z0-9_-]{32}"),
    _rule("google-key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _rule("google-key", "GOCSPX- ya29.", r"[A-Za-z0-9_-]{20,250}"),
    _rule("aws-key", "AKIA ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _rule_after_label(
        "aws-secret",
        ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey", "secretAccessKey"),
        _QUOTED + r"((?:[A-Za-z0-9/+]|\\/){40})(?![A-Za-z0-9/+])",  # some write a slash in JSON as `\/`
    ),
    _rule_after_label("azure-key", ("AccountKey=", "SharedAccessKey="), r"([A-Za-z0-9+/]{40,100}={0,2})"),
    _rule("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{30,255}"),
    _rule("github-token", "github_pat_", r"[A-Za-z0-9_]{22,255}"),
    _rule("gitlab-token", "glpat- gldt- glrt-", r"[A-Za-z0-9_-]{18,250}(?:\.[A-Za-z0-9_-]{2,40}){0,3}"),
    _rule("slack-token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", r"[A-Za-z0-9-]{10,250}"),
    _rule("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", r"[A-Za-z0-9+/]{16,250}"),
    _rule("package-token", "npm_ dop_v1_ pypi-AgEI", r"[A-Za-z0-9_-]{30,500}"),
    _rule("sendgrid-key", "SG.", r"[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"),
    _rule(
        "web-token", "eyJ", r"[A-Za-z0-9_-]{8,4000}+\.eyJ[A-Za-z0-9_-]{8,8000}+\.[A-Za-z0-9_-]{8,1000}", reach=16 * 1024
    ),
    _rule_after_label(
        "bearer-token",
        ("Bearer ", "bearer ", "BEARER "),
        _HAS_DIGIT + r"([A-Za-z0-9._~+/-]{16,16000}+={0,2})",
        reach=16 * 1024,
    ),
    _rule_after_label(
        "basic-credentials",
        ("uthorization", "UTHORIZATION"),
        _QUOTED + r"(?:Basic|basic|BASIC) {1,2}([A-Za-z0-9+/]{8,500}={0,2})",
    ),
    _rule_after_label(
        "api-key",
        ("api-key", "api_key", "Api-Key", "API_KEY", "apiKey"),
        rf"{_QUOTED}{_HAS_DIGIT}([A-Za-z0-9_-]{{16,250}})",
    ),
    _rule_after_label(
        "password-in-url", ("://", ":\\/\\/"), rf"[^\s/@:\"'<>]{{0,100}}:{_NO_VARIABLE}([^\s/@\"'<>]{{1,200}})@"
    ),
    _rule_after_label(
        "password",
        ("curl ",),
        # Up to the next mark only: from there on, the pattern is tried again.
        r"(?:(?:[^\n|;c]|c(?!url )){0,300}?\s)?(?:-[a-zA-Z]{0,8}u|--user)"
        r"[ =]?[\"'\\]{0,2}[^\s:\"'\\$-][^\s:\"'\\]{0,99}:" + _NO_VARIABLE + r"([^\s\"'\\]{1,200})",
    ),
    _rule_after_label(
        "password",
        ("--password=", "PGPASSWORD=", "MYSQL_PWD="),
        r"[\"'\\]{0,2}" + _NO_VARIABLE + r"([^\s\"'\\]{3,200})",
    ),
)
