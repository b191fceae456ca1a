"""The caller of a request, as `access.authenticator` found it: a team, or a client known by its credentials."""

from dataclasses import dataclass, field

from proxy.wire.headers import Headers

NO_TEAM = ""


@dataclass(frozen=True, slots=True)
class Caller:
    team: str = NO_TEAM
    key_id: str = ""
    """The public part of its team key; empty where a trusted gateway spoke for it, and where there are no teams."""
    tag: str = ""
    """What it says this call is for."""
    halted: bool = False
    """Somebody has switched compaction off for it: nothing new is made, what stands goes on standing."""
    identified_by: Headers = field(default=(), repr=False)
    """What the headers of `access.tenant_headers` say, by which the operator tells clients apart."""

    @property
    def tenant(self) -> str:
        """The tenant of a team. The dot keeps it apart from the hash of any credential."""
        return f"team.{self.team}" if self.team else ""


ANYBODY = Caller()
