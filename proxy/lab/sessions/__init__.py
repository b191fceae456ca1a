"""Session files of agents, so that a team can score its own history before it installs anything.

One module for each format. Its function `claims` recognises a file by its content, because names of files vary; the
first module that does reads it. Sessions are data that others wrote: they are read, and never run or obeyed.

session_history   histories as readers return them, and the conversations made of them
branches          sessions that are trees
shapes            JSON of unknown shape, read with checks
session_files     files of any packing, alone or in folders
chat              OpenAI chat messages and request bodies
responses         items of the Responses API
claude_code       Claude Code
codex             Codex
mini_swe_agent    mini-swe-agent
opencode          opencode
openhands         OpenHands
pi                pi
swe_agent         SWE-agent
traces            collections of recorded conversations
proxy_transcripts  originals saved by this proxy
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from proxy.lab.replay.replay_values import Conversation
from proxy.lab.saved import UnreadableError
from proxy.lab.sessions import (
    chat,
    claude_code,
    codex,
    mini_swe_agent,
    opencode,
    openhands,
    pi,
    proxy_transcripts,
    swe_agent,
    traces,
)
from proxy.lab.sessions.session_files import ParsedFile, parse_file, walk_files
from proxy.lab.sessions.session_history import Chapter, build_conversation

_BROKEN = "lines that are no JSON, left out"
_EMPTY = "histories without a request"


class Format(NamedTuple):
    """One kind of session file."""

    name: str
    looks_for: str
    claims: Callable[[Sequence[Any]], bool]
    chapters: Callable[[ParsedFile], Iterable[Chapter]]
    pieces: Callable[[Path, Path], Path] | None = None
    """Where a session is many small files: by a file and the folder that was asked for, what they have in common."""


def _parent_folder(place: Path, _: Path) -> Path:
    return place.parent


def _events_folder(place: Path, _: Path) -> Path:
    """The state of a conversation lies above the folder of its events."""
    return place.parent.parent if place.parent.name == "events" else place.parent


FORMATS = (
    Format(
        proxy_transcripts.NAME,
        proxy_transcripts.LOOKS_FOR,
        proxy_transcripts.claims,
        proxy_transcripts.chapters,
        _parent_folder,
    ),
    Format(claude_code.NAME, claude_code.LOOKS_FOR, claude_code.claims, claude_code.chapters),
    Format(codex.NAME, codex.LOOKS_FOR, codex.claims, codex.chapters),
    Format(pi.NAME, pi.LOOKS_FOR, pi.claims, pi.chapters),
    Format(opencode.NAME, opencode.LOOKS_FOR, opencode.claims, opencode.chapters),
    Format(openhands.NAME, openhands.LOOKS_FOR, openhands.claims, openhands.chapters, _events_folder),
    Format(swe_agent.NAME, swe_agent.LOOKS_FOR, swe_agent.claims, swe_agent.chapters),
    Format(mini_swe_agent.NAME, mini_swe_agent.LOOKS_FOR, mini_swe_agent.claims, mini_swe_agent.chapters),
    Format(traces.NAME, traces.LOOKS_FOR, traces.claims, traces.chapters),
    Format(chat.NAME, chat.LOOKS_FOR, chat.claims, chat.chapters),
)


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """Conversations of one file, or of the small files of one session."""

    place: Path
    format: str
    """Empty where it is unknown."""
    conversations: tuple[Conversation, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    """What was left out or mended, and how often."""


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Every conversation in a file, or below a folder."""
    for session in read_sessions(path):
        yield from session.conversations


def read_sessions(path: Path) -> Iterator[RecordedSession]:
    """A file, or every file below a folder. A file that is named itself must be known; a folder may hold others."""
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
        elif known.pieces is None:
            yield _build_session(found, known)
        else:
            waiting.setdefault((known, known.pieces(place, path)), []).append(found)
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
