"""The life of a request: where it may stand, and what leads from there.

    DECIDING --Send--> SENT ---------------------------Deliver--> DELIVERING --Finished--> OVER
                         '--SendAgain--> SENT_AGAIN ---Deliver------^

A refused request is sent once more, if a remedy has changed it. Whether the retry is accepted or refused as well, an
answer is delivered: that of the retry, or the first refusal.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from proxy.decide.actions import Deliver, Halt, Send, SendAgain


class Finished(Struct, frozen=True):
    """The end of a request."""

    value: Any


class Stage(Enum):
    DECIDING = auto()
    SENT = auto()
    SENT_AGAIN = auto()
    DELIVERING = auto()
    OVER = auto()


_NEXT: Mapping[Stage, Mapping[type[Halt | Finished], Stage]] = {
    Stage.DECIDING: {Send: Stage.SENT},
    Stage.SENT: {SendAgain: Stage.SENT_AGAIN, Deliver: Stage.DELIVERING},
    Stage.SENT_AGAIN: {Deliver: Stage.DELIVERING},
    Stage.DELIVERING: {Finished: Stage.OVER},
    Stage.OVER: {},
}


def follow(stage: Stage, step: Halt | Finished) -> Stage:
    """Return the stage to which a step leads. Raise ValueError if a request may not take it now."""
    next_stage = _NEXT[stage].get(type(step))
    if next_stage is None:
        raise ValueError(f"{type(step).__name__} may not follow while a request is {stage.name}")
    return next_stage
