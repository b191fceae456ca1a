"""Labels of calls, and placeholders: the text that a model reads in place of an old result.

    [Shortened by the context proxy: Bash(make all), 42 lines, 976 bytes, exit code 2: Error: no rule. Left out: 39
    other lines. Only a new run returns the full text.]
    Error: no rule

A template may use `{tool} {argument} {rows} {bytes} {outcome} {status} {first} {left_out} {way_back} {lines}`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from proxy.history.agents import (
    COMMANDS,
    PATHS,
    find_command_line,
    find_kind,
    find_requested_lines,
    find_value,
    is_plan_mode,
    is_read,
    is_read_only,
    matches_any,
    remove_folder_change,
    render_value,
)
from proxy.history.calls import iterate_strings
from proxy.history.messages import Message, ToolCall
from proxy.history.observations import find_output_within
from proxy.shorten.acts import PATCH, acts_on_world, is_file_text, list_patched_files
from proxy.shorten.outcome import WORD_CHARACTERS, ResultOutcome, cut_first_line, find_outcome
from proxy.shorten.output import parse_json, read_output

GAP = "…"
LABEL_CHARACTERS = 100
PATH_SIGNS = frozenset("/\\.~")
ARGUMENTS_MAX, ARGUMENT_CHARACTERS = 6, 60


def render_call(call: ToolCall) -> str:
    return f"{call.name}({choose_argument(call)})"


def name_result(call: ToolCall | None) -> str:
    if call is None:
        return "an earlier result"
    name = f"the result of {render_call(call)}"
    lines = find_requested_lines(call.named) if is_read(call) else None
    return f"{name} for lines {lines[0]}-{lines[1] or 'end'}" if lines else name


def choose_argument(call: ToolCall | None) -> str:
    """The argument by which a person would name the call, else all of them: `order: 1042, amount_cents: 4999`."""
    if call is None:
        return ""
    arguments = call.named
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value.strip()}
    # Of a journey, too, an argument may be named `destination`.
    files = {
        key: value
        for key, value in texts.items()
        if key not in ("source", "destination") or not PATH_SIGNS.isdisjoint(value)
    }
    path, pattern = (
        find_value(files, PATHS),
        find_value(texts, ("pattern", "query", "regex", "search_term", "glob", "url")),
    )
    if path:
        return f"{_shorten_middle(pattern)} in {_shorten_path(path)}" if pattern else _shorten_path(path)
    if any(arguments.get(key) == "" for key in COMMANDS):
        return ""
    label = pattern
    if not label and any(isinstance(arguments.get(key), list) for key in COMMANDS):
        label = find_command_line(arguments)
    label = label or find_value(texts, (*COMMANDS, "code"))
    if not label and find_kind(call.name, arguments) == "agent":
        label = find_value(texts, ("description", "name", "prompt"))
    label = label or _render_arguments(call)
    if PATCH in label:
        label = ", ".join(use.path for use in list_patched_files(label)) or label
    return _shorten_middle(remove_folder_change(label))


def _render_arguments(call: ToolCall) -> str:
    if not isinstance(call.value, dict):
        return call.arguments
    arguments = {key: value for key, value in call.named.items() if value not in ("", None, [], {})}
    if len(arguments) == 1:
        (value,) = arguments.values()
        texts = [text for text in iterate_strings(value) if text.strip()]
        return " ".join(texts[:4]) or render_value(value)
    pairs = list(arguments.items())[:ARGUMENTS_MAX]
    return ", ".join(f"{key}: {cut_first_line(render_value(value), ARGUMENT_CHARACTERS)}" for key, value in pairs)


def _shorten_path(path: str) -> str:
    if len(path) <= LABEL_CHARACTERS:
        return path
    end = path[1 - LABEL_CHARACTERS :]
    if "/" in end:
        end = end[end.find("/") :]
    return f"{GAP}{end}"


def _shorten_middle(text: str) -> str:
    """The text in one line, cut in its middle between words: half of a secret is recognised by no rule."""
    line = " ".join(text[: 40 * LABEL_CHARACTERS].split())
    if len(line) <= LABEL_CHARACTERS:
        return line
    head, tail = line[: LABEL_CHARACTERS * 2 // 3 - 2], line[2 - LABEL_CHARACTERS // 3 :]
    if line[len(head)] != " ":
        head = head.rstrip(WORD_CHARACTERS)
    if line[-len(tail) - 1] != " ":
        tail = tail.lstrip(WORD_CHARACTERS)
    return " ".join(filter(None, (head.rstrip(), GAP, tail.lstrip())))


TEMPLATE = (
    "[Shortened by the context proxy: {tool}({argument}), {rows}, {bytes} bytes{outcome}. {left_out}{way_back}]{lines}"
)
OBSERVATION_TEMPLATE = (
    "Observation: [shortened by the context proxy: {rows}, {bytes} bytes{outcome}. {left_out}{way_back}]{lines}"
)
CHANGED_SINCE = "the file was changed since"
_FIELD = re.compile(r"\{(\w+)\}")
BEGINNING_CHARACTERS = 24
"""A beginning that lines have in common is written once if it is as long as this."""
ATTACHMENT_NAMES = {"image": "image", "screenshot": "image", "audio": "recording", "file": "file", "document": "file"}
"""By a word that the types of such parts have in common in all APIs."""


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
    """Fill in the template. `handle` recalls the text; with `attachments` a text up to *over* stays; `is_outdated`: the
    file was changed since.
    """
    outcome = outcome or find_outcome(text, call)
    verdict = " ".join(outcome.render().split()).rstrip(".")
    if is_outdated:
        verdict = f"{verdict}, {CHANGED_SINCE}" if verdict else CHANGED_SINCE
    rows, size = _measure(text, call, attachments)
    lines, left_out = "", ""
    if size and attachments and len(text) <= over:
        lines = text
    elif size:
        lines = join_lines(outcome.lines, outcome.omitted_errors)
        left_out = _describe_left_out(text, outcome.lines)
    values = {
        "tool": call.name if call else "tool",
        "argument": choose_argument(call),
        "bytes": f"{size:,}",
        "rows": rows,
        "outcome": f", {verdict}" if verdict else "",
        "status": outcome.status,
        "first": cut_first_line(text, 120),
        "left_out": f"{left_out} " if left_out else "",
        "way_back": _render_way_back(
            call, handle if text else "", size, is_text=not attachments, is_outdated=is_outdated
        ),
        "lines": f"\n{lines}" if lines else "",
    }
    rendered = _FIELD.sub(lambda field: values.get(field[1], field[0]), template)
    if handle and "{way_back}" not in template:
        rendered += f" [Call {handle} for the full text.]"
    return rendered


def describe_length(text: str) -> str:
    number = text.count("\n") + 1
    return f"{number:,} lines" if number > 1 else "1 line"


def describe_attachments(kinds: Sequence[str]) -> str:
    """Parts of these types in words: `2 images and 1 file`."""
    counts = Counter[str]()
    for kind in kinds:
        counts[next((name for mark, name in ATTACHMENT_NAMES.items() if mark in kind), "other part")] += 1
    return " and ".join(f"{number} {name}{'s' if number > 1 else ''}" for name, number in counts.items())


def _measure(text: str, call: ToolCall | None, attachments: Sequence[tuple[str, int]]) -> tuple[str, int]:
    if not attachments and has_no_output(text, call):
        return "no output", 0
    rows = [describe_length(text)] if text or not attachments else []
    if attachments:
        rows.append(describe_attachments([kind for kind, _ in attachments]))
    return " and ".join(rows), len(text.encode("utf-8", "surrogatepass")) + sum(size for _, size in attachments)


def has_no_output(text: str, call: ToolCall | None) -> bool:
    if call is None or find_kind(call.name, call.named) != "run":
        return False
    output = read_output(text)
    return output.is_framed and not (output.text or output.members or output.data)


def join_lines(lines: Sequence[str], omitted: int = 0) -> str:
    """The lines, one below the other; a beginning that one has in common with a line above it is written once."""
    joined, first = list[str](), ""
    for line in lines:
        beginning = _find_common_beginning(first, line)
        if BEGINNING_CHARACTERS <= len(beginning) < len(line):
            joined.append(f"{GAP} {line[len(beginning) :]}")
        else:
            joined.append(line)
            first = line
    if omitted:
        joined.append(f"{GAP} {omitted:,} more lines tell of errors")
    return "\n".join(joined)


def _find_common_beginning(one: str, other: str) -> str:
    end = 0
    for end, (left, right) in enumerate(zip(one, other, strict=False)):  # noqa: B007 - the place of the difference
        if left != right:
            break
    else:
        end = min(len(one), len(other))
    return one[: one.rfind(" ", 0, end) + 1]


def _describe_left_out(text: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    listed = {line.strip() for line in lines}
    others = [line for line in text.split("\n") if line.strip() and line.strip() not in listed]
    if not others:
        return ""
    if len(others) == 1:
        return "Left out: 1 line."
    return f"Left out: {len(others):,} other lines."


def _render_way_back(call: ToolCall | None, handle: str, size: int, *, is_text: bool, is_outdated: bool) -> str:
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


def _has_kind(call: ToolCall, *kinds: str) -> bool:
    return find_kind(call.name, call.named) in kinds


WAYS_BACK: tuple[tuple[Callable[[ToolCall], bool], str], ...] = (
    (lambda call: _has_kind(call, "change", "patch"), "Read the file for its current text."),
    # A sub-agent would start its work again, and a process prints only new output.
    (
        lambda call: _has_kind(call, "agent", "wait", "plan", "ask") or is_plan_mode(call),
        "Calling the tool again may not return this text.",
    ),
    (
        lambda call: matches_any(
            call.name,
            ("*browser*state*", "*browser*snapshot*", "*screenshot*", "*get_state", "computer", "*page_content*"),
        ),
        "A new call shows how it looks then, and not this.",
    ),
    (acts_on_world, "Do not make this call again to see it: that would do it again."),
    (
        lambda call: _has_kind(call, "read") or is_read_only(call.name) or is_file_text(call),
        "Call the tool again for {whole}.",
    ),
    (lambda call: _has_kind(call, "run"), "Only a new run returns {whole}."),
    (lambda _: True, "Calling the tool again would do it again."),
)


WRAPPED_CHARACTERS = 200
WRAPPED_TEXTS_MAX, WRAPPED_MEAN_CHARACTERS = 3, 1_000
"""Up to this many texts within JSON are each shortened in their place; more of them only if their mean is this long."""


def replace_output(message: Message, render: Callable[[str], str]) -> str:
    """The text of a message with its output changed; of an answer that is what its client put behind it."""
    text = message.text
    start = find_output_within(text) if message.role == "assistant" else 0
    return text[:start] + render(text[start:])


def shorten_output(message: Message, shorten: Callable[[str], str]) -> str:
    """The text of a message with its output shortened; of JSON around a long text, that text in its place."""
    if message.role != "assistant" and message.list_attachments():
        return shorten(message.text)
    return replace_output(message, lambda output: shorten_text(output, shorten))


def shorten_text(text: str, shorten: Callable[[str], str]) -> str:
    value = parse_json(text)
    wrapped = [inner for inner in iterate_strings(value) if len(inner) > WRAPPED_CHARACTERS]
    characters = sum(map(len, wrapped))
    if not wrapped or characters < 0.5 * len(text):
        return shorten(text)
    if len(wrapped) > WRAPPED_TEXTS_MAX and characters <= WRAPPED_MEAN_CHARACTERS * len(wrapped):
        return shorten(text)

    def change(inner: str) -> str:
        return min(inner, shorten(inner), key=len) if len(inner) > WRAPPED_CHARACTERS else inner

    return json.dumps(replace_texts(value, change), ensure_ascii=False)


def replace_texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [replace_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: replace_texts(item, change) for key, item in value.items()}
    return value
