"""The last use of each team key by any replica: a key that is still in use must not be revoked by mistake.

Each worker notes the uses that it sees. Every few seconds it adds them to one small document in the store, each key at
most once a minute.
"""

from collections.abc import Collection, Mapping

import msgspec

from proxy.store.contract import Store, StoreUnavailable

DOCUMENT = "key-uses"
WRITE_INTERVAL_SECONDS = 60.0
_TRIES_MAX = 8


class KeyUses:
    """The uses that this worker has seen, by key id."""

    def __init__(self) -> None:
        self._last_uses: dict[str, float] = {}
        self._uses_written: dict[str, float] = {}

    def note(self, key_id: str, now: float) -> None:
        self._last_uses[key_id] = now

    def merge(self, stored_uses: Mapping[str, float]) -> dict[str, float]:
        """Return the last use of each key, of the stored ones and those seen here."""
        merged = dict(stored_uses)
        for key_id, time in self._last_uses.items():
            merged[key_id] = max(time, merged.get(key_id, 0.0))
        return merged

    async def write(self, store: Store, key_ids: Collection[str]) -> None:
        """Add new uses to the document, and drop keys that are not in *key_ids*. StoreUnavailable: try later."""
        new_uses = {key_id: time for key_id, time in self._last_uses.items() if self._is_due(key_id, time)}
        if not new_uses:
            return
        for _ in range(_TRIES_MAX):
            document = await store.read_document(DOCUMENT)
            merged = self.merge(decode_uses(document))
            uses = {key_id: time for key_id, time in merged.items() if key_id in key_ids}
            if await store.replace_document(DOCUMENT, document, msgspec.json.encode(uses, order="sorted")):
                self._uses_written.update(new_uses)
                return
        raise StoreUnavailable("the uses of keys change faster than they can be merged")

    def _is_due(self, key_id: str, time: float) -> bool:
        written = self._uses_written.get(key_id)
        return written is None or time >= written + WRITE_INTERVAL_SECONDS


def decode_uses(document: bytes | None) -> dict[str, float]:
    """Return the uses in a document; none if it cannot be read, so that it is written anew."""
    if document is None:
        return {}
    try:
        return msgspec.json.decode(document, type=dict[str, float])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
