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
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class RecordedSession:
    place: Path
    format: str
    """Empty if it is unknown."""
    conversations: tuple[Conversation, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    """What was left out or mended, and how often."""


def read_conversations(path: Path) -> Iterator[Conversation]:
    for session in read_sessions(path):
        yield from session.conversations


def read_sessions(path: Path) -> Iterator[RecordedSession]:
    """A file that is named itself must be of a known format; a folder may hold others."""
    if not path.is_dir():
        found = parse_file(path)
        if (known := _detect_format(found)) is None:
            raise UnreadableError(f"{path}: no session of a known form. Looked for: {'; '.join(_list_signs())}")
        yield _build_session(found, known)
        return
    waiting: dict[tuple[Format, Path], list[ParsedFile]] = {}
    for place in walk_files(path):
        try:
            found = parse_file(place)
        except UnreadableError:
            yield RecordedSession(place, "")
            continue
        known = _detect_format(found)
        if known is None:
            yield RecordedSession(place, "")
        elif not known.is_folder:
            yield _build_session(found, known)
        else:
            waiting.setdefault((known, place.parent), []).append(found)
    for (known, place), sheets in waiting.items():
        yield _build_session(_merge_files(place, sheets), known)


def _list_signs() -> list[str]:
    return [known.looks_for for known in FORMATS]


def _detect_format(found: ParsedFile) -> Format | None:
    return next((known for known in FORMATS if known.claims(found.values)), None)


def _merge_files(place: Path, sheets: Sequence[ParsedFile]) -> ParsedFile:
    return ParsedFile(
        place, tuple(value for sheet in sheets for value in sheet.values), sum(sheet.broken for sheet in sheets)
    )


def _build_session(found: ParsedFile, known: Format) -> RecordedSession:
    notes: Counter[str] = Counter({_BROKEN: found.broken} if found.broken else {})
    conversations = []
    for chapter in known.chapters(found):
        notes.update(chapter.notes)
        made, mended = build_conversation(chapter, str(found.place), known.name)
        if made is None:
            notes[_EMPTY] += 1
        else:
            notes.update(mended)
            conversations.append(made)
    return RecordedSession(found.place, known.name, tuple(conversations), dict(notes))
