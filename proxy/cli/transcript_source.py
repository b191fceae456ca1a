"""Saved conversations for the commands that read them, with the store that knows their blocks and their key."""

import sys
from dataclasses import dataclass

from proxy import assembly
from proxy.config import Config
from proxy.core.messages import block_key
from proxy.store.contract import StoreUnavailable
from proxy.store.transcripts.archive import Archive, Transcript, read_transcript


class NotFoundError(Exception):
    """No such conversation; the text says which there are."""


@dataclass(frozen=True, slots=True)
class TranscriptSource:
    config: Config
    archive: Archive

    def find_one(self, asked: str) -> Transcript:
        """The conversation of this id, or the only one that begins like it; `TENANT/ID` picks a tenant."""
        tenant, _, name = asked.rpartition("/")
        found = list(self.archive.find(name, tenant))
        if len({saved.name for saved in found}) > 1 or not found:
            what = f"{len(found)} conversations begin with" if found else "there is no conversation"
            raise NotFoundError(f"{what} {name!r} in {self.archive.location}; `transcripts list` shows all")
        if len(found) > 1:
            tenants = ", ".join(saved.tenant for saved in found)
            raise NotFoundError(f"several tenants have a conversation {name!r}: {tenants}; write TENANT/{name}")
        return read_transcript(found[0])

    def read_state(self, tenant: str = "", links: tuple[str, ...] = ()) -> tuple[bytes | None, dict[str, bytes]]:
        """The key of the chain, and the blocks stored for these links."""
        keys = {block_key(tenant, bytes.fromhex(link)): link for link in links}
        try:
            key, found = assembly.read_blocks(self.config, list(keys))
        except StoreUnavailable as fault:
            print(f"blocks and keys cannot be read: {fault}", file=sys.stderr)  # noqa: T201
            return None, {}
        return key, {keys[promise]: block for promise, block in found.items()}


def open_source(config: Config) -> TranscriptSource:
    return TranscriptSource(config, assembly.open_archive(config))
