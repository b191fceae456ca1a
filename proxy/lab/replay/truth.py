r"""What is in the last view: messages of people and pins, instruction documents, and how calls ended.

docs/replay-your-sessions.md defines the figures. Labels of outcomes come from what harnesses record and programs print,
never from the product's own reading (`shorten.outcome`). A failure is *told* if the placeholder's own sentence says so,
or if the label's evidence stands in it word for word:

    [Shortened by the context proxy: Bash(make), 90 lines, failed: exit code 2. ...]         told
    [Shortened by the context proxy: Bash(make), 90 lines. ...]\nmake: *** [all] Error 2     not told: exit code 2
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import Literal

from msgspec import Struct

from proxy.history.grouping import list_callers
from proxy.history.messages import HEAD, Message
from proxy.history.pins import Pins
from proxy.lab.replay.replay_values import Recall
from proxy.tools.command_line import find_command_line, read_commands
from proxy.tools.tool_call import ToolCall
from proxy.tools.tool_kinds import find_kind, matches_any


def measure_recall(messages: Sequence[Message], view: Sequence[Message], pins: Pins) -> dict[str, Recall]:
    """`messages`: of the last request, the head included."""
    body = tuple(dropwhile(lambda message: message.role in HEAD, messages))
    user_texts = [message.text for message in body if message.is_user]
    instructions = [message.text for message in body if message.role in HEAD]
    view_text = "\n".join(message.text for message in view)
    return {
        "user messages": _count_present(user_texts, view_text),
        "pins": _count_present([*instructions, *pins.passages(body)], view_text),
    }


def _count_present(things: Iterable[str], view_text: str) -> Recall:
    texts = [thing for thing in dict.fromkeys(things) if thing.strip()]
    return Recall(len(texts), sum(thing in view_text for thing in texts))


PATHS = re.compile(
    r"(?:^|[/\s\"'])(?:SKILL\.md|AGENTS(?:\.override)?\.md|CLAUDE(?:\.local)?\.md|GEMINI\.md|\.cursorrules"
    r"|copilot-instructions\.md|(?:[^\s\"']*/)?(?:skills|memory|rules)/[^\s\"']*\.(?:md|mdc|txt))(?=$|[\s\"'),;|&])"
)
_READING_COMMAND = re.compile(r"(?:^|&&|;|\|\|)\s*(?:cat|sed -n|head|tail|less|bat|nl)\b([^|;&\n]*)")
_SKILL = re.compile(r"\A\s*---\nname: [^\n]+\ndescription: ")
_SKILL_TOOLS = ("*skill*",)
_LEAST_CHARACTERS = 200
"""Shorter results say that a skill was started, or that a file is missing."""


def find_documents(messages: Sequence[Message]) -> list[Message]:
    callers = list_callers(messages)
    return [message for message, call in zip(messages, callers, strict=True) if _is_document(message, call)]


def _is_document(message: Message, call: ToolCall | None) -> bool:
    if call is None or not message.is_bulk:
        return False
    text = message.text
    return len(text) >= _LEAST_CHARACTERS and (_reads_document(call) or _SKILL.match(text) is not None)


def _reads_document(call: ToolCall) -> bool:
    if matches_any(call.name, _SKILL_TOOLS):
        return True
    kind = find_kind(call.name, call.named)
    if kind == "read":
        return any(PATHS.search(value) for value in call.named.values() if isinstance(value, str))
    if kind == "run":
        return any(PATHS.search(words) for words in _READING_COMMAND.findall(find_command_line(call.named)))
    return False


def is_whole(document: Message, view: Sequence[Message]) -> bool:
    text = document.text
    return any(message.raw == document.raw or text in message.text for message in view if message.is_bulk)


Aspect = Literal["failures told", "alarms true", "conflicts kept", "end states kept"]
ASPECTS: tuple[Aspect, ...] = ("failures told", "alarms true", "conflicts kept", "end states kept")

_EXIT = re.compile(
    r"\AExit code:? (-?\d+)\b|^Process exited with code (-?\d+)$|^\[The command completed with exit code (-?\d+)\.\]"
    r"|^Command exited with code (-?\d+)\s*\Z|\A\{.*\"exit_code\": ?(-?\d+)",
    re.MULTILINE | re.DOTALL,
)
_FRAME_CHARACTERS = 500
"""Harnesses write exit codes within this many characters of either end."""
_REFUSED = re.compile(r"\A(?:<tool_use_error>|Error: |Error executing )")
_IS_ERROR = re.compile(rb'"is_error": ?true')
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b")
_HARNESS_LINE = re.compile(r"\[[A-Z][^\n]*\]")
_CONFLICT = re.compile(r"^CONFLICT \([^\n]*", re.MULTILINE)
_MERGE_FAILED = "Automatic merge failed"
_SHARED_EXIT = re.compile(r"\|\||[|;\n]|(?<!&)&(?!&)")
_DISPLACEMENT = re.compile(r"\d?>&\d")

END_STATES = (
    re.compile(r"\b\d+ passed\b"),  # pytest: "=== 229 passed in 4.21s ==="
    re.compile(r"^Tests: .*\b\d+ passed, \d+ total", re.MULTILINE),  # Jest
    re.compile(r"^ *\d+ pass$", re.MULTILINE),  # Bun
    re.compile(r"^ok +\t?\S+(?=\t| )", re.MULTILINE),  # Go: "ok  	example.com/cli/strategy	0.31s"
    re.compile(r"^Ran \d+ tests? in\b", re.MULTILINE),  # unittest
    re.compile(r"^test result: ok\. \d+ passed", re.MULTILINE),  # Cargo
    re.compile(r"(?<=[ )])[0-9a-f]{7,40}(?=\] )"),  # git commit: "[main 1f2e3d4] Add a field"
    re.compile(r"\b[0-9a-f]{7,40}\.\.\.?[0-9a-f]{7,40}(?= +\S+ -> )"),  # git push
    re.compile(r"^https://github\.com/\S+/(?:pull|issues)/\d+$", re.MULTILINE),  # gh pr create
    re.compile(r"^Successfully (?:installed|built|rebased)\b[^\n]{0,60}", re.MULTILINE),  # pip, git rebase
    re.compile(r"^added \d+ packages", re.MULTILINE),  # npm
    re.compile(r"\bBUILD SUCCESS\w*"),  # Maven, Gradle
    re.compile(r"^(?:0 issues|All checks passed!|Success: no issues found)", re.MULTILINE),  # linters, mypy
)
_END_CHARACTERS = 1_500

READING_PROGRAMS = re.compile(
    r"\s*(?:cd|cat|head|tail|sed -n|awk|nl|less|grep|rg|egrep|ag|find|ls|tree|wc|sort|uniq|cut|echo|jq|true|xargs grep"
    r"|git (?:--no-pager )?(?:-C \S+ )?(?:diff|log|show|grep|blame|status)|go doc|gh (?:pr|issue) (?:view|diff|list))\b"
)
READING_TOOLS = ("*grep*", "*glob*", "*search*", "*find*", "ls", "list*", "webfetch")

_SOME_FAILED = re.compile(r"\bFAIL(?:ED)?\b")
_SENTENCE = re.compile(r"\[[^\n\[]{0,40}context proxy: (.*?)(?:\](?=[\\\n\"]|\Z)|\n|\Z)")
_SAYS_WORKED = re.compile(r"(?i)\bexit code 0\b")
_CALL_END = re.compile(r"\), [\d,]+ (?:lines?|bytes|characters)\b")
_SAYS_FAILED = re.compile(
    r"(?i)(?<!\b0 )(?<!\bno )\b(?:fail(?:ed|s|ures?)?|errors?)\b|\bexit(?:ed with)? code -?[1-9]|\bconflicts?\b"
)


class Finding(Struct, frozen=True):
    aspect: Aspect
    is_good: bool
    evidence: str
    original: str
    shortened: str
    call: ToolCall | None = None


def judge_outcomes(messages: Sequence[Message], view: Sequence[Message]) -> Iterator[Finding]:
    """Judge each result that is shortened in this view."""
    placeholders = {
        (candidate.start, candidate.answers): candidate for candidate in view if candidate.made and candidate.is_bulk
    }
    callers = list_callers(messages)
    harness_marks_failures = any(_reads_exit(candidate.text) for candidate in messages if candidate.is_bulk)
    for message, call in zip(messages, callers, strict=True):
        if not message.is_bulk:
            continue
        placeholder = placeholders.get((message.start, message.answers))
        if placeholder is not None and placeholder.made != "dedup_arrivals":
            yield from _judge(message, call, placeholder.text, harness_marks_failures=harness_marks_failures)


def _judge(
    message: Message, call: ToolCall | None, shown_text: str, *, harness_marks_failures: bool
) -> Iterator[Finding]:
    text = message.text
    evidence = find_failure(message, call)
    says_failed = reads_as_failed(shown_text)
    if evidence:
        is_told = says_failed or any(piece.lower() in shown_text.lower() for piece in evidence)
        yield Finding("failures told", is_told, evidence[0], text, shown_text, call)
        for line in evidence if evidence[0].startswith("CONFLICT (") else ():
            yield Finding("conflicts kept", line.rpartition(" ")[2] in shown_text, line, text, shown_text, call)
    elif call is not None:
        states = _find_end_states(text) if _is_command(call) else ()
        if states:
            is_kept = any(state in shown_text for state in states)
            yield Finding("end states kept", is_kept, states[-1], text, shown_text, call)
    if says_failed:
        is_false = (
            not evidence and call is not None and _has_worked(text, call, harness_marks_failures=harness_marks_failures)
        )
        yield Finding("alarms true", not is_false, evidence[0] if evidence else "", text, shown_text, call)


def reads_as_failed(placeholder: str) -> bool:
    """Does the proxy's own sentence say, after the call, that it failed?"""
    match = _SENTENCE.search(placeholder)
    sentence = match[1] if match else placeholder.split("\n", 1)[0]
    call_ends = [call_end.end() for call_end in _CALL_END.finditer(sentence)]
    behind_call = sentence[call_ends[0] if call_ends else 0 :]
    return _SAYS_FAILED.search(behind_call) is not None and _SAYS_WORKED.search(behind_call) is None


def find_failure(message: Message, call: ToolCall | None) -> list[str]:
    """Return the texts that prove a failure, the plainest first."""
    text = message.text
    conflicts = _CONFLICT.findall(text)
    if conflicts and _MERGE_FAILED in text:
        return conflicts
    code = _reads_exit(text)
    if code is not None:
        return [f"exit code {code}", f"exited with code {code}"] if code > 0 else []
    if call is not None and find_kind(call.name, call.named) == "read":
        return []
    if _REFUSED.match(text) or _IS_ERROR.search(message.raw):
        return [text.split("\n", 1)[0][:80]]
    if _TRACEBACK in text and (call is None or _is_command(call)):
        lines = [line for line in text.split("\n") if line.strip() and not _HARNESS_LINE.match(line)]
        if lines and _RAISED.match(lines[-1]):
            return [lines[-1][:80]]
    return []


def _reads_exit(text: str) -> int | None:
    """Read the exit code that a harness has written into a result."""
    ends = text
    if len(text) > 2 * _FRAME_CHARACTERS:
        ends = text[:_FRAME_CHARACTERS] + "\n" + text[-_FRAME_CHARACTERS:]
    match = _EXIT.search(ends)
    if match is None:
        return None
    return int(next(filter(None, match.groups())))


def _has_worked(text: str, call: ToolCall, *, harness_marks_failures: bool) -> bool:
    if not _is_command(call):
        return find_kind(call.name, call.named) == "read" or matches_any(call.name, READING_TOOLS)
    commands = read_commands(find_command_line(call.named))
    if all(READING_PROGRAMS.match(" ".join(command.words)) for command in commands):
        return True
    if _SHARED_EXIT.search(_DISPLACEMENT.sub("", find_command_line(call.named))):
        return False
    code = _reads_exit(text)
    return code == 0 or (code is None and harness_marks_failures)


def _is_command(call: ToolCall) -> bool:
    return find_kind(call.name, call.named) == "run"


def _find_end_states(text: str) -> list[str]:
    """Return the matches of the pattern that matches last."""
    end = text[-_END_CHARACTERS:]
    if _SOME_FAILED.search(end):
        return []
    pattern_matches = [matches for pattern in END_STATES if (matches := list(pattern.finditer(end)))]
    if not pattern_matches:
        return []
    last = max(pattern_matches, key=lambda matches: matches[-1].end())
    return [match[0].strip() for match in last]
