"""Labels of calls, by which a model finds them again: `Grep(TODO in proxy/wire)`, `Bash(go test ./...)`."""

from proxy.history.agents import (
    COMMANDS,
    PATHS,
    find_command_line,
    find_kind,
    find_requested_lines,
    find_value,
    is_read,
    remove_folder_change,
    render_value,
)
from proxy.history.calls import iterate_strings
from proxy.history.messages import ToolCall
from proxy.shorten.outcome import WORD_CHARACTERS, cut_first_line
from proxy.shorten.touched_files import PATCH, list_patched_files

GAP = "…"
LABEL_CHARACTERS = 100
PATTERNS = ("pattern", "query", "regex", "search_term", "glob", "url")
AGENT_NAMES = ("description", "name", "prompt")
ENDS = ("source", "destination")
PATH_SIGNS = frozenset("/\\.~")
ARGUMENTS_MAX, ARGUMENT_CHARACTERS = 6, 60


def render_call(call: ToolCall) -> str:
    """The label of a call."""
    return f"{call.name}({choose_argument(call)})"


def name_result(call: ToolCall | None) -> str:
    """The result of a call, by its label; of a part of a file, by its lines too."""
    if call is None:
        return "an earlier result"
    name = f"the result of {render_call(call)}"
    lines = find_requested_lines(call.named) if is_read(call) else None
    return f"{name} for lines {lines[0]}-{lines[1] or 'end'}" if lines else name


def choose_argument(call: ToolCall | None) -> str:
    """The argument a person would name the call by; of a search the pattern and the path, of a patch its files; of
    other calls all arguments, `order: 1042, amount_cents: 4999`.
    """
    if call is None:
        return ""
    arguments = call.named
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value.strip()}
    # Of a journey, too, an argument may be named `destination`.
    files = {key: value for key, value in texts.items() if key not in ENDS or not PATH_SIGNS.isdisjoint(value)}
    path, pattern = find_value(files, PATHS), find_value(texts, PATTERNS)
    if path:
        return f"{_shorten_middle(pattern)} in {_shorten_path(path)}" if pattern else _shorten_path(path)
    if any(arguments.get(key) == "" for key in COMMANDS):
        return ""
    label = pattern
    if not label and any(isinstance(arguments.get(key), list) for key in COMMANDS):
        label = find_command_line(arguments)
    label = label or find_value(texts, (*COMMANDS, "code"))
    if not label and find_kind(call.name, arguments) == "agent":
        label = find_value(texts, AGENT_NAMES)
    label = label or _render_arguments(call)
    if PATCH in label:
        label = ", ".join(use.path for use in list_patched_files(label)) or label
    return _shorten_middle(remove_folder_change(label))


def _render_arguments(call: ToolCall) -> str:
    """All arguments with their names; a single one without."""
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
    """The path, cut between folders at its beginning, which paths of one project have in common."""
    if len(path) <= LABEL_CHARACTERS:
        return path
    end = path[1 - LABEL_CHARACTERS :]
    if "/" in end:
        end = end[end.find("/") :]
    return f"{GAP}{end}"


def _shorten_middle(text: str) -> str:
    """The text in one line, cut in its middle: commands are alike at their beginning or at their end.

    No word is cut: half of a secret is recognised by no rule.
    """
    line = " ".join(text[: 40 * LABEL_CHARACTERS].split())
    if len(line) <= LABEL_CHARACTERS:
        return line
    head, tail = line[: LABEL_CHARACTERS * 2 // 3 - 2], line[2 - LABEL_CHARACTERS // 3 :]
    if line[len(head)] != " ":
        head = head.rstrip(WORD_CHARACTERS)
    if line[-len(tail) - 1] != " ":
        tail = tail.lstrip(WORD_CHARACTERS)
    return " ".join(filter(None, (head.rstrip(), GAP, tail.lstrip())))
