"""Hand-made recordings: small enough that what a measure says of them can be computed on paper.

case = recorded_case(user("Fix it."), call("Read", path="a.py", out="x = 1"), assistant("Done."))
result = judge_views(case, AS_SENT, history(user("Fix it."), assistant("[folded]")))    # forwarded, turn by turn
"""

from msgspec.structs import replace

from proxy.lab.replay.replay_history import FOREVER, ReplayHistory, encode
from proxy.lab.replay.replay_values import Conversation, RecordedUsage
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Sent
from proxy.wire.chat_api import CHAT_FORMAT
from tests.support.messages import history

AS_SENT = None
PLAIN = UpstreamModel(window=1_000_000, habit=FOREVER)


def conversation(*pieces, at=(), name="one", model="", tools=(), **more):
    """`at`: when each answer came, in seconds."""
    messages = history(*pieces)
    places = [place for place, each in enumerate(messages) if place and each["role"] == "assistant"]
    found = {place: RecordedUsage(at=time) for place, time in zip(places, at, strict=False)}
    return Conversation(name, "hand", tuple(messages), tuple(tools), model, found, **more)


def recorded_case(*pieces, upstream=PLAIN, **more):
    return ReplayCase(ReplayHistory(conversation(*pieces, **more)), upstream)


def view_of(messages):
    """Messages as something in between would forward them."""
    return CHAT_FORMAT.parse(b'{"messages": [' + b", ".join(map(encode, messages)) + b"]}").messages


def numbered(messages):
    """The same messages, each with its own place."""
    return tuple(replace(message, start=place, stop=place + 1) for place, message in enumerate(messages))


def judge_views(case, *views, **sent):
    """The result of a conversation of which this was forwarded: a view for each request."""
    judge = Judge(case)
    for turn, view in zip(case.turns, views, strict=True):
        messages = turn.request.messages if view is AS_SENT else view_of(view)
        judge.score(turn, Sent(messages, case.history.request.tools, **sent))
    return judge.result("hand")


def sizes(messages):
    """Tokens of each message, as counted here: a quarter of its bytes."""
    return [len(encode(message)) // 4 for message in messages]
