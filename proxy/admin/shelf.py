"""The saved originals as the pages need them: found by the name of a conversation, searched, read a little of."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from proxy import assembly
from proxy.admin.context import Originals
from proxy.admin.message_status import speaker
from proxy.config import Config
from proxy.store.transcripts.files import file_name, files_in
from proxy.store.transcripts.lines import Said, read
from proxy.store.transcripts.objects import stored_at
from proxy.store.transcripts.reading import Transcript, transcript
from proxy.store.transcripts.retention import Stored, stored_in

SHORT = 16
"""So many letters of its name are what the chronicle, headers and logs call a conversation."""
GLANCED = 40
"""Lines in which the first words of a conversation are looked for."""
AROUND = 80
LONGEST_TITLE = 140


@dataclass(frozen=True, slots=True)
class Hit:
    """A text, found."""

    conversation: str
    title: str
    tenant: str
    at: str
    role: str
    seen: str
    before: str
    found: str
    after: str


def shelf(config: Config) -> Originals:
    """Where they stand: in a folder, or in an object store and the spool in front of it."""
    afar = assembly.bucket(config)
    return partial(stored_in, config.originals) if afar is None else partial(stored_at, afar, config.originals)


def kept(originals: Originals, conversation: str, tenant: str) -> Transcript | None:
    """The conversation that the chronicle calls so."""
    found = next(iter(originals(conversation, file_name(tenant))), None)
    return transcript(found) if found is not None else None


def titles(config: Config, wanted: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The first words of the user in each of these (tenant, conversation), as far as they are kept on this disk."""
    pairs = list(wanted)
    folders = {tenant: _by_short(config.originals / file_name(tenant)) for tenant in {tenant for tenant, _ in pairs}}
    found = ((name, folders[tenant].get(name)) for tenant, name in pairs)
    return {name: _first_words(place) for name, place in found if place is not None}


def newest(originals: Originals, tenant: str = "") -> list[Stored]:
    """All that are kept, or those of a tenant, the newest first."""
    found = originals("", file_name(tenant) if tenant else "")
    return sorted(found, key=lambda one: one.written, reverse=True)


def searched(
    originals: Originals, text: str, *, case: bool, tenant: str, most: int, seconds: float
) -> tuple[list[Hit], bool]:
    """Where a text stands, the newest conversations first; whether all of them were looked through."""
    until, hits = time.monotonic() + seconds, list[Hit]()
    for one in newest(originals, tenant):
        for hit in _hits(one, text, case=case):
            if len(hits) >= most:
                return hits, False
            hits.append(hit)
        if time.monotonic() > until:
            return hits, False
    return hits, True


def _hits(one: Stored, text: str, *, case: bool) -> Iterator[Hit]:
    wanted, found = text if case else text.lower(), transcript(one)
    for at, role, seen, words in _texts(found):
        place = (words if case else words.lower()).find(wanted)
        if place >= 0:
            stop = place + len(text)
            before, after = words[max(0, place - AROUND) : place], words[stop : stop + AROUND]
            yield Hit(one.name[:SHORT], _title(found), one.tenant, at, role, seen, before, words[place:stop], after)


def _title(found: Transcript) -> str:
    spoken = (speaker(said.message) for said in found.messages.values())
    return in_short(next((words for role, words in spoken if role == "user"), ""))


def _by_short(folder: Path) -> dict[str, Path]:
    return {place.name[:SHORT]: place for place in folder.iterdir()} if folder.is_dir() else {}


def _first_words(place: Path) -> str:
    for file in files_in(place)[:1]:
        with suppress(FileNotFoundError), file.open("rb") as lines:  # it may be gone by now
            for line in islice(lines, GLANCED):
                said = read(line)
                who, words = speaker(said.message) if isinstance(said, Said) else ("", "")
                if who == "user":
                    return in_short(words)
    return ""


def in_short(words: str, most: int = LONGEST_TITLE) -> str:
    """The beginning of a text on one line, cut between two words."""
    line = " ".join(words[: 4 * most].split())
    return line if len(line) <= most else line[:most].rpartition(" ")[0] + " …"


def _texts(found: Transcript) -> Iterator[tuple[str, str, str, str]]:
    """All that was said: at which link, by whom, when, and what."""
    for head in found.heads.values():
        role, words = speaker(head.message)
        yield "", role, head.seen, words
    for said in found.messages.values():
        role, words = speaker(said.message)
        yield said.at, role, said.seen, words
    for answer in found.answers:
        yield answer.to, "answer", answer.seen, speaker(answer.message)[1]
