"""Saved conversations as the pages need them: found by name, searched for a text, and titled by their first words."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from proxy.config import Config
from proxy.store.transcripts.archive import Archive, SavedConversation, Transcript, read_transcript, role_and_text
from proxy.store.transcripts.files import MessageLine, file_name, list_files, parse

SHORT_NAME_LETTERS = 16
"""So much of its name is what the activity log, headers and logs call a conversation."""
TITLE_LINES = 40
"""Lines at the beginning in which the first words of the user are looked for."""
CONTEXT_LETTERS = 80
TITLE_LETTERS = 140


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a text was found."""

    conversation: str
    title: str
    tenant: str
    at: str
    role: str
    seen: str
    before: str
    found: str
    after: str


def find_transcript(archive: Archive, conversation: str, tenant: str) -> Transcript | None:
    """The conversation whose name begins like this."""
    found = next(archive.find(conversation, tenant), None)
    return read_transcript(found) if found is not None else None


def find_titles(config: Config, wanted: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The first words of the user in each of these (tenant, conversation), where they are kept on this disk."""
    pairs = list(wanted)
    places = {tenant: _places_by_name(config.originals / file_name(tenant)) for tenant in {pair[0] for pair in pairs}}
    found = ((name, places[tenant].get(name)) for tenant, name in pairs)
    return {name: _read_title(place) for name, place in found if place is not None}


def search(
    archive: Archive, text: str, *, case: bool, tenant: str, most: int, seconds: float
) -> tuple[list[Hit], bool]:
    """Hits of a text, newest conversations first, and whether all were searched."""
    end, hits = time.monotonic() + seconds, list[Hit]()
    for saved in archive.newest_first(tenant):
        for hit in _find_hits(saved, text, case=case):
            if len(hits) >= most:
                return hits, False
            hits.append(hit)
        if time.monotonic() > end:
            return hits, False
    return hits, True


def _find_hits(saved: SavedConversation, text: str, *, case: bool) -> Iterator[Hit]:
    wanted, transcript = text if case else text.lower(), read_transcript(saved)
    title = next((words for _, role, _, words in transcript.texts() if role == "user"), "")
    for at, role, seen, words in transcript.texts():
        start = (words if case else words.lower()).find(wanted)
        if start >= 0:
            stop = start + len(text)
            before, after = words[max(0, start - CONTEXT_LETTERS) : start], words[stop : stop + CONTEXT_LETTERS]
            name = saved.name[:SHORT_NAME_LETTERS]
            yield Hit(name, shorten(title), saved.tenant, at, role, seen, before, words[start:stop], after)


def _places_by_name(folder: Path) -> dict[str, Path]:
    return {place.name[:SHORT_NAME_LETTERS]: place for place in folder.iterdir()} if folder.is_dir() else {}


def _read_title(place: Path) -> str:
    for path in list_files(place)[:1]:
        with suppress(FileNotFoundError), path.open("rb") as lines:  # it may be removed by now
            for raw in islice(lines, TITLE_LINES):
                line = parse(raw)
                role, words = role_and_text(line.message) if isinstance(line, MessageLine) else ("", "")
                if role == "user":
                    return shorten(words)
    return ""


def shorten(words: str, most: int = TITLE_LETTERS) -> str:
    """The beginning of a text on one line, cut between two words."""
    line = " ".join(words[: 4 * most].split())
    return line if len(line) <= most else line[:most].rpartition(" ")[0] + " …"
