"""The caller of a request, as `access.authentication` found it: a team, or a client known by its credentials."""

from dataclasses import dataclass, field

from proxy.wire.headers import Headers


@dataclass(frozen=True, slots=True)
class Caller:
    team: str = ""
    key_id: str = ""
    """The public part of its team key; empty if a trusted gateway spoke for it, or there are no teams."""
    tag: str = ""
    """The header `x-compaction-tag`."""
    halted: bool = False
    """An operator has switched compaction off for it: no new block is made, existing ones are applied."""
    identified_by: Headers = field(default=(), repr=False)
    """What the headers of `access.tenant_headers` say, by which the operator tells clients apart."""

    @property
    def tenant(self) -> str:
        """The tenant of a team. The dot keeps it apart from the hash of any credential."""
        return f"team.{self.team}" if self.team else ""


UNIDENTIFIED = Caller()
