"""Half of a surrogate pair, which JavaScript leaves where it cuts a text in two, makes no request unreadable."""

from tests.support.apis import MESSAGES, each_other_api
from tests.support.compaction_worker import Worker, turns
from tests.support.messages import call, history, user
from tests.support.worker_cases import EAGER

HALF = "cut in two: \ud83d"
HISTORY = history(
    user(f"Read it. {HALF}"), *[call("Read", path=f"{HALF}{step}", out=f"{step} {HALF}\n" * 60) for step in range(12)]
)


@each_other_api
def test_it_is_read_kept_marked_and_shortened_as_any_other(api):
    worker = Worker(EAGER, wire=api.wire, write=api.write, marks=True)
    steps = [worker.send(turn) for turn in turns(HISTORY)]
    assert "created" in [sent.plan.action for sent in steps]
    assert len(steps[-1].left) < len(steps[-1].came)
    assert "\\ud83d" in steps[-1].left.decode()
    assert api.find_faults(steps[-1].left) == []
    assert (b"cache_control" in steps[-1].left) == (api is MESSAGES)
