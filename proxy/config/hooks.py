"""Somebody else who wants to know: a command that is run, or a URL that is called, when something happens."""

from typing import Literal, Self

from pydantic import Field, model_validator

from proxy.config.model import ConfigModel
from proxy.config.secrets import MaybeSecret, Secret

Told = Literal["compaction-started", "compaction-ended", "summary-ended", "breaker-opened", "refused-for-size"]


class Hook(ConfigModel):
    """One of them. What it is told is the line of the log, as JSON: no words of a conversation, no secret."""

    events: tuple[Told, ...] = Field(("compaction-ended",), description="When.")
    command: tuple[str, ...] = Field((), description="A program and its arguments; it reads the event from its input.")
    url: MaybeSecret = Field("", description="Or where the event is posted; such a URL is often a secret (env:NAME).")
    seconds: float = Field(10.0, gt=0, description="How long it may take.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("a hook has a `command` or a `url`, and not both")
        if self.url and not self.address.startswith(("http://", "https://")):
            raise ValueError("the url of a hook begins with http:// or https://")
        return self

    @property
    def address(self) -> str:
        return self.url.value if isinstance(self.url, Secret) else self.url
