"""How good is our count of tokens? Measured where a record tells what the upstream counted.

Records often leave out system prompts and tools, so whole prompts cannot be compared. What was *added* from one
request to the next can: the recorded prompts' growth against our count of the messages between them, with the
correction that is shipped for that family of models. Pairs between which a prompt shrank (the agent compacted) or
that skip a request are left out.
"""

from itertools import pairwise

from proxy.core.calibration import Calibration
from proxy.core.pipeline import Count
from proxy.lab.replay.history import ReplayHistory
from proxy.lab.replay.values import Estimate


def measure_estimate(history: ReplayHistory, count: Count, calibration: Calibration) -> Estimate:
    recorded, found = history.conversation.recorded, Estimate()
    for before, place in pairwise(history.places):
        first, then = recorded.get(before), recorded.get(place)
        if first is None or then is None or first.tokens is None or then.tokens is None or then.tokens <= first.tokens:
            continue
        grown = then.tokens - first.tokens
        ours = calibration.calibrate(sum(count(each.raw) for each in history.request.messages[before:place]))
        found = found.plus(Estimate(1, grown, ours, abs(ours - grown), then.tokens))
    return found
