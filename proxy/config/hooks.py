"""Settings of hooks: commands to run and URLs to call when something happens."""

from typing import Literal, Self

from pydantic import Field, model_validator

from proxy.config.model import ConfigModel
from proxy.config.secrets import MaybeSecret, Secret

EventName = Literal["compaction-started", "compaction-ended", "summary-ended", "breaker-opened", "refused-for-size"]


class HookConfig(ConfigModel):
    """A command or a URL that is told of events as JSON, never of the words of a conversation."""

    events: tuple[EventName, ...] = ("compaction-ended",)
    """Events to tell it of."""
    command: tuple[str, ...] = ()
    """Program and arguments to run; it reads the event from its standard input."""
    url: MaybeSecret = ""
    """URL to post the event to, as env:NAME if it holds a secret. Set this or `command`."""
    seconds: float = Field(10.0, gt=0)
    """Seconds that the command or the call may take."""

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("a hook has a `command` or a `url`, and not both")
        if self.url and not self.address.startswith(("http://", "https://")):
            raise ValueError("the url of a hook begins with http:// or https://")
        return self

    @property
    def address(self) -> str:
        return self.url.value if isinstance(self.url, Secret) else self.url
