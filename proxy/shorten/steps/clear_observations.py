"""Clear old observations of agents that have no tools: their results come as user messages, known by patterns."""

from dataclasses import dataclass
from typing import ClassVar

from proxy.history.messages import Message
from proxy.shorten import placeholder
from proxy.shorten.steps.clear_results import ClearResults


@dataclass(frozen=True, slots=True)
class ClearObservations(ClearResults):
    """Replace old observations in user messages by placeholders."""

    name: ClassVar[str] = "clear_observations"

    template: str = placeholder.OBSERVATION_TEMPLATE
    """Text in place of the observation; see `placeholder`."""

    def _is_selected(self, message: Message) -> bool:
        return message.is_observation
