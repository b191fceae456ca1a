"""Sentences that the proxy has added to a view, each with the messages of the client that it speaks of.

    [Shortened by the context proxy: Bash(make), 90 lines, 2,410 bytes, exit code 2: no rule. Left out: 88 other
    lines. Only a new run shows it, as it is then.]
    make: *** no rule

has a `call`, a `size`, a `verdict`, what was `left out`, a `way back` and quoted `lines`. Each line of a ledger is a
sentence, of the kind of its section. Words that are not recognised are sentences, too, of the kind `other`: nothing
that the proxy says is left out. A model's summary is not the proxy's own words.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from proxy.history.grouping import list_callers
from proxy.history.messages import HEAD, JOINED, Message, iterate_strings
from proxy.tools.tool_call import ToolCall

PLACEHOLDER_KINDS = ("call", "size", "verdict", "changed since", "left out", "way back", "lines")
SECTIONS = {
    "What the assistant said": "assistant said",
    "Said by the user": "user said",
    "Words in the results of refused calls": "refused words",
    "Instructions and task texts that are no longer shown": "documents lost",
    "Done already": "acts",
    "Files changed": "files changed",
    "Files read": "files read",
    "Commands": "commands",
    "Other calls": "other calls",
}
"""Kinds of the lines of a note, by the beginnings of its headings."""
KINDS = (*PLACEHOLDER_KINDS, "repeats", "clipped", "restored", "carried", "words lost", *SECTIONS.values(), "other")
SILENT = ("strip_reasoning", "leave_out_promise", "strip_attachments", JOINED)
"""Steps that add no words."""

_PLACEHOLDER = re.compile(r"\[[Ss]hortened by the context proxy: ([^\n]*)\](?=\n|\Z)")
_SIZE = re.compile(r"(?:\A|(?<=\)), )((?:[\d,]+ [a-z]+(?: and [\d,]+ [a-z ]+)*|no output), [\d,]+ bytes)(?=[,.])")
_LEFT_OUT = re.compile(r"\. (Left out: [^.]*\.)")
_WAY_BACK = re.compile(
    r"\. ((?:Call |Calling |Do not |Doing |Only a new run |Read the file |A new call |Nothing was left out|It can "
    r"|Run it )"
    r"(?:(?!\. [A-Z])[^\n])*\.(?: [A-Z][^\n]*)?)\Z"
)
_CHANGED = re.compile(r",? ?(the file was changed or deleted since)")
_CLIPPED = re.compile(
    r"\n\[… [^\n]*? left out here by the context proxy; [^\n]*?(?: …\]|\n.*?\n… end of what was left out\])\n",
    re.DOTALL,
)
_REPEATS = re.compile(r"\[Left out by the context proxy: [^\n]*\]\Z")
_RESTORED = re.compile(r"\A\[From the context proxy: [^\n]*\]\n")
_CARRIED = re.compile(
    r"\n\n(\[From the context proxy, no part of the result above: [^\n]*\]\n\n.*)"
    r"\n\n\[End of the earlier results\.\]\Z",
    re.DOTALL,
)
_SEPARATOR = re.compile(r"\A\[Separator from the context proxy: [^\n]*\]\Z")
_OPENING = re.compile(r"\A\[Background from the context proxy[^\n]*\n")
_CLOSING = re.compile(r"\nEnd of background\.[^\n]*\Z")
_MODEL_WORDS = re.compile(
    r"^Summary of the conversation so far, written by a model:\n.*?(?=\n\nTaken from the calls themselves:\n|\Z)"
    r"|^Notes on older results[^\n]*written by a model[^\n]*\n.*",
    re.DOTALL | re.MULTILINE,
)
_FRAMES = frozenset(("Taken from the calls themselves:", "(The state at this place; what follows is newer.)"))
_WORDS_LOST = re.compile(
    r"Older messages of the user that are left out here, for there is no room for them: ([\d,]+)\."
)
_OF_LINES = re.compile(r" for lines \d+-(?:\d+|end)\Z")
_ROW = re.compile(r"\A(.*?)(?: \(([\d,]+) times\))?(?: => (.*))?\Z", re.DOTALL)
_WORD_ENDS = " ,:;.…"


class Sentence(Struct, frozen=True):
    kind: str
    words: str
    context: str
    """All that the proxy wrote at this place."""
    places: tuple[int, ...] = ()
    """The messages of the client that it speaks of: results, the newest first, or messages in the user's role."""
    name: str = ""
    """Of a line of a ledger: the call, the path or the words that it begins with."""
    ending: str = ""
    """Of a line of a ledger: the text after the arrow."""
    times: int = 1


class History(Struct, frozen=True, dict=True):
    """The client's own messages up to the request, with texts that are read once."""

    messages: Sequence[Message]

    @cached_property
    def callers(self) -> Sequence[ToolCall | None]:
        return list_callers(self.messages)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The index of each message of the body, by its start in blocks."""
        return {message.start: index for index, message in enumerate(self.messages) if message.role not in HEAD}

    @cached_property
    def texts(self) -> Sequence[str]:
        """White space counts as one space: notes are written in one line."""
        return [collapse(message.text) for message in self.messages]

    @cached_property
    def call_texts(self) -> Sequence[tuple[ToolCall, int, str]]:
        """Each call, the index of its result, and its arguments in one line; the newest first."""
        texts = []
        for index, call in enumerate(self.callers):
            if call is not None:
                texts.append((call, index, describe_arguments(call)))
        return texts[::-1]

    def find_calls(self, name: str, stop: int) -> tuple[int, ...]:
        """The results before *stop* of the calls that are named so: `Bash(make all)`, or a command alone."""
        tool, _, argument = name.partition("(")
        with_tool = []
        alone = []
        for call, index, text in self.call_texts:
            if index >= stop:
                continue
            if call.name == tool and _holds_words(text, argument.removesuffix(")")):
                with_tool.append(index)
            elif _holds_words(text, name):
                alone.append(index)
        found = with_tool or alone
        if found and "…" not in name:
            argument = name.partition("(")[2].removesuffix(")") if with_tool else name
            texts = {index: text for _, index, text in self.call_texts}
            whole = [index for index in found if f": {argument}, " in f"{texts[index]}, "]
            named = [index for index in found if argument in texts[index] and index not in whole]
            found = [*whole, *named] or found
        return tuple(found or self._find_written(name, stop))

    def _find_written(self, command: str, stop: int) -> Sequence[int]:
        """The messages after answers that hold this command: some agents call no tools."""
        answers = [index for index in range(stop - 1) if self.messages[index].role == "assistant"]
        return [index + 1 for index in reversed(answers) if _holds_words(self.texts[index], command)]


def collapse(text: str) -> str:
    return " ".join(text.split())


def describe_arguments(call: ToolCall) -> str:
    if not call.named:
        return collapse(call.arguments)
    texts = [name if value is None else f"{name}: {_join(value)}" for name, value in call.named.items()]
    return collapse(", ".join(texts))


def _join(value: object) -> str:
    if isinstance(value, list | dict):
        return f"{' '.join(iterate_strings(value))} {json.dumps(value, ensure_ascii=False)}"
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _holds_words(text: str, shown: str) -> bool:
    """Whether the words that are shown stand in this text in their order."""
    position = 0
    for word in shown.replace("…", " ").split():
        start = text.find(word.strip(_WORD_ENDS), position)
        if start < 0:
            # A search is shown before its path, whatever their order in the call.
            start = text.find(word.strip(_WORD_ENDS))
        if start < 0 and word != "in":
            return False
        position = max(start, position)
    return True


def list_sentences(message: Message, history: History) -> Iterator[Sentence]:
    """The sentences in one message that the proxy has written or changed."""
    if not message.made or message.made in SILENT:
        return
    place = history.places.get(message.start)
    places: tuple[int, ...] = ()
    if place is not None and message.start < message.stop:
        places = (place,)
    text = message.text
    if message.made == "note":
        stop = 1 + max((index for start, index in history.places.items() if start < message.stop), default=-1)
        yield from _list_note(text, history, stop)
        return
    if message.made == "restore_reread":
        yield Sentence("restored", text, text, places)
        return
    carried = _CARRIED.search(text)
    if carried is not None:
        yield Sentence("carried", carried[1], text, places)
        return
    placeholder = _PLACEHOLDER.search(text)
    if placeholder is not None:
        yield from _list_parts(placeholder[1], text[placeholder.end() :], text[placeholder.start() :], places)
    elif message.made == "clip_output":
        yield from _list_clips(text, places)
    elif _REPEATS.search(text):
        yield Sentence("repeats", text, text, places)
    else:
        yield Sentence("other", text, text, places)


def _list_parts(header: str, below: str, context: str, places: tuple[int, ...]) -> Iterator[Sentence]:
    def part(kind: str, words: str) -> Sentence:
        return Sentence(kind, words, context, places)

    size = _SIZE.search(header)
    if size is None:
        yield part("other", header)
        return
    name = header[: size.start()].removesuffix(", ")
    if name:
        yield Sentence("call", name, context, places, name=name)
    yield part("size", size[1])
    rest = header[size.end() :]
    way_back = _WAY_BACK.search(rest)
    if way_back is not None:
        yield part("way back", way_back[1])
        rest = rest[: way_back.start() + 1]
    for left_out in list(_LEFT_OUT.finditer(rest))[-1:]:  # a quoted reason may say it, too
        yield part("left out", left_out[1])
        rest = rest[: left_out.start() + 1] + rest[left_out.end() :]
    changed = _CHANGED.search(rest)
    if changed is not None:
        yield part("changed since", changed[1])
        rest = rest[: changed.start()] + rest[changed.end() :]
    verdict = rest.removeprefix(",").strip(" .")
    if verdict:
        yield part("verdict", verdict)
    if below.strip():
        yield part("lines", below.removeprefix("\n"))


def _list_clips(text: str, places: tuple[int, ...]) -> Iterator[Sentence]:
    texts = [text]
    if not _CLIPPED.search(text):
        try:
            texts = list(iterate_strings(json.loads(text)))
        except ValueError:
            texts = []
    clips = [(clip[0].strip("\n"), inner) for inner in texts for clip in _CLIPPED.finditer(inner)]
    for words, inner in clips:
        yield Sentence("clipped", words, inner, places)
    if not clips:
        yield Sentence("other", text, text, places)


def _list_note(text: str, history: History, stop: int) -> Iterator[Sentence]:
    if _SEPARATOR.match(text):
        return
    inner = _MODEL_WORDS.sub("", _CLOSING.sub("", _OPENING.sub("", text)))
    section = title = ""
    for line in inner.split("\n"):
        heading = next((kind for title, kind in SECTIONS.items() if line.startswith(title)), "")
        lost = _WORDS_LOST.match(line)
        if heading and line.rstrip().endswith(":"):
            section, title = heading, line
        elif lost is not None:
            yield Sentence("words lost", line, text, name=lost[1])
        elif section and line.startswith("- "):
            yield _read_row(section, line.removeprefix("- "), f"{title}\n{line}", history, stop)
        elif line.strip() and line not in _FRAMES:
            yield Sentence("other", line, text)


def _read_row(section: str, row: str, text: str, history: History, stop: int) -> Sentence:
    if section in ("assistant said", "user said", "refused words"):
        # A ledger may also quote messages that stand behind it.
        quoted = _find_words(row, history, stop) or _find_words(row, history, len(history.messages))
        return Sentence(section, row, text, quoted, row)
    names = [row, *(row[: arrow.start()] for arrow in re.finditer(" => ", row))]
    name = row
    places: tuple[int, ...] = ()
    for candidate in reversed(names):  # a command may have an arrow of its own
        name = re.sub(r" \([\d,]+ times\)\Z", "", candidate)
        if section in ("files changed", "files read"):
            # A ledger may also list what stands behind it.
            places = _find_path(name, history)
        else:
            call_name = _OF_LINES.sub("", name)
            places = history.find_calls(call_name, stop) or history.find_calls(call_name, len(history.messages))
        if places:
            break
    ending = row[len(name) :]
    parts = _ROW.match(ending)
    assert parts is not None  # noqa: S101 - it matches any text
    if not places:
        parts = _ROW.match(row) or parts
        name = parts[1]
    return Sentence(section, row, text, places, name, parts[3] or "", int((parts[2] or "1").replace(",", "")))


def _find_path(path: str, history: History) -> tuple[int, ...]:
    """The results of the calls that have this path as an argument, then of those that name it, or its last part."""
    with_path = []
    others = []
    name = path.rsplit("/", 1)[-1]
    for _, index, text in history.call_texts:
        if f": {path}, " in f"{text}, ":
            with_path.append(index)
        elif path in text or name in text:
            others.append(index)
    return (*with_path, *others)


def _find_words(words: str, history: History, stop: int) -> tuple[int, ...]:
    pieces = [piece.strip() for piece in words.split("…") if piece.strip()]
    if not pieces:
        return ()
    texts = history.texts[:stop]
    return tuple(index for index in reversed(range(len(texts))) if all(piece in texts[index] for piece in pieces))
