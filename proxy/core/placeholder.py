"""Placeholders: what a model reads in place of an old result.

A placeholder says who wrote it, what the call was, what its result shows of the outcome, how large it was and how to
get it back, and then quotes a few of its lines, with every gap marked. Nothing in it may depend on a clock or a
counter: the same history gets the same words every time.

A template may use `{tool} {argument} {rows} {bytes} {outcome} {status} {first} {way_back} {excerpt}`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import Any

from proxy.core.agents import (
    COMMANDS,
    IDS,
    PATHS,
    find_command_line,
    find_kind,
    find_output_within,
    find_value,
    is_read_only,
    remove_folder_change,
)
from proxy.core.deeds import find_patched_files, is_file_text
from proxy.core.messages import Message, ToolCall, iterate_strings, list_argument_texts
from proxy.core.outcome import (
    ResultOutcome,
    cut_first_line,
    cut_line,
    find_error_places,
    find_outcome,
    has_no_output,
    skip_harness_head,
)

GAP = "…"

# --- the call ---------------------------------------------------------------------------------------------------------

LABEL_CHARACTERS = 100
_PATTERNS = ("pattern", "query", "regex", "search_term", "glob", "url")
_NAMED_BY = (*PATHS, *COMMANDS, "code", "name", "description", "prompt")
_ENDS = ("source", "destination")
_PATH_SIGN = re.compile(r"[/\\.~]")
_FIRST_LINE_CHARACTERS = 120


def render_call(call: ToolCall) -> str:
    """A call as a model can find it again: `Grep(TODO in proxy/core)`."""
    return f"{call.name}({choose_argument(call)})"


def choose_argument(call: ToolCall | None) -> str:
    """The argument a person would name the call by; of a search the pattern and the path, of a patch its files."""
    if call is None:
        return ""
    values = call.named
    texts = {key: value for key, value in values.items() if isinstance(value, str) and value.strip()}
    # Of a journey, too, an argument may be named `destination`.
    files = {key: value for key, value in texts.items() if key not in _ENDS or _PATH_SIGN.search(value)}
    path, pattern = find_value(files, PATHS), find_value(texts, _PATTERNS)
    if path:
        return f"{_shorten_middle(pattern)} in {_shorten_path(path)}" if pattern else _shorten_path(path)
    if any(values.get(key) == "" for key in COMMANDS):
        return ""
    listed = find_command_line(values) if any(isinstance(values.get(key), list) for key in COMMANDS) else ""
    first = pattern or listed or find_value(files, _NAMED_BY) or ", ".join(texts.values()) or _render_id(values)
    if not first:
        found = [text for value in values.values() for text in iterate_strings(value) if text.strip()]
        first = " ".join(found[:4]) if found or isinstance(call.value, dict) else call.arguments
    patched = [file.key for file in find_patched_files(first)] if "*** Begin Patch" in first else []
    return _shorten_middle(", ".join(patched) or remove_folder_change(first))


def _render_id(values: Mapping[str, Any]) -> str:
    """The number of a process or a session; empty where the call names none."""
    number = find_value(values, IDS)
    return f"{number}" if isinstance(number, int) else ""


def _shorten_path(path: str) -> str:
    """The path, cut between folders at its beginning, which paths of one project have in common."""
    if len(path) <= LABEL_CHARACTERS:
        return path
    end = path[1 - LABEL_CHARACTERS :]
    return f"{GAP}{end[end.find('/') :] if '/' in end else end}"


def _shorten_middle(text: str) -> str:
    """The text in one line, cut between words in its middle: commands are alike at their beginning or at their end."""
    line = " ".join(text[: 40 * LABEL_CHARACTERS].split())
    if len(line) <= LABEL_CHARACTERS:
        return line
    head, tail = line[: LABEL_CHARACTERS * 2 // 3 - 2], line[2 - LABEL_CHARACTERS // 3 :]
    head = head[: head.rfind(" ")] if " " in head[len(head) // 2 :] else head
    tail = tail[tail.find(" ") + 1 :] if " " in tail[: len(tail) // 2] else tail
    return f"{head} {GAP} {tail}"


def describe_length(text: str) -> str:
    """How many lines it has, in words."""
    number = text.count("\n") + 1
    return f"{number:,} lines" if number > 1 else "1 line"


# What the types of parts that are no text have in common, in all APIs.
_ATTACHMENT_NAMES = {"image": "image", "screenshot": "image", "audio": "recording", "file": "file", "document": "file"}


def describe_attachments(kinds: Sequence[str]) -> str:
    """Parts of these types in words: `2 images and 1 file`."""
    named = (next((name for mark, name in _ATTACHMENT_NAMES.items() if mark in kind), "other part") for kind in kinds)
    counted = Counter(named).items()
    return " and ".join(f"{number} {name}{'s' if number > 1 else ''}" for name, number in counted)


# --- the placeholder --------------------------------------------------------------------------------------------------

TEMPLATE = "[Shortened by the context proxy: {tool}({argument}), {rows}, {bytes} bytes{outcome}. {way_back}]{excerpt}"
OBSERVATION_TEMPLATE = (
    "Observation: [shortened by the context proxy: {rows}, {bytes} bytes{outcome}. {way_back}]{excerpt}"
)
_FIELD = re.compile(r"\{(\w+)\}")
# Fields of earlier versions, which a template may still have.
_FORMER_FIELDS = {"handle": "", "names": ""}
_WRAPPED_SHARE = 0.5
_WRAPPED_CHARACTERS = 200
_WRAPPED_TEXTS_MAX, _WRAPPED_MEAN_CHARACTERS = 3, 1_000
"""So many texts are each shortened in their place; more of them only where they are as long as this in the mean: of a
list of short ones its items say more than a placeholder in each.
"""


def render_placeholder(
    template: str,
    text: str,
    call: ToolCall | None,
    excerpt: str = "",
    handle: str = "",
    *,
    outcome: ResultOutcome | None = None,
    attachments: Sequence[tuple[str, int]] = (),
) -> str:
    """The template with its fields filled in. `handle`: how the text is recalled, where it can be. `attachments`: what
    there was beside the text.
    """
    outcome = outcome or find_outcome(text, call)
    verdict = " ".join(outcome.render().split()).rstrip(".")
    rows, size = _measure(text, call, attachments)
    values = {
        "tool": call.name if call else "tool",
        "argument": choose_argument(call),
        "bytes": f"{size:,}",
        "rows": rows,
        "outcome": f", {verdict}" if verdict else "",
        "status": outcome.status,
        "first": cut_first_line(text, _FIRST_LINE_CHARACTERS),
        "way_back": _render_way_back(
            call, handle if text else "", size, is_text=not attachments, has_gaps=GAP in excerpt
        ),
        "excerpt": f"\n{excerpt}" if excerpt else "",
        **_FORMER_FIELDS,
    }
    values["lines"] = values["excerpt"]
    rendered = _FIELD.sub(lambda found: values.get(found[1], found[0]), template)
    return f"{rendered} [Call {handle} for the full text.]" if handle and "{way_back}" not in template else rendered


def _measure(text: str, call: ToolCall | None, attachments: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """How much there was, in words and in bytes."""
    if has_no_output(text, call):
        return "no output", 0
    others = describe_attachments([kind for kind, _ in attachments])
    rows = " and ".join(filter(None, (describe_length(text) if text or not others else "", others)))
    return rows, len(text.encode("utf-8", "surrogatepass")) + sum(size for _, size in attachments)


def _render_way_back(call: ToolCall | None, handle: str, size: int, *, is_text: bool, has_gaps: bool) -> str:
    """How the model gets all of it back, without doing twice what should be done once."""
    if not size:
        return "Nothing was left out."
    whole = "the full text" if is_text else "all of it"
    kind = "run" if call is None else find_kind(call.name, call.named)
    if handle:
        way = f"Call {handle} for the full text."
    elif kind in ("change", "patch"):
        way = "Read the file for its current text."
    elif kind in ("agent", "wait"):
        # A sub-agent would start its work again, and a process tells only what is new.
        way = "Calling the tool again may not return this text."
    elif call is not None and (kind == "read" or is_read_only(call.name) or is_file_text(call)):
        way = f"Call the tool again for {whole}."
    elif kind == "run":
        way = f"Only a new run returns {whole}."
    else:
        way = "Calling the tool again would do it again."
    return f'"{GAP}" marks gaps. {way}' if has_gaps else way


def shorten_output(message: Message, shorten: Callable[[str], str]) -> str:
    """The text of a message with its output shortened: of an answer only what its client has put behind it."""
    text = message.text
    if message.role != "assistant" and message.list_attachments():
        return shorten(text)
    start = find_output_within(text) if message.role == "assistant" else 0
    return text[:start] + shorten_text(text[start:], shorten)


def shorten_text(text: str, shorten: Callable[[str], str]) -> str:
    """A result, shortened; of one that is JSON around a long text, that text in its place."""
    value = _parse_json(text)
    wrapped = [each for each in iterate_strings(value) if len(each) > _WRAPPED_CHARACTERS]
    characters = sum(map(len, wrapped))
    are_long = len(wrapped) <= _WRAPPED_TEXTS_MAX or characters > _WRAPPED_MEAN_CHARACTERS * len(wrapped)
    if not wrapped or not are_long or characters < _WRAPPED_SHARE * len(text):
        return shorten(text)
    shorter = replace_texts(
        value, lambda each: min(each, shorten(each), key=len) if len(each) > _WRAPPED_CHARACTERS else each
    )
    return json.dumps(shorter, ensure_ascii=False)


def _parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """The object or list that the text is; None where it is none."""
    bare = text.strip()
    if bare[:1] not in ("{", "[") or bare[-1:] not in ("}", "]"):
        return None
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        return None


def replace_texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    """The JSON value with each text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [replace_texts(each, change) for each in value]
    if isinstance(value, dict):
        return {key: replace_texts(each, change) for key, each in value.items()}
    return value


# --- names ------------------------------------------------------------------------------------------------------------
# The specific names in a text: paths, identifiers, dotted words, numbers, which an agent may need again.

# Not from within a ruler or a row of dots: from each of its places all of it would be read.
# A slash behind a bracket, a star or a variable begins no path: `}/a.py` is the end of one.
_NAME = re.compile(
    r"(?<![\w\\])(?!(?<=[<}\])*~])/)(?![.:@-]{100})(?:~(?=/)|[A-Za-z0-9_./@-])[A-Za-z0-9_./:@-]{3,}[A-Za-z0-9_/]"
)
# A word that a tool has cut.
_CUT_ENDS = ("…", "...")
_CUT_WORD = re.compile(r"\S{1,300}?(?<=[\w/-])(?:…|\.\.\.)")
_SPECIFIC = re.compile(r"[/_0-9]|\w\.\w|[a-z][A-Z]")
# Line numbers, times, sizes and versions of nothing: no call is ever made with them.
_DEBRIS = re.compile(
    r"[\d.,:/_-]+(?:[a-z]{1,2}|ms)?|\d+:\w+|\d+-[a-z]+|-+.*|[\d:.-]+T[\d:.Z+-]*|.*//+|[0-9a-f]{7,}\.\.[0-9a-f]{7,}"
)
# `a.py:31`, `a.py:31:text` and `./a.py:text` as a search shows a line, and `a.py-31` as it shows the lines around.
_PLACE_IN_FILE = re.compile(
    r"(\.[a-z]{1,5})(?:-\d+|:\d+(?:-\d+)?(?::.*)?)$|(/[^:]*\.[a-z]{1,4}):[^:\d].*$|(?::\d+)+(?::[a-z]*)?$"
)
# `12:` before a word, as a search shows the number of its line.
_LINE_NUMBER = re.compile(r"^\d+:(?=[A-Za-z_./][^:]*$)")
# A part of a path that a machine has made up: a session, a commit.
_HASH = re.compile(r"[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4}")
NAME_CHARACTERS = 120
LONGEST_LINE_CHARACTERS = 300


# The folders of a path that is more than two words joined by a slash, as `offset/limit` is.
_FOLDER = re.compile(r"(?<![\w.@-])[\w.@-]{1,120}+(?=/(?:[\w.@-]{0,120}[./\d_]|\s))|(?<=/)[\w.@-]{1,120}+(?=/)")
# A key of JSON, also within a text of JSON, where it is no more than a word.
_KEY = re.compile(r"\"([A-Za-z_]+)\\{0,3}\"[ \t]{0,9}:")


class WordNames(dict[str, tuple[str, ...]]):
    """The names in each word between blanks: most words of a history occur in it many times."""

    __slots__ = ("_folders", "_keys", "_new")

    def __init__(self) -> None:
        super().__init__()
        self._folders, self._keys = set[str](), set[str]()
        self._new: list[str] = []
        """Words in which folders and keys were not looked for yet."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        names = self[word] = _find_names_in_word(word)
        if names and ("/" in word or '":' in word):
            self._new.append(word)
        return names

    def may_be_prose(self, name: str) -> bool:
        """True for two words that only a slash joins, of which none is a folder of a path, and for a key of JSON."""
        is_joined = name.count("/") == 1 and name.replace("/", "").isalpha()
        if not is_joined and not name.replace("_", "").isalpha():
            return False
        self._read_new_words()
        return self._folders.isdisjoint(name.split("/")) if is_joined else name in self._keys

    def _read_new_words(self) -> None:
        if self._new:
            text = "\n".join((*self._new, ""))
            self._new.clear()
            self._keys.update(_KEY.findall(text))
            self._folders.update(_FOLDER.findall(text))


def find_names(text: str, known: WordNames | None = None) -> tuple[str, ...]:
    """The names of a text, once each, in order of appearance; longer words are data. `known`: of words read before."""
    names_of = WordNames() if known is None else known
    found = [*filter(None, map(names_of.__getitem__, text.split()))]
    return tuple(dict.fromkeys(chain.from_iterable(found))) if found else ()


def _find_names_in_word(word: str) -> tuple[str, ...]:
    # Most words are plain ones, and passed over at little cost.
    if not _SPECIFIC.search(word) or (word.endswith(_CUT_ENDS) and _CUT_WORD.fullmatch(word)):
        return ()
    return tuple(filter(None, map(_find_name, _NAME.findall(word))))


def _find_name(word: str) -> str:
    if (word.isalpha() and word.islower()) or len(word) > 2 * NAME_CHARACTERS:
        return ""
    name = _PLACE_IN_FILE.sub(r"\1\2", word) if ":" in word or "-" in word else word
    name = _LINE_NUMBER.sub("", name.removeprefix("./"))
    is_specific = len(name) <= NAME_CHARACTERS and _SPECIFIC.search(name) and not _DEBRIS.fullmatch(name)
    return name if is_specific else ""


# --- the excerpt ------------------------------------------------------------------------------------------------------
# The few lines of a text that stay: what went wrong, where it begins and ends, its headings and signatures, what the
# user or the model speaks of elsewhere, and names that are nowhere else. A long history repeats most names many
# times, so few lines are needed to keep each name once. Of lines that are alike but for their numbers a few stand for
# all.

EDGE_CHARACTERS = 160
LEAST_CHARACTERS = 120
"""An excerpt is not shorter than this, whatever the part, unless the share of the text is."""
LEAST_NAMES, CHARACTERS_PER_NAME = 8, 600
"""A text has room for so many names, and for one more for each so many characters: a list is not half of a short text.
"""
ALIKE_LINES_MAX = 3
_SIMILAR_MIN = 3
_LINE_COST_CHARACTERS = 8
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x1b\][^\x07\n]{0,200}\x07?|[\x00-\x08\x0b\x0c\x0e-\x1f]")
_NUMBERED = re.compile(r"(?<!\S)[^\s\d]*+\d\S*+")
_WORDED = re.compile(r"[^\W\d_]{2}")
_REMINDER = re.compile(r"\s{0,9}<system-reminder>[^<]{0,9999}</system-reminder>")
# A tag that ends, an exit code, and what editors and shells of agents write around each result.
_SAYS_NOTHING = re.compile(
    r"\s*(?:</[\w-]{1,40}>|bash-\$"
    r"|(?:\[Current working directory|\[Python interpreter|\(Current directory|\(Open file): [^\n]*"
    r"|(?:Here's the result of running `cat -n` on|The file \S{1,300} has been|Review the changes and)\b[^\n]*"
    r"|\W{0,3}(?i:(?:(?:the )?(?:process|command) )?(?:completed with )?exit(?:ed with)?[ _](?:code|status)|returncode)"
    r"\W{1,4}-?\d+\W{0,3})\s*"
)
# How much of JSON stays, less and less until there is room for it: items, characters of each text, members.
_PRUNINGS = ((20, 200, 80), (8, 120, 32), (4, 80, 16), (2, 60, 8), (1, 40, 4), (1, 40, 2), (1, 24, 1))
_RULER = re.compile(r"[\s|+:=-]{3,}")
_SIGNATURE = re.compile(
    r"\s{0,12}(?:\d+\s{0,4}[→|:\t]\s{0,8})?(?:#{1,4} \S"
    r"|(?:(?:export|default|public|private|static|async|pub|abstract|final) ){0,4}"
    r"(?:def|class|func|function|fn|interface|type|struct|enum|impl|trait|module) \w)"
)
_WARNING_HINT = re.compile("warn|deprecated|error|fail|denied|not found|exception|undefined")
_WARNING = re.compile(
    r"(?i)\b(?:warn(?:ing)?|deprecated|errors?|failed|failures?|denied|not found|exception|undefined)\b"
)
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_EDGE_SHARE = 0.5
_WORTH_WARNING, _WORTH_SIGNATURE, _WORTH_MENTION, _WORTH_CHANGE = 2.0, 0.5, 0.5, 0.5


@dataclass(frozen=True, slots=True)
class Excerpts:
    """Makes excerpts of one text after the other, and remembers which names are somewhere already."""

    share: float
    """The share of a text that may stay as lines."""
    at_most: int
    """... in characters."""
    listed: int
    """How many further names are listed."""
    kept_names: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    """Names of which the user or the model speaks."""
    known: WordNames = field(default_factory=WordNames)
    alike_paths: Counter[str] = field(default_factory=Counter)
    """How many paths there were, listed or not, that are the same but for a hash."""

    @property
    def wanted(self) -> bool:
        return self.share > 0 or self.listed > 0

    def keep(self, texts: Iterable[str], *, mentioned: bool = False) -> None:
        """These texts stay whole: their names need no line elsewhere. `mentioned`: the user or the model said them."""
        if self.wanted:
            for text in texts:
                found = find_names(text, self.known)
                self.kept_names.update(found)
                if mentioned:
                    self.mentioned.update(found)

    def keep_rest(self, messages: Iterable[Message], removed: Collection[int]) -> None:
        """All of these messages stay whole but those that go, by their id()."""
        for message in messages:
            if id(message) not in removed:
                self.keep(list_texts(message), mentioned=not message.is_bulk)

    def excerpt(self, text: str, part: float = 1.0, call: ToolCall | None = None) -> str:
        """The excerpt of a text; `part` scales the share."""
        if not self.wanted:
            return ""
        room = min(self.at_most, int(len(text) * self.share * part))
        if self.share:
            room = max(room, min(LEAST_CHARACTERS, self.at_most, int(len(text) * self.share)))
        text = _skip_additions(text)
        value = _parse_json(text)
        if value is not None and "\n" not in text.strip():
            return self._excerpt_json(text.strip(), value, room)
        lines = _clean_lines(text)
        picked, left = self._pick(text, lines, room, call)
        excerpt = _render_lines(lines, picked)
        listed = self._list(left, min(self.listed, max(LEAST_NAMES, len(text) // CHARACTERS_PER_NAME)))
        if not listed:
            return excerpt
        listing = f"Names in {'the gaps' if excerpt else 'it'}: {', '.join(listed)}"
        return f"{excerpt}\n{listing}" if excerpt else listing

    def name_what_is_left_out(self, messages: Sequence[Message], most: int) -> str:
        """A line with up to so many names of these messages that occur nowhere yet, the newest first; or nothing."""
        listed: list[str] = []
        for text in (text for message in reversed(messages) for text in list_texts(message)):
            if len(listed) >= most:
                break
            listed += self._list(find_names(_skip_additions(text), self.known), most - len(listed))
        return f"Names in what was left out: {', '.join(listed)}" if listed else ""

    def _list(self, found: Iterable[str], most: int) -> list[str]:
        """Up to so many of these names that are nowhere yet; of paths that differ by a hash a few stand for all."""
        listed = list[str]()
        for name in found:
            if len(listed) >= most:
                break
            is_new = name not in self.kept_names and not self.known.may_be_prose(name)
            if is_new and self._count_alike(name) <= ALIKE_LINES_MAX:
                listed.append(name)
        self.kept_names.update(listed)
        return listed

    def _count_alike(self, name: str) -> int:
        """Count this path among those that differ from it by a hash; the number of them. 0 for a name without one."""
        if "/" not in name or (shape := _HASH.sub("0", name)) == name:
            return 0
        self.alike_paths[shape] += 1
        return self.alike_paths[shape]

    def _pick(
        self, text: str, lines: Sequence[str], room: int, call: ToolCall | None
    ) -> tuple[dict[int, str], dict[str, None]]:
        """The lines that stay, by their places, and the names for which no line had room."""
        picked, left = dict[int, str](), dict[str, None]()
        shown, alike = set[str](), Counter[str]()

        def pick(place: int, line: str, found: Iterable[str]) -> None:
            nonlocal room
            room -= len(line) + 1
            picked[place] = line
            shown.add(line)
            alike[_remove_numbers(line)] += 1
            self.kept_names.update(found)

        # The first and the last line with an error stay even where there is no room.
        errors = find_error_places(text)
        starts = {*(each.start for each in errors), *(each.reason[0] for each in errors if each.reason)}
        for place in sorted(text.count("\n", 0, start) for start in starts):
            line = _cut_end(lines[place])
            if line not in shown:
                pick(place, line, find_names(line, self.known))
        for place in _find_edges(lines):
            line = _cut_end(lines[place], EDGE_CHARACTERS)
            if line not in shown and len(line) < room * _EDGE_SHARE:
                pick(place, line, find_names(line, self.known))
        for place, found, is_telling in self._by_worth(lines, call):
            line = lines[place]
            fits = len(line) < room and len(line) <= LONGEST_LINE_CHARACTERS and line not in shown
            is_wanted = fits and (is_telling or not self.kept_names.issuperset(found))
            if is_wanted and alike[_remove_numbers(line)] < ALIKE_LINES_MAX:
                pick(place, line, found)
            else:
                left.update(dict.fromkeys(found))
        return picked, left

    def _by_worth(self, lines: Sequence[str], call: ToolCall | None) -> list[tuple[int, tuple[str, ...], bool]]:
        """The places of the lines that are worth staying, best first for their length; with the names in them, and
        whether they tell something without a name: lines that warn, and those that a diff adds or removes.
        """
        # Words such as "warning" tell of what happened: not so in a file that was read.
        warnings = frozenset[int]() if call is not None and is_file_text(call) else _find_warnings(lines)
        changes = _find_changes(lines)
        elsewhere = self.mentioned.difference(find_names(call.arguments)) if call is not None else self.mentioned
        kept_names, found = self.kept_names, []
        # Most lines of a long history have no name that is new: they are passed over at little cost.
        words = set("\n".join(lines).split())
        new_words = {word for word in words if not kept_names.issuperset(self.known[word])}
        for place, line in enumerate(lines):
            is_warning, is_change = place in warnings, place in changes
            if not (is_warning or is_change) and new_words.isdisjoint(line.split()):
                continue
            every = find_names(line, self.known)
            new = len(every) - len(kept_names.intersection(every))
            value = new + _WORTH_WARNING * is_warning + _WORTH_CHANGE * is_change
            if new:
                value += _WORTH_SIGNATURE * bool(_SIGNATURE.match(line))
                value += _WORTH_MENTION * (not elsewhere.isdisjoint(every))
            found.append((-value / (len(line) + _LINE_COST_CHARACTERS), place, every, is_warning or is_change))
        return [candidate[1:] for candidate in sorted(found)]

    def _excerpt_json(self, excerpt: str, value: Any, room: int) -> str:  # noqa: ANN401 - JSON
        """JSON with fewer members and items, and shorter texts."""
        room = max(room, EDGE_CHARACTERS)
        for items, characters, members in _PRUNINGS:
            if len(excerpt) <= room:
                break
            excerpt = json.dumps(_prune(value, items, characters, members), ensure_ascii=False)
        excerpt = cut_line(excerpt, room)
        self.kept_names.update(find_names(excerpt, self.known))
        return excerpt


def _skip_additions(text: str) -> str:
    """The output without what a harness writes above it, and a client in the name of the system among it."""
    return _REMINDER.sub("", skip_harness_head(text)) if "<system-reminder>" in text else skip_harness_head(text)


def _clean_lines(text: str) -> list[str]:
    """The lines of a text, each as a terminal shows it; empty where a harness says what the placeholder does."""
    lines = text.split("\n")
    is_plain = "".join(lines).replace("\t", "").isprintable()
    lines = [line.rstrip() for line in lines] if is_plain else [_clean(line) for line in lines]
    for place in _find_near_edges(lines):
        if _SAYS_NOTHING.fullmatch(lines[place]):
            lines[place] = ""
    return lines


def _find_warnings(lines: Sequence[str]) -> frozenset[int]:
    """The places of the lines that warn or tell of an error."""
    # Lines are looked at only where they hold one of these words, in small letters.
    lowered, at, start, hinted = "\n".join(lines).lower(), 0, 0, dict[int, None]()
    for hint in _WARNING_HINT.finditer(lowered):
        at += lowered.count("\n", start, hint.start())
        start = hint.start()
        hinted[at] = None
    return frozenset(place for place in hinted if _WARNING.search(lines[place]))


def _find_changes(lines: Sequence[str]) -> frozenset[int]:
    """The places of the lines with words that a diff adds or removes."""
    changes, is_hunk = list[int](), False
    first = next((place for place, line in enumerate(lines) if line.startswith("@@ -")), len(lines))
    for place, line in enumerate(islice(lines, first, None), first):
        if _HUNK.match(line):
            is_hunk = True
        elif line[:1] not in ("+", "-", " ", "", "\\"):
            is_hunk = False
        elif is_hunk and line[:1] in ("+", "-") and _WORDED.search(line):
            changes.append(place)
    return frozenset(changes)


def _clean(line: str) -> str:
    """The line as a terminal shows it: without escapes, and of what was overwritten only the last."""
    if "\x1b" in line or "\r" in line or not line.isprintable():
        line = _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2])
    return line.rstrip()


def _cut_end(line: str, limit: int = LONGEST_LINE_CHARACTERS) -> str:
    return line if len(line) <= limit else cut_line(line, limit)


def _find_near_edges(lines: Sequence[str]) -> Sequence[int]:
    return (*range(min(len(lines), 5)), *range(max(5, len(lines) - 5), len(lines)))


def _find_edges(lines: Sequence[str]) -> Iterator[int]:
    """The first and the last line with words; of a table the line with its columns and the one below it."""
    worded = [place for place in _find_near_edges(lines) if _WORDED.search(lines[place])]
    if worded:
        first = worded[0]
        yield first
        if first + 1 < len(lines) and lines[first + 1] and _RULER.fullmatch(lines[first + 1]):
            yield first + 1
        yield worded[-1]


def _remove_numbers(line: str) -> str:
    """The line without its numbers, which lines that are alike have in common."""
    return " ".join(_NUMBERED.sub("0", line).split())


def _render_lines(lines: Sequence[str], picked: dict[int, str]) -> str:
    """The picked lines in their order, with a mark for every gap between them."""
    rendered = []
    for before, after in pairwise((-1, *sorted(picked), len(lines)) if picked else ()):
        skipped = [line for line in lines[before + 1 : after] if line]
        if skipped:
            # Where its lines are like the one beside it, a gap says how many there are.
            beside = {_remove_numbers(lines[place]) for place in (before, after) if 0 <= place < len(lines)}
            similar = len(skipped) >= _SIMILAR_MIN and all(_remove_numbers(line) in beside for line in skipped)
            rendered.append(f"{GAP} {len(skipped):,} similar lines" if similar else GAP)
        rendered += [picked[after]] if after in picked else []
    return "\n".join(rendered)


def _prune(value: Any, items: int, characters: int, members: int) -> Any:  # noqa: ANN401 - JSON
    """The value with so many items of each list, so many members of each object, and texts of so many characters."""
    if isinstance(value, str):
        return cut_line(value, characters)
    if isinstance(value, list):
        more = [f"{GAP} {len(value) - items:,} more"] if len(value) > items else []
        return [_prune(each, items, characters, members) for each in value[:items]] + more
    if isinstance(value, dict):
        pruned = {key: _prune(each, items, characters, members) for key, each in islice(value.items(), members)}
        return pruned | ({GAP: f"{len(value) - members:,} more"} if len(value) > members else {})
    return value


def list_texts(message: Message) -> list[str]:
    """Every text in a message that a model reads: what it says and what it calls for."""
    return [message.text, *(text for call in message.calls for text in list_argument_texts(call))]
