"""When each team key was used last, by any replica: who rotates keys must not revoke one that is in use.

Each worker notes the uses that it sees. Every few seconds it adds them to one small document in the store, which
replicas share where they share a state; of each key at most once a minute.
"""

from collections.abc import Collection, Mapping

import msgspec

from proxy.store.contract import Store, StoreUnavailable

DOCUMENT = "key-uses"
SECONDS_BETWEEN_WRITES = 60.0
_TRIES_MAX = 8


class KeyUses:
    """The uses that this worker has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._written: dict[str, float] = {}

    def note(self, key_id: str, now: float) -> None:
        self._seen[key_id] = now

    def merge(self, stored: Mapping[str, float]) -> dict[str, float]:
        """The last use of each key, of those that are stored and those seen here."""
        return {name: max(stored.get(name, 0.0), self._seen.get(name, 0.0)) for name in {*stored, *self._seen}}

    async def write(self, store: Store, known_keys: Collection[str]) -> None:
        """Add what is new to the document, without keys that there are no more. StoreUnavailable: later."""
        new = {name: at for name, at in self._seen.items() if at >= self._find_next_write(name)}
        if not new:
            return
        for _ in range(_TRIES_MAX):
            old = await store.read_document(DOCUMENT)
            merged = {name: at for name, at in self.merge(decode_uses(old)).items() if name in known_keys}
            if await store.replace_document(DOCUMENT, old, msgspec.json.encode(merged, order="sorted")):
                self._written |= new
                return
        raise StoreUnavailable("the uses of keys change faster than they can be merged")

    def _find_next_write(self, key_id: str) -> float:
        written = self._written.get(key_id)
        return 0.0 if written is None else written + SECONDS_BETWEEN_WRITES


def decode_uses(document: bytes | None) -> dict[str, float]:
    """The uses in a document; of one that cannot be read, none: it is written anew."""
    try:
        return {} if document is None else msgspec.json.decode(document, type=dict[str, float])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
