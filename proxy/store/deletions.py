"""Deletion of a person's data: the conversations that an order covers, and everything that is stored of them.

    transcripts delete, admin API -> order in the registry -> every machine: `Eraser`
                                                                  |- originals: folder, spool, object store
                                                                  |- blocks, summaries and facts in the store
                                                                  '- rows of the activity log

An order keeps hashes of the names of a conversation and a user, so that it does not preserve what it deletes. A machine
may obey it late, and again: it covers only conversations that began before it was given.
"""

import math
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from hashlib import blake2b

from msgspec import Struct, field

from proxy.foundation.lifetime import FILES
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Store
from proxy.store.transcripts.archive import (
    SHORT_NAME_CHARACTERS,
    Archive,
    SavedConversation,
)
from proxy.store.transcripts.uploads import lock_spool
from proxy.wire.json_body import as_object, read_json

TEAM_PREFIX = "team."
"""The beginning of a tenant that is a team."""


class Deletion(Struct, frozen=True):
    """An order to delete the conversations that began before it and meet all of its conditions.

    An empty one is met by all.
    """

    id: str
    at: float
    conversation: str = ""
    user: str = ""
    team: str = ""
    before: float = 0.0
    """If set, only conversations whose newest request is older are covered."""

    @classmethod
    def order(cls, *, conversation: str = "", user: str = "", team: str = "", before: float = 0.0) -> "Deletion":
        """Give an order now. `user` is the name as it is stored: `Redaction.of_name`."""
        short_name = conversation[:SHORT_NAME_CHARACTERS]
        return cls(secrets.token_hex(8), time.time(), _hash_name(short_name), _hash_name(user), team, before)

    @property
    def conditions(self) -> list[str]:
        """The names of the conditions that were set."""
        return [name for name in ("conversation", "user", "team", "before") if getattr(self, name)]

    def covers(self, traces: "Traces") -> bool:
        if traces.first > self.at:
            return False
        if self.conversation and self.conversation != _hash_name(traces.name):
            return False
        if self.user and not any(self.user in map(_hash_name, list_user_names(user)) for user in traces.users):
            return False
        if self.team and traces.tenant != TEAM_PREFIX + self.team:
            return False
        return not (self.before and traces.last >= self.before)


def _hash_name(name: str) -> str:
    if not name:
        return ""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16, person=b"cp-deletion").hexdigest()


def list_user_names(user: str) -> set[str]:
    """Return the names by which a person may look for a user: the client's text, and the texts in it if it is JSON.

    Claude Code sends {"account_uuid": "4b7e…", "device_id": "91c0…", "session_id": ""}: `4b7e…` and `91c0…` find it.
    """
    names = {user}
    if user.startswith("{"):  # it may have been cut, or have another form
        values = as_object(read_json(user.encode("utf-8", "surrogatepass"))).values()
        names.update(value for value in values if isinstance(value, str) and value)
    return names


class Traces(Struct):
    """Everything that this machine knows of one conversation."""

    tenant: str
    name: str
    """The beginning of its name, as the activity log has it."""
    users: set[str] = field(default_factory=set)
    first: float = math.inf
    last: float = 0.0
    links: set[str] = field(default_factory=set)
    saved: list[SavedConversation] = field(default_factory=list)


OrderIndex = Mapping[str, Sequence[Deletion]]
"""Orders by the first name that they give: there may be thousands, and a request looks few of them up."""


def index_orders(orders: Iterable[Deletion]) -> OrderIndex:
    index: dict[str, list[Deletion]] = {}
    for order in orders:
        index.setdefault(order.conversation or order.user or order.team, []).append(order)
    return index


def is_deleted(orders: OrderIndex, tenant: str, conversation: str, user: str, since: float) -> bool:
    """Return whether one of the orders covers the conversation of a request, and came after it."""
    if not orders:
        return False
    name = conversation[:SHORT_NAME_CHARACTERS]
    traces = Traces(tenant, name, {user}, first=since, last=since)
    owners = ["", tenant.removeprefix(TEAM_PREFIX), *map(_hash_name, (name, *list_user_names(user)))]
    return any(order.covers(traces) for owner in owners for order in orders.get(owner, ()))


class Eraser(Struct, frozen=True):
    stores: Sequence[Store]
    archive: Archive
    activity_log: ActivityLog

    async def erase(self, orders: Sequence[Deletion]) -> int:
        """Delete the conversations that the orders cover, and return their number. It may be repeated at any time."""
        all_traces = await FILES.run(self._find, orders)
        # Values come first: if the store is down, originals and log stay, by which a repetition finds the values.
        await self._erase_values(all_traces, orders)

        def erase_files() -> None:
            with ExitStack() as stack:
                if self.archive.store is not None:
                    stack.enter_context(lock_spool(self.archive.folder, waits=True))  # no process uploads meanwhile
                for traces in all_traces:
                    for saved in traces.saved:
                        saved.erase()
                self.archive.sweep()
            self.activity_log.delete([(traces.tenant, traces.name) for traces in all_traces])

        await FILES.run(erase_files)
        return len(all_traces)

    def _find(self, orders: Sequence[Deletion]) -> list[Traces]:
        """Return the covered traces. A conversation with only facts left is not found: they name no person."""
        known_traces: dict[tuple[str, str], Traces] = {}
        query = (
            "select conversation, tenant, user, link, min(at) as first, max(at) as last from turns group by 1, 2, 3, 4"
        )
        for row in self.activity_log.query_or_fail(query):
            key = row["tenant"], row["conversation"]
            traces = known_traces.setdefault(key, Traces(*key))
            traces.users.add(row["user"])
            traces.links.add(row["link"])
            traces.first = min(traces.first, row["first"])
            traces.last = max(traces.last, row["last"])
        for transcript in self.archive.read_all():
            key = transcript.tenant, transcript.saved.short_name
            traces = known_traces.setdefault(key, Traces(*key))
            traces.users.update(transcript.users)
            traces.links.update(transcript.messages)
            first = 0.0
            with suppress(IndexError, ValueError, OverflowError):  # it has no line, or a time that cannot be read
                first = datetime.fromisoformat(transcript.list_times()[0]).timestamp()
            traces.first = min(traces.first, first)
            traces.last = max(traces.last, transcript.saved.written_at)
            traces.saved.append(transcript.saved)
        return [traces for traces in known_traces.values() if any(order.covers(traces) for order in orders)]

    def count(self, order: Deletion) -> int:
        """Return the number of conversations that this machine knows and the order covers."""
        return len(self._find([order]))

    async def _erase_values(self, all_traces: Sequence[Traces], orders: Sequence[Deletion]) -> None:
        names: dict[str, set[bytes]] = {}
        links: dict[str, set[str]] = {}
        for traces in all_traces:
            names.setdefault(traces.tenant, set()).add(traces.name.encode())
            links.setdefault(traces.tenant, set()).update(traces.links)
        # Every running machine has obeyed an order by then. An older one on a team must spare newer values.
        oldest = time.time() - 600.0
        whole_teams = {
            TEAM_PREFIX + order.team for order in orders if order.conditions == ["team"] and order.at >= oldest
        }

        link_in_key = re.compile(r"/(?:block|summary|anchor)/([0-9a-f]+)")
        name_in_value = re.compile(rb'"([0-9a-f]{%d})(?=")' % SHORT_NAME_CHARACTERS)

        def is_covered(key: str, value: bytes) -> bool:
            tenant = key.partition("/")[0]
            if tenant in whole_teams:
                return True
            link = link_in_key.search(key)
            if link is not None and link[1] in links.get(tenant, ()):
                return True
            return not names.get(tenant, set()).isdisjoint(name_in_value.findall(value))

        tenants = links.keys() | whole_teams
        if tenants:
            for store in self.stores:
                await store.remove(tenants, is_covered)
