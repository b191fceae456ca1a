"""Callers of whom an upstream has accepted something, as far as this process remembers.

Nothing is written for a stranger: whoever makes up keys would fill a disk with his histories. Who is known by this, by
a team key, or by what the store remembers of the conversation, has his originals kept before anything is folded.
"""

from proxy.compaction.facts import identity_of
from proxy.upstream import Call

REMEMBERED = 10_000


class Known:
    def __init__(self) -> None:
        self._met: set[int] = set()

    def meet(self, call: Call) -> None:
        if len(self._met) >= REMEMBERED:
            self._met.clear()
        self._met.add(who(call))

    def __contains__(self, call: Call) -> bool:
        return bool(call.caller.team) or who(call) in self._met


def who(call: Call) -> int:
    """No credential is kept, not even its hash on disk."""
    return hash((call.caller.tenant, identity_of(call)))
