"""Labels of calls, and placeholders: the text that a model reads instead of an old result.

    [Shortened by the context proxy: Bash(make all), 42 lines, 976 bytes, exit code 2: Error: no rule. Left out: 39
    other lines. Only a new run shows it, as it is then.]
    Error: no rule

A template may use `{tool} {argument} {rows} {bytes} {outcome} {status} {first} {left_out} {way_back} {lines}`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any

from proxy.history.messages import Message, iterate_strings
from proxy.history.observations import find_output_within
from proxy.shorten.outcome import (
    LINE_CHARACTERS,
    WORD_CHARACTERS,
    ResultOutcome,
    cut_end,
    cut_first_line,
    find_failure_lines,
)
from proxy.shorten.output import parse_json, read_output
from proxy.tools.command_line import find_command_line, remove_folder_change
from proxy.tools.file_uses import PATCH, acts_on_world, is_file_text, list_patched_files
from proxy.tools.tool_call import (
    COMMANDS,
    PATHS,
    Kind,
    ToolCall,
    find_kind,
    find_requested_lines,
    find_value,
    is_read,
    is_read_only,
    matches_any,
    render_value,
)

GAP = "…"
LABEL_CHARACTERS = 100


def render_call(call: ToolCall) -> str:
    return f"{call.name}({choose_argument(call)})"


def name_result(call: ToolCall | None) -> str:
    if call is None:
        return "an earlier result"
    return f"the result of {render_call_with_lines(call)}"


def render_call_with_lines(call: ToolCall) -> str:
    """`Read(a.py) for lines 10-20` if the call asks for a part of a file."""
    lines = find_requested_lines(call.named) if is_read(call) else None
    if lines is None:
        return render_call(call)
    return f"{render_call(call)} for lines {lines[0]}-{lines[1] or 'end'}"


def choose_argument(call: ToolCall | None) -> str:
    """Return the argument that names the call best, else all of them: `order: 1042, amount_cents: 4999`."""
    if call is None:
        return ""
    arguments = call.named
    texts = _list_texts(arguments)
    pattern = find_value(texts, ("pattern", "query", "regex", "search_term", "glob", "url"))
    scopes = []
    path = find_value(texts, PATHS)
    if path:
        scopes.append(_shorten_path(path))
    glob = find_value(texts, ("glob", "include"))
    if pattern and glob and glob != pattern:
        scopes.append(_shorten_middle(glob))
    if scopes:
        if pattern:
            return f"{_shorten_middle(pattern)} in {', '.join(scopes)}"
        return scopes[0]
    if "" in map(arguments.get, COMMANDS):
        return ""
    label = pattern
    if not label and isinstance(find_value(arguments, COMMANDS), list):
        label = find_command_line(arguments)
    label = label or find_value(texts, (*COMMANDS, "code"))
    if not label and find_kind(call) == "agent":
        label = find_value(texts, ("description", "name", "prompt"))
    label = label or _render_arguments(call)
    if PATCH in label:
        label = ", ".join(map(attrgetter("path"), list_patched_files(label))) or label
    return _shorten_middle(remove_folder_change(label))


def _list_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    texts = dict[str, str]()
    for name, value in arguments.items():
        if isinstance(value, str) and value.strip():
            # A tool that books journeys may have a `destination`, too, which is no path.
            is_place = name in ("source", "destination") and set("/\\.~").isdisjoint(value)
            if not is_place:
                texts[name] = value
    return texts


def _render_arguments(call: ToolCall) -> str:
    if not isinstance(call.value, dict):
        return call.arguments
    arguments = {key: value for key, value in call.named.items() if value not in ("", None, [], {})}
    if len(arguments) == 1:
        (value,) = arguments.values()
        texts = filter(str.strip, iterate_strings(value))
        return " ".join(islice(texts, 4)) or render_value(value)
    pairs: list[str] = []
    for key, value in arguments.items():
        pair = f"{key}: {cut_first_line(render_value(value), 60)}"
        if pairs and len(", ".join([*pairs, pair])) > LABEL_CHARACTERS - len(GAP):
            pairs.append(GAP)
            break
        pairs.append(pair)
    return ", ".join(pairs)


def _shorten_path(path: str) -> str:
    path = " ".join(path.splitlines())  # the name of a file may hold line breaks
    if len(path) <= LABEL_CHARACTERS:
        return path
    end = path[1 - LABEL_CHARACTERS :]
    return f"{GAP}{end[max(0, end.find('/')) :]}"


def _shorten_middle(text: str) -> str:
    """Write a text in one line, cut in its middle between words: no rule of redaction recognizes half of a secret."""
    line = " ".join(text[: 40 * LABEL_CHARACTERS].split())
    if len(line) <= LABEL_CHARACTERS:
        return line
    head, tail = line[: LABEL_CHARACTERS * 2 // 3 - 2], line[2 - LABEL_CHARACTERS // 3 :]
    if line[len(head)] != " ":
        head = head.rstrip(WORD_CHARACTERS)
    if line[-len(tail) - 1] != " ":
        tail = tail.lstrip(WORD_CHARACTERS)
    return f"{head.rstrip()} {GAP} {tail.lstrip()}".strip()


TEMPLATE = (
    "[Shortened by the context proxy: {tool}({argument}), {rows}, {bytes} bytes{outcome}. {left_out}{way_back}]{lines}"
)


def render_placeholder(
    template: str,
    text: str,
    call: ToolCall | None,
    outcome: ResultOutcome,
    handle: str = "",
    *,
    attachments: Sequence[tuple[str, int]] = (),
    over: int = 0,
    is_outdated: bool = False,
) -> str:
    """Return the text that replaces a result. *handle* tells how to recall it.

    If the result holds *attachments*, a text of up to *over* characters stays.
    """
    verdicts = [outcome.render_in_line(), "the file was changed or deleted since" if is_outdated else ""]
    printed_text, rows, size = _measure(text, call, attachments)
    lines = left_out = ""
    if size and attachments and len(text) <= over:
        lines = text
    elif size:
        lines = join_lines(outcome.lines, outcome.omitted_errors)
        left_out = _describe_left_out(printed_text, outcome.lines)
    if not size:
        way_back = "Nothing was left out."
    elif handle and text:
        way_back = f"Call {handle} for the full text."
    else:
        way_back = _describe_new_call(call, outcome, is_text=not attachments)
    values = {
        "tool": call.name if call is not None else "tool",
        "argument": choose_argument(call),
        "bytes": f"{size:,}",
        "rows": rows,
        "outcome": ", ".join(("", *filter(None, verdicts))),
        "status": outcome.status,
        "first": cut_first_line(text, 120),
        "left_out": left_out,
        "way_back": way_back,
        "lines": f"\n{lines}" if lines else "",
    }
    # Other braces stay as they are.
    result = re.sub(r"\{([^{}]*)\}", lambda place: values.get(place[1], place[0]), template)
    if handle and "{way_back}" not in template:
        result += f" [Call {handle} for the full text.]"
    return result


def count_things(number: int, name: str) -> str:
    if number == 1:
        return f"1 {name}"
    return f"{number:,} {name}s"


def describe_length(text: str) -> str:
    return count_things(text.removesuffix("\n").count("\n") + 1, "line")


def _describe_attachments(text: str, attachments: Sequence[tuple[str, int]]) -> str:
    # The types of such parts differ by API (`image_url`, `input_image`), but hold the same word.
    names = {"image": "image", "screenshot": "image", "audio": "recording", "file": "file", "document": "file"}
    counts = Counter[str]()
    for kind, _ in attachments:
        counts[next((name for mark, name in names.items() if mark in kind), "other part")] += 1
    rows = [count_things(number, name) for name, number in counts.items()]
    if text:
        rows.insert(0, describe_length(text))
    return " and ".join(rows)


def _measure(text: str, call: ToolCall | None, attachments: Sequence[tuple[str, int]]) -> tuple[str, str, int]:
    """Return the text without JSON around it, its lines in words, and the bytes of all that goes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if attachments:
        return text, _describe_attachments(text, attachments), size + sum(map(itemgetter(1), attachments))
    output = read_output(text)
    is_command = call is not None and find_kind(call) == "run"
    has_run = output.shows_command or output.exit_codes != []
    if is_command and has_run and not output.text and not output.members:
        return text, "no output", 0
    if not output.is_json:
        return text, describe_length(text), size
    if output.members:  # data, and no output in JSON: its members are no lines of it
        return "", describe_length(text), size
    return output.text, describe_length(output.text or text), size


def join_lines(lines: Sequence[str], omitted_errors: int = 0) -> str:
    if not omitted_errors:
        return "\n".join(lines)
    return "\n".join([*lines, f"{GAP} {omitted_errors:,} more lines tell of errors"])


def _describe_left_out(text: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    texts = {"", *map(str.strip, lines)}
    number = sum(cut_end(line, LINE_CHARACTERS).strip() not in texts for line in text.split("\n"))
    if not number:
        return ""
    if number == 1:
        return "Left out: 1 line. "
    return f"Left out: {number:,} other lines. "


def _describe_new_call(call: ToolCall | None, outcome: ResultOutcome, *, is_text: bool) -> str:
    if call is None:  # it may have been an edit
        return "Doing the same again may not return this text."
    kind = find_kind(call)
    if kind in ("change", "patch"):
        return "Read the file for its current text."
    is_plan_mode = matches_any(call.name, ("*plan_mode", "*planmode", "plan_mode_respond"))
    if kind in ("agent", "wait", "plan", "ask") or is_plan_mode:
        # A sub-agent starts its work again, and a process prints only new output.
        return "Calling the tool again may not return this text."
    live_tools = ("*browser*state*", "*browser*snapshot*", "*screenshot*", "*get_state", "computer", "*page_content*")
    if matches_any(call.name, live_tools):
        return "A new call shows how it looks then, and not this."
    if acts_on_world(call):
        may_have_failed = outcome.status != "success" and find_failure_lines(outcome.lines)
        verb = "try" if outcome.has_failed or may_have_failed else "do"
        return f"Do not make this call again to see it: that would {verb} it again."
    return _describe_new_look(call, kind, is_text=is_text)


def _describe_new_look(call: ToolCall, kind: Kind, *, is_text: bool) -> str:
    if kind == "read" or is_file_text(call):
        # Not "the full text": commands change files in ways that cannot be read from them, such as `git checkout main`.
        return f"Call the tool again for its current {'text' if is_text else 'content'}."
    if is_read_only(call.name):
        return "Call the tool again for its current result."
    if kind == "run":
        return "Only a new run shows it, as it is then."
    return "Calling the tool again would do it again."


def replace_output(message: Message, render: Callable[[str], str]) -> str:
    """Return the text of a message with its output rendered. In an answer, a client has put output at the end only."""
    text = message.text
    start = find_output_within(text) if message.role == "assistant" else 0
    return text[:start] + render(text[start:])


def shorten_text(text: str, shorten: Callable[[str], str]) -> str:
    """Shorten a text; if it is JSON around a long text, only the text within it."""
    value, wrapped_characters = parse_json(text), 200
    sizes = [len(inner) for inner in iterate_strings(value) if len(inner) > wrapped_characters]
    # Up to three long texts are shortened in their place, more only if they are very long.
    are_few_or_long = not sizes[3:] or sum(sizes) > 1_000 * len(sizes)
    if not sizes or 2 * sum(sizes) < len(text) or not are_few_or_long:
        return shorten(text)

    def change(inner: str) -> str:
        if len(inner) <= wrapped_characters:
            return inner
        return min(inner, shorten(inner), key=len)

    return json.dumps(replace_texts(value, change), ensure_ascii=False)


def replace_texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [replace_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: replace_texts(item, change) for key, item in value.items()}
    return value
