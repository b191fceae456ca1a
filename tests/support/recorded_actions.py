"""The actions that a request asks for, noted as it goes on."""

from proxy.decide.actions import Action, AnnounceLargeWork, Finished
from proxy.decide.program import take_step


def record(life, actions):
    """Yield what `life` yields, and append each action to a list."""
    reply = None
    while True:
        step = take_step(life, reply)
        if isinstance(step, Finished):
            return step.value
        if isinstance(step, (Action, AnnounceLargeWork)):
            actions.append(step)
        reply = yield step
