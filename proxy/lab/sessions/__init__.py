"""Session files of agents, so that a team can score its own history before it installs anything.

A reader's `claims` recognises a file by its content; the first that does reads it. Sessions are data that others wrote:
they are read, and never run or obeyed.

session_history    histories as readers return them, and the conversations made of them; sessions that are trees
session_files      files of any packing; saved conversations as requests
claude_code        Claude Code
codex              Codex, and items of the Responses API
opencode           opencode
pi                 pi
proxy_transcripts  originals saved by this proxy
chat               mini-swe-agent, collections of conversations, OpenAI chat messages and request bodies
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from proxy.lab.replay.replay_values import Conversation
from proxy.lab.sessions import chat, claude_code, codex, opencode, pi, proxy_transcripts
from proxy.lab.sessions.session_files import ParsedFile, UnreadableError, parse_file, walk_files
from proxy.lab.sessions.session_history import Format, build_conversation

_BROKEN = "lines that are no JSON, left out"
_EMPTY = "histories without a request"


FORMATS = (
    *proxy_transcripts.FORMATS,
    *claude_code.FORMATS,
    *codex.FORMATS,
    *pi.FORMATS,
    *opencode.FORMATS,
    *chat.FORMATS,
)


class RecordedSession(Struct, frozen=True):
    place: Path
    format: str
    """Empty if it is unknown."""
    conversations: tuple[Conversation, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    """Omissions and repairs, with counts."""


def read_conversations(path: Path) -> Iterator[Conversation]:
    for session in read_sessions(path):
        yield from session.conversations


def read_sessions(path: Path) -> Iterator[RecordedSession]:
    """A file that is named itself must be of a known format; a folder may hold others."""
    if not path.is_dir():
        file = parse_file(path)
        if (file_format := _detect_format(file)) is None:
            raise UnreadableError(f"{path}: no session of a known form. Looked for: {'; '.join(_list_signs())}")
        yield _build_session(file, file_format)
        return
    waiting: dict[tuple[Format, Path], list[ParsedFile]] = {}
    for place in walk_files(path):
        try:
            file = parse_file(place)
        except UnreadableError:
            yield RecordedSession(place, "")
            continue
        file_format = _detect_format(file)
        if file_format is None:
            yield RecordedSession(place, "")
        elif not file_format.is_folder:
            yield _build_session(file, file_format)
        else:
            waiting.setdefault((file_format, place.parent), []).append(file)
    for (file_format, place), sheets in waiting.items():
        yield _build_session(_merge_files(place, sheets), file_format)


def _list_signs() -> list[str]:
    return [file_format.looks_for for file_format in FORMATS]


def _detect_format(file: ParsedFile) -> Format | None:
    return next((file_format for file_format in FORMATS if file_format.claims(file.values)), None)


def _merge_files(place: Path, sheets: Sequence[ParsedFile]) -> ParsedFile:
    return ParsedFile(
        place, tuple(value for sheet in sheets for value in sheet.values), sum(sheet.broken for sheet in sheets)
    )


def _build_session(file: ParsedFile, file_format: Format) -> RecordedSession:
    notes: Counter[str] = Counter({_BROKEN: file.broken} if file.broken else {})
    conversations = []
    for chapter in file_format.chapters(file):
        notes.update(chapter.notes)
        conversation, repairs = build_conversation(chapter, str(file.place), file_format.name)
        if conversation is None:
            notes[_EMPTY] += 1
        else:
            notes.update(repairs)
            conversations.append(conversation)
    return RecordedSession(file.place, file_format.name, tuple(conversations), dict(notes))
