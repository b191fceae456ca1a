r"""Facts about a recorded call that do not come from the product: how it ended, and what making it again would do.

The product's own reading is what the ruler judges (`sentence_verdicts`), so nothing here imports it. Harnesses write
exit codes and error flags, programs end with lines of their own, and a command line says whether it looks, works or
acts:

    Exit code 2\nmake: *** [all] Error 2          failed
    229 passed in 4.21s                            unknown, or worked if this harness marks failures
    git log --oneline | head                       looks
    pytest -q && git push                          acts
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from posixpath import basename
from typing import Literal

from msgspec import Struct

from proxy.history.messages import Message, iterate_strings
from proxy.tools.tool_call import ToolCall

Ending = Literal["failed", "worked", "unknown"]
Effect = Literal["looks", "works", "acts", "unknown"]

_EXIT = re.compile(
    r"\AExit code:? (-?\d+)\b|^Process exited with code (-?\d+)$|^\[The command completed with exit code (-?\d+)\.\]"
    r"|^Command exited with code (-?\d+)\s*\Z|\"exit_?code\": ?(-?\d+)|^<returncode>(-?\d+)</returncode>"
    r"|<exit_code>(-?\d+)</exit_code>|\bexit code:? (-?\d+)\b",
    re.MULTILINE | re.IGNORECASE,
)
_FRAME_CHARACTERS = 500
"""Harnesses write exit codes within this many characters of either end."""
_REFUSED = re.compile(
    r"\A(?:<tool_use_error>|Error: |Error (?:executing|performing) |Your proposed edit has introduced|Invalid `"
    r"|No replacement was performed|(?:File|Path) does not exist"
    r"|The user doesn't want to|\[?(?:Request|tool call) interrupted by (?:the )?user)"
)
"""First words of a harness that has not made a call, or of a tool that could not do its work."""
_IS_ERROR = re.compile(rb'"is_error": ?true')
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b")
_HARNESS_LINE = re.compile(r"\[[A-Z][^\n]*\]")
_CONFLICT = re.compile(r"^CONFLICT \(", re.MULTILINE)
_MERGE_FAILED = "Automatic merge failed"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_END_LINES = 15
_COMMAND_CHARACTERS = 6_000
_QUOTED_CHARACTERS = 1_000
"""A tool that looks says in fewer that it could not; a longer text is what it has read."""


class FailureLine(Struct, frozen=True):
    """How a program says, in a line of its own, that something failed."""

    program: str
    pattern: str
    example: str


FAILURE_LINES = (
    FailureLine("go test", r"(?:--- )?FAIL\b", "FAIL\texample.com/tides 0.1s"),
    FailureLine("pytest", r"(?:FAILED|ERROR) \S|=*.*\b[1-9]\d* (?:failed|errors?)\b", "FAILED tests/test_a.py::test_b"),
    FailureLine("Bun", r"\(fail\) |[1-9]\d* fail$", "(fail) berth > is charged once [0.5ms]"),
    FailureLine("Jest, Vitest", r"Tests?:? .*\b[1-9]\d* failed", "Tests: 1 failed, 9 passed, 10 total"),
    FailureLine("TypeScript", r".*error TS\d+:", "src/a.ts(1,2): error TS2322: Type 'a' is no 'b'."),
    FailureLine("linters", r"(?:\[\S+\] )?\S+:\d+:\d+:? ", "cmd/a.go:818:4: ineffectual assignment to x (ineffassign)"),
    FailureLine(
        "Biome", r"[\u00d7\u2716] |Found [1-9]\d* errors?", "\u00d7 Some errors were emitted while running checks."
    ),
    FailureLine("make", r"make(?:\[\d+\])?: \*\*\*", "make: *** [all] Error 2"),
    FailureLine("npm", r"npm (?:ERR!|error)", "npm ERR! missing script: tset"),
    FailureLine("Cargo", r"error(?:\[E\d+\])?: |test result: FAILED", "error[E0308]: mismatched types"),
    FailureLine("Python", rf"{re.escape(_TRACEBACK)}|[A-Za-z_][\w.]*(?:Error|Exception)\b", "ValueError: no berth"),
    FailureLine("git", r"(?:fatal|error): |CONFLICT \(|Automatic merge failed|! \[", "fatal: not a git repository"),
    FailureLine(
        "shells", r".*(?:command not found|No such file or directory|[Pp]ermission denied)", "x: command not found"
    ),
    FailureLine("zsh", r"\(eval\):\d+: ", "(eval):1: unknown file attribute: i"),
    FailureLine("GitHub Actions", r".*##\[error\]", "##[error]Process completed with exit code 1."),
    FailureLine("Maven, Gradle", r".*BUILD FAIL", "[INFO] BUILD FAILURE"),
    FailureLine(
        "any", r".*\bexit(?:ed)?(?: with)?(?: status| code)[ :]+[1-9]", 'error: script "lint" exited with code 1'
    ),
    FailureLine("any", r"\W{0,12}(?:error|failed|failure|panic|exception|abort(?:ed)?)\b", "Error: no such order"),
    FailureLine("any", r".*\b(?:failed|cannot|could not|unable to|not found|syntax error)\b", "1 test failed"),
)
_FAILURE_LINE = re.compile("|".join(f"(?:{line.pattern})" for line in FAILURE_LINES), re.IGNORECASE)


def _list_words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


class Program(Struct, frozen=True):
    """What the commands of a program do, by the words after its name and by options."""

    name: str
    looks: str = ""
    """Beginnings, divided by `|`. One that ends in `$` has nothing behind it."""
    acts: str = ""
    acting_option: str = ""
    working_option: str = ""
    otherwise: Effect = "unknown"
    examples: tuple[tuple[str, Effect], ...] = ()

    def find_effect(self, words: list[str]) -> Effect:
        named = f"{' '.join(words)} "
        if {"--help", "--dry-run"}.intersection(words):
            return "looks"
        if _begins(named, self.acts) or _has_option(words, self.acting_option):
            return "acts"
        if _begins(named, self.looks):
            return "looks"
        return "works" if _has_option(words, self.working_option) else self.otherwise


def _begins(named: str, beginnings: str) -> bool:
    for beginning in filter(None, beginnings.split("|")):
        if named.startswith(f"{beginning} ") or named == beginning.replace("$", " "):
            return True
    return False


def _has_option(words: list[str], option: str) -> bool:
    return option != "" and any(re.match(option, word) for word in words)


PROGRAMS = (
    Program(
        "git",
        "status|log|diff|show|blame|grep|ls-files|ls-tree|ls-remote|rev-parse|rev-list|describe|shortlog|reflog"
        "|cat-file|remote -v|remote$|branch$|branch -a|branch -v|branch --show-current|branch --list|stash list"
        "|stash show|tag$|tag -l|tag --list|worktree list|config --get|config --list|merge-base|name-rev|for-each-ref"
        "|check-ignore|diff-tree",
        "push|commit|merge|rebase|cherry-pick|revert|am|pull",
        otherwise="works",
        examples=(("git log --oneline -5 | cat", "looks"), ("git tag -l", "looks"), ("git -C /w push", "acts")),
    ),
    Program(
        "gh api",
        acting_option=r"-f|-F|--field|--raw-field|--input|-X(?!GET)|--method|POST|PATCH|PUT|DELETE",
        otherwise="looks",
        examples=(("gh api repos/a/b/pulls/1", "looks"), ("gh api repos/a/b/issues -f body=Fixed", "acts")),
    ),
    Program(
        "gh",
        "pr view|pr list|pr diff|pr checks|pr status|issue view|issue list|issue status|run view|run list|run watch"
        "|repo view|release view|release list|auth status|search|workflow list|workflow view|label list",
        "pr create|pr merge|pr close|pr comment|pr edit|pr review|pr ready|pr reopen|issue create|issue close"
        "|issue comment|issue edit|issue reopen|release create|release upload|run rerun|run cancel|workflow run"
        "|repo create|label create",
        examples=(("gh run view 7 --log-failed 2>&1 | tail -50", "looks"), ("gh pr create --title a", "acts")),
    ),
    Program(
        "kubectl",
        "get|describe|logs|top|version|explain",
        "apply|delete|create|patch|scale|replace|rollout restart|rollout undo",
        examples=(("kubectl get pods", "looks"), ("kubectl delete pod a", "acts")),
    ),
    Program(
        "terraform",
        "plan|show|output|validate|state list",
        "apply|destroy",
        examples=(("terraform plan", "looks"), ("terraform apply", "acts")),
    ),
    Program(
        "systemctl",
        "status|list-units|is-active|show",
        "start|stop|restart|reload|enable|disable",
        examples=(("systemctl status a", "looks"), ("sudo systemctl restart a", "acts")),
    ),
    Program(
        "docker",
        "ps|images|logs|inspect|version|info",
        "push",
        otherwise="works",
        examples=(("docker ps", "looks"), ("docker push a", "acts"), ("docker build .", "works")),
    ),
    Program("npm", "ls|list|view|outdated", "publish", otherwise="works", examples=(("npm publish", "acts"),)),
    Program("go", "doc|env|version|list", otherwise="works", examples=(("go doc io.Reader", "looks"),)),
    Program(
        "curl",
        acting_option=r"-d$|--data|-F$|--json|-T$|-X(?!GET)|--request|POST|PUT|PATCH|DELETE",
        otherwise="looks",
        examples=(("curl -s https://a.example", "looks"), ("curl -X POST https://a.example", "acts")),
    ),
    Program("sed", working_option="-i", otherwise="looks", examples=(("sed -n 1,9p a", "looks"),)),
    Program(
        "find",
        working_option="-delete|-exec|-ok",
        otherwise="looks",
        examples=(("find . -name a", "looks"), ("find . -delete", "works")),
    ),
)
LOOKING_PROGRAMS = _list_words(
    "cat head tail less more nl bat ls tree fd grep egrep fgrep rg ag wc sort uniq cut awk gawk jq yq tr column stat",
    "file which whereis type pwd echo printf cd env date whoami hostname uname ps df du diff cmp test [ true false xxd",
    "strings man sleep basename dirname realpath readlink md5sum shasum sha256sum id history :",
)
WORKING_PROGRAMS = _list_words(
    "make pytest tox mypy ruff black cargo npx bun bunx pnpm yarn node deno tsc python python3 pip pip3 uv poetry mise",
    "golangci-lint gofmt goimports staticcheck mkdir rm mv cp touch chmod ln tee perl tar unzip gcc cmake java mvn",
    "gradle apply_patch source export set sqlite3",
)
"""They change files, or build and test; doing it again does no harm outside."""
_WRAPPERS = _list_words("sudo time nohup env exec command xargs timeout then do else if while ! ( {")
_SHELLS = _list_words("bash sh zsh")
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1[^\n]*\n.*?\n\s*\2\b", re.DOTALL)
_WRITES = re.compile(r"(?<![\d&>])>{1,2}\s*(?!&|/dev/)")
LOOKING_WORDS = _list_words(
    "get list read find search show view describe fetch ls cat look lookup grep glob query retrieve load browse",
    "inspect explain open lsp calculate",
)
ACTING_WORDS = _list_words(
    "create update delete send book cancel exchange modify transfer return publish merge deploy approve charge refund",
    "post pay order push submit remove add set save",
)
WORKING_WORDS = _list_words("edit write replace insert")
_EDITORS = ("str_replace_editor", "str_replace_based_edit_tool", "file_editor")
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def find_command(call: ToolCall) -> str:
    """The command line of a call, empty if it has none; of `["bash", "-lc", SCRIPT]` the script."""
    if call.name in _EDITORS:
        return ""
    for name in ("command", "cmd", "commands", "script", "code"):
        value = call.named.get(name)
        if isinstance(value, list) and value:
            return str(value[-1]) if value[0] in _SHELLS else " ".join(map(str, value))
        if isinstance(value, str) and value:
            return value
    return ""


def list_exit_codes(text: str) -> list[int]:
    """The exit codes that stand near either end of a result."""
    ends = text
    if len(text) > 2 * _FRAME_CHARACTERS:
        ends = text[:_FRAME_CHARACTERS] + "\n" + text[-_FRAME_CHARACTERS:]
    return [int(next(filter(None, match.groups()))) for match in _EXIT.finditer(ends)]


def list_lines(text: str) -> list[str]:
    """The lines that are not blank, also those of texts in JSON, without the colours of terminals."""
    texts = [text]
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            texts = list(iterate_strings(json.loads(text)))
    lines = _ESCAPES.sub("", "\n".join(texts)).split("\n")
    return [line for line in map(str.strip, lines) if line]


def tells_failure(line: str) -> bool:
    return _FAILURE_LINE.match(line.strip()) is not None


def ends_with_failure(text: str) -> bool:
    return any(map(tells_failure, list_lines(text)[-_END_LINES:]))


def marks_failures(messages: Sequence[Message]) -> bool:
    """Whether the harness of this history writes down which calls fail: then a call without a mark has worked."""
    for message in messages:
        if message.is_bulk and (_IS_ERROR.search(message.raw) or list_exit_codes(message.text[:40])):
            return True
    return False


def find_ending(message: Message, call: ToolCall | None, *, is_marked: bool) -> Ending:
    """How a call ended, if its harness or the last line of its program says so without doubt."""
    text = message.text
    is_looking = call is not None and find_effect(call) == "looks"
    has_command = call is None or find_command(call) != ""
    codes = set(list_exit_codes(text)) if has_command else set()
    if _is_refused(message, is_looking=is_looking) or (not is_looking and _is_conflict(text)):
        return "failed"
    if is_looking and codes == {1}:  # nothing was found, or there is a difference
        return "unknown"
    if codes:
        return _read_codes(codes)
    if call is None or is_looking:
        return "worked" if is_looking and is_marked else "unknown"
    if has_command and _ends_with_traceback(text):
        return "failed"
    return "worked" if is_marked and not ends_with_failure(text) else "unknown"


def _read_codes(codes: set[int]) -> Ending:
    if len(codes) > 1 or min(codes) < 0:
        return "unknown"
    return "failed" if max(codes) else "worked"


def _is_conflict(text: str) -> bool:
    return _CONFLICT.search(text) is not None and _MERGE_FAILED in text


def _is_refused(message: Message, *, is_looking: bool) -> bool:
    """Whether a harness marks the call as failed, or its first words say that it was not made."""
    if _IS_ERROR.search(message.raw):
        return True
    text = message.text
    return _REFUSED.match(text) is not None and not (is_looking and len(text) > _QUOTED_CHARACTERS)


def _ends_with_traceback(text: str) -> bool:
    lines = [line for line in list_lines(text) if not _HARNESS_LINE.match(line)]
    return _TRACEBACK in text and bool(lines) and _RAISED.match(lines[-1]) is not None


def find_effect(call: ToolCall) -> Effect:
    """What making this call again would do, judged by its command line or the words of its name."""
    command = find_command(call)
    if command:
        return _find_command_effect(command)
    if call.name in _EDITORS:
        return "looks" if call.named.get("command") == "view" else "works"
    words = [word.lower() for word in _NAME_WORD.findall(re.split(r"__|[./:]", call.name)[-1])]
    if not LOOKING_WORDS.isdisjoint(words[:1]) or not {"search", "fetch", "docs"}.isdisjoint(words[-1:]):
        return "looks"
    if not WORKING_WORDS.isdisjoint(words):
        return "works"
    return "unknown" if ACTING_WORDS.isdisjoint(words[:1]) else "acts"


def _find_command_effect(command: str) -> Effect:
    """The strongest effect of the simple commands in a line; unknown if one of them is."""
    effects = set(map(_find_simple_effect, split_commands(command)))
    strongest: tuple[Effect, ...] = ("acts", "unknown", "works")
    for effect in strongest:
        if effect in effects:
            return effect
    if not effects:
        return "unknown"
    return "works" if _WRITES.search(_HEREDOC.sub("", command)) else "looks"


def split_commands(command: str) -> Iterator[list[str]]:
    """The words of each simple command; a single `?` of a line that a shell would not read."""
    text = _HEREDOC.sub("", command[:_COMMAND_CHARACTERS]).replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if set(word) <= set(";|&()"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)
    except ValueError:
        words = ["?"]
    if words:
        yield words


def _find_simple_effect(words: list[str]) -> Effect:
    while words and (words[0] in _WRAPPERS or "=" in words[0] or words[0].isdecimal()):
        words = words[1:]
    if not words:
        return "looks"
    name, rest = basename(words[0]), words[1:]
    if name in _SHELLS and rest[:1] in (["-c"], ["-lc"]):
        return _find_command_effect(" ".join(rest[1:2]))
    while name == "git" and rest[:1] in (["-C"], ["-c"], ["--no-pager"]):
        rest = rest[1 if rest[0] == "--no-pager" else 2 :]
    for program in PROGRAMS:
        if program.name in (name, f"{name} {' '.join(rest[:1])}"):
            return program.find_effect(rest)
    if name in LOOKING_PROGRAMS:
        return "looks"
    return "works" if name in WORKING_PROGRAMS else "unknown"


class Change(Struct, frozen=True):
    """How a file can come to be in the state that a ledger names, by tool and by command."""

    words: str
    tools: str
    commands: str
    example: str


CHANGES = (
    Change(
        "edited",
        r"edit|replace|patch|insert|update|write",
        r"\*\*\* Update File|apply_patch",
        "apply_patch <<'E'\n*** Update File: a.py\nE",
    ),
    Change("written", r"write|create|save|edit", r">|\btee\b|\*\*\* Add File", "echo a > a.py"),
    Change("added to", r"append|insert|edit|write", r">>", "echo a >> a.py"),
    Change("deleted", r"delete|remove", r"\brm\b|\bunlink\b|\*\*\* Delete File", "git rm a.py"),
    Change("moved here", r"move|rename", r"\bmv\b|\*\*\* Move to", "mv b.py a.py"),
    Change("moved away", "-", r"\bmv\b", "mv a.py b.py"),
    Change("moved", r"move|rename", r"\bmv\b|\*\*\* Move to", "mv a.py b.py"),
    Change("copied", r"copy", r"\bcp\b", "cp b.py a.py"),
    Change("edited if anything matched", "-", r"\bsed\b.*-i|\bperl\b.*-p?i", "sed -i s/a/b/ a.py"),
    Change("made if it was not there", "-", r"\btouch\b", "touch a.py"),
    Change("restored if it differed", r"undo|restore", r"\bgit\b.*\b(?:restore|checkout)\b", "git checkout -- a.py"),
    Change("made", r"create|make", r"\bmkdir\b|\bgit (?:init|clone)\b", "mkdir a.py"),
)
_UNDONE = {
    "deleted": r"\brm\b.*\b{name}\b.*\b(?:mkdir|git init|git clone)\b[^\n;&|]*\b{name}\b",
    "restored if it differed": r"\bcheckout {name} --",
}
"""Commands that make a deleted folder again, or that name a revision."""


def changes_file(call: ToolCall, path: str, words: str = "") -> bool:
    """Whether this call names the file and a change: the one in these words of a ledger, or any."""
    name = basename(path.rstrip("/"))
    if not name or (name not in call.arguments and name not in str(call.named)):
        return False
    changes = [change for change in CHANGES if words in ("", change.words)]
    command = find_command(call)
    if command:
        undone = _UNDONE.get(words)
        if undone is not None and re.search(undone.format(name=re.escape(name)), command, re.DOTALL):
            return False
        return any(re.search(change.commands, command, re.DOTALL) for change in changes)
    editor_command = str(call.named.get("command") or "")[:40]
    if call.name in _EDITORS and editor_command == "view":
        return False
    told = f"{call.name} {editor_command}"
    if "patch" in call.name.lower():
        told += f" {call.arguments}"
    return any(re.search(f"{change.tools}|{change.commands}", told, re.IGNORECASE | re.DOTALL) for change in changes)
