"""Placeholders: the text that a model reads in place of an old result.

A placeholder says who wrote it, the call, its size, the outcome, how much was left out and how to get the text. Below
stand the lines that carry the outcome, and no others: of many, the first ones and a count. Nothing in it depends on a
clock or a counter: the same history gets the same words every time.

A template may use `{tool} {argument} {rows} {bytes} {outcome} {status} {first} {left_out} {way_back} {lines}`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from proxy.history.agents import COMMANDS, PATHS, find_kind, find_value, is_plan_mode, is_read_only, render_value
from proxy.history.calls import iterate_strings
from proxy.history.commands import find_command_line, remove_folder_change
from proxy.history.messages import Message, ToolCall
from proxy.history.observations import find_output_within
from proxy.shorten.acts import acts_on_world, shows_present_state
from proxy.shorten.deeds import find_patched_files, is_file_text
from proxy.shorten.outcome import ResultOutcome, cut_first_line, find_outcome
from proxy.shorten.output import parse_json, read_output

GAP = "…"

# --- the call ---------------------------------------------------------------------------------------------------------

LABEL_CHARACTERS = 100
_PATTERNS = ("pattern", "query", "regex", "search_term", "glob", "url")
_NAMED_BY = (*PATHS, *COMMANDS, "code")
_AGENTS_NAMED_BY = ("description", "name", "prompt")
_ENDS = ("source", "destination")
_PATH_SIGNS = frozenset("/\\.~")
_ARGUMENTS_MAX, _ARGUMENT_CHARACTERS = 6, 60
_FIRST_LINE_CHARACTERS = 120


def render_call(call: ToolCall) -> str:
    """A call as a model can find it again: `Grep(TODO in proxy/core)`."""
    return f"{call.name}({choose_argument(call)})"


def choose_argument(call: ToolCall | None) -> str:
    """The argument a person would name the call by; of a search the pattern and the path, of a patch its files; of
    other calls all arguments, `order: 1042, amount_cents: 4999`.
    """
    if call is None:
        return ""
    values = call.named
    texts = {key: value for key, value in values.items() if isinstance(value, str) and value.strip()}
    # Of a journey, too, an argument may be named `destination`.
    files = {key: value for key, value in texts.items() if key not in _ENDS or not _PATH_SIGNS.isdisjoint(value)}
    path, pattern = find_value(files, PATHS), find_value(texts, _PATTERNS)
    if path:
        return f"{_shorten_middle(pattern)} in {_shorten_path(path)}" if pattern else _shorten_path(path)
    if any(values.get(key) == "" for key in COMMANDS):
        return ""
    first = pattern
    if not first and any(isinstance(values.get(key), list) for key in COMMANDS):
        first = find_command_line(values)
    first = first or find_value(files, _NAMED_BY)
    if not first and find_kind(call.name, values) == "agent":
        first = find_value(texts, _AGENTS_NAMED_BY)
    first = first or _render_arguments(call)
    patched = [file.key for file in find_patched_files(first)] if "*** Begin Patch" in first else []
    return _shorten_middle(", ".join(patched) or remove_folder_change(first))


def _render_arguments(call: ToolCall) -> str:
    """All arguments with their names; a single one without."""
    if not isinstance(call.value, dict):
        return call.arguments
    values = {key: value for key, value in call.named.items() if value not in ("", None, [], {})}
    if len(values) == 1:
        (value,) = values.values()
        texts = [text for text in iterate_strings(value) if text.strip()]
        return " ".join(texts[:4]) or render_value(value)
    pairs = list(values.items())[:_ARGUMENTS_MAX]
    return ", ".join(f"{key}: {cut_first_line(render_value(value), _ARGUMENT_CHARACTERS)}" for key, value in pairs)


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

TEMPLATE = (
    "[Shortened by the context proxy: {tool}({argument}), {rows}, {bytes} bytes{outcome}. {left_out}{way_back}]{lines}"
)
OBSERVATION_TEMPLATE = (
    "Observation: [shortened by the context proxy: {rows}, {bytes} bytes{outcome}. {left_out}{way_back}]{lines}"
)
CHANGED_SINCE = "the file was changed since"
_FIELD = re.compile(r"\{(\w+)\}")
# Fields of earlier versions, which a template may still have.
_FORMER_FIELDS = {"handle": "", "names": ""}
_BEGINNING_CHARACTERS, _LEFT_OUT_CHARACTERS = 24, 8
"""A beginning that lines have in common is said once if it is as long as this."""
_ALIKE_MIN = 3


def render_placeholder(
    template: str,
    text: str,
    call: ToolCall | None,
    handle: str = "",
    *,
    outcome: ResultOutcome | None = None,
    attachments: Sequence[tuple[str, int]] = (),
    over: int = 0,
    is_outdated: bool = False,
) -> str:
    """The template with its fields filled in.

    `handle`: how the text is recalled, if it can be. `attachments`: the parts beside the text, which stays if it is no
    longer than *over*. `is_outdated`: a later call changed the file that was read.
    """
    outcome = outcome or find_outcome(text, call)
    verdicts = [" ".join(outcome.render().split()).rstrip("."), CHANGED_SINCE if is_outdated else ""]
    rows, size = _measure(text, call, attachments)
    if not size:
        lines, left_out = "", ""
    elif attachments and len(text) <= over:
        lines, left_out = text, ""
    else:
        lines, left_out = join_lines(outcome.lines, outcome.more), _describe_rest(text, outcome.lines)
    values = {
        "tool": call.name if call else "tool",
        "argument": choose_argument(call),
        "bytes": f"{size:,}",
        "rows": rows,
        "outcome": "".join(f", {verdict}" for verdict in verdicts if verdict),
        "status": outcome.status,
        "first": cut_first_line(text, _FIRST_LINE_CHARACTERS),
        "left_out": f"{left_out} " if left_out else "",
        "way_back": _render_way_back(
            call, handle if text else "", size, is_text=not attachments, is_outdated=is_outdated
        ),
        "lines": f"\n{lines}" if lines else "",
        **_FORMER_FIELDS,
    }
    values["excerpt"] = values["lines"]
    rendered = _FIELD.sub(lambda field: values.get(field[1], field[0]), template)
    return f"{rendered} [Call {handle} for the full text.]" if handle and "{way_back}" not in template else rendered


def _measure(text: str, call: ToolCall | None, attachments: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """How much there was, in words and in bytes."""
    if not attachments and has_no_output(text, call):
        return "no output", 0
    others = describe_attachments([kind for kind, _ in attachments])
    rows = " and ".join(filter(None, (describe_length(text) if text or not others else "", others)))
    return rows, len(text.encode("utf-8", "surrogatepass")) + sum(size for _, size in attachments)


def has_no_output(text: str, call: ToolCall | None) -> bool:
    """True if a command has printed nothing, and its result is a frame around that."""
    if call is None or find_kind(call.name, call.named) != "run":
        return False
    output = read_output(text)
    return output.is_framed and not (output.text or output.members or output.data)


def join_lines(lines: Sequence[str], more: int = 0) -> str:
    """The lines, one below the other; a beginning that one has in common with a line above it is said once."""
    joined, first = list[str](), ""
    for line in lines:
        beginning = _find_common_beginning(first, line)
        if len(beginning) >= _BEGINNING_CHARACTERS and len(beginning) < len(line):
            joined.append(f"{GAP} {line[len(beginning) :]}")
        else:
            joined.append(line)
            first = line
    if more:
        joined.append(f"{GAP} {more:,} more lines tell of errors")
    return "\n".join(joined)


def _find_common_beginning(one: str, other: str) -> str:
    """The words with which both lines begin, with the blank behind them."""
    end = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return one[: one.rfind(" ", 0, end) + 1]


def _describe_rest(text: str, lines: Sequence[str]) -> str:
    """A sentence on the lines that are left out beside these; empty if all are."""
    if not lines:
        return ""
    shown = {line.strip() for line in lines}
    rest = [line for line in text.split("\n") if line.strip() and line.strip() not in shown]
    if not rest:
        return ""
    if len(rest) == 1:
        return "Left out: 1 line."
    beginning = _find_common_beginning(min(rest), max(rest)).strip()
    if len(rest) >= _ALIKE_MIN and _LEFT_OUT_CHARACTERS <= len(beginning) <= LABEL_CHARACTERS:
        return f'Left out: {len(rest):,} lines "{beginning} {GAP}".'
    return f"Left out: {len(rest):,} other lines."


WAYS_BACK: tuple[tuple[Callable[[ToolCall], bool], str], ...] = (
    (lambda call: _has_kind(call, "change", "patch"), "Read the file for its current text."),
    # A sub-agent would start its work again, and a process tells only what is new.
    (
        lambda call: _has_kind(call, "agent", "wait", "plan", "ask") or is_plan_mode(call),
        "Calling the tool again may not return this text.",
    ),
    (shows_present_state, "A new call shows how it looks then, and not this."),
    (acts_on_world, "Do not make this call again to see it: that would do it again."),
    (
        lambda call: _has_kind(call, "read") or is_read_only(call.name) or is_file_text(call),
        "Call the tool again for {whole}.",
    ),
    (lambda call: _has_kind(call, "run"), "Only a new run returns {whole}."),
    (lambda _: True, "Calling the tool again would do it again."),
)
"""How the text of a result comes back, by what its call does: the first that applies."""


def _has_kind(call: ToolCall, *kinds: str) -> bool:
    return find_kind(call.name, call.named) in kinds


def _render_way_back(call: ToolCall | None, handle: str, size: int, *, is_text: bool, is_outdated: bool) -> str:
    """How the model gets all of it back, without doing twice what should be done once."""
    if not size:
        return "Nothing was left out."
    if handle:
        return f"Call {handle} for the full text."
    whole = "the full text" if is_text else "all of it"
    if is_outdated:
        whole = "its current text"
    if call is None:
        return f"Only a new run returns {whole}."
    sentence = next(sentence for applies, sentence in WAYS_BACK if applies(call))
    return sentence.format(whole=whole)


# --- texts within JSON ------------------------------------------------------------------------------------------------

_WRAPPED_SHARE = 0.5
_WRAPPED_CHARACTERS = 200
_WRAPPED_TEXTS_MAX, _WRAPPED_MEAN_CHARACTERS = 3, 1_000
"""So many texts are each shortened in their place; more of them only if they are as long as this in the mean."""


def replace_output(message: Message, render: Callable[[str], str]) -> str:
    """The text of a message with another in place of its output: of an answer only what its client put behind it."""
    text = message.text
    start = find_output_within(text) if message.role == "assistant" else 0
    return text[:start] + render(text[start:])


def shorten_output(message: Message, shorten: Callable[[str], str]) -> str:
    """The text of a message with its output shortened: of an answer only what its client has put behind it."""
    text = message.text
    if message.role != "assistant" and message.list_attachments():
        return shorten(text)
    start = find_output_within(text) if message.role == "assistant" else 0
    return text[:start] + shorten_text(text[start:], shorten)


def shorten_text(text: str, shorten: Callable[[str], str]) -> str:
    """A result, shortened; of one that is JSON around a long text, that text in its place."""
    value = parse_json(text)
    wrapped = [each for each in iterate_strings(value) if len(each) > _WRAPPED_CHARACTERS]
    characters = sum(map(len, wrapped))
    are_long = len(wrapped) <= _WRAPPED_TEXTS_MAX or characters > _WRAPPED_MEAN_CHARACTERS * len(wrapped)
    if not wrapped or not are_long or characters < _WRAPPED_SHARE * len(text):
        return shorten(text)
    shorter = replace_texts(
        value, lambda each: min(each, shorten(each), key=len) if len(each) > _WRAPPED_CHARACTERS else each
    )
    return json.dumps(shorter, ensure_ascii=False)


def replace_texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    """The JSON value with each text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [replace_texts(each, change) for each in value]
    if isinstance(value, dict):
        return {key: replace_texts(each, change) for key, each in value.items()}
    return value
