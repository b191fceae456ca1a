"""Originals before the first loss: what is folded while they cannot be written, and how long a request waits."""

import asyncio
import threading

import pytest
from msgspec.structs import replace

from proxy.config.policies import Policy
from proxy.config.settings import Transcripts, Upstream
from proxy.decide.actions import Opening
from proxy.decide.conversation import Asked, Conversation, Writing, choose_originals
from proxy.foundation.errors import TranscriptsUnavailable
from proxy.history.identity import Identity
from proxy.serve import services as module
from proxy.serve.performer import ActionPerformer
from proxy.serve.request_context import CompiledPolicy, RequestOptions
from proxy.serve.services import Keeper, Services
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.store.memory_store import MemoryStore
from proxy.store.transcripts import writer
from proxy.store.transcripts.files import TranscriptFolder
from proxy.store.transcripts.writer import OriginalsWriter
from proxy.upstream.client import Call, Client
from proxy.wire.http_head import Caller
from proxy.wire.refusals import Refusal
from tests.support.compaction_worker import Driver, Worker
from tests.support.messages import KEY, TENANT, body, call, history, parse_request, user
from tests.support.proxy_client import until

WRITE, CHECK, HAND_OVER, REFUSE = Writing.WRITE, Writing.CHECK, Writing.HAND_OVER, Writing.WRITE_OR_REFUSE
TO_FIT, NEVER, ALWAYS = (
    {"is_kept": True, "is_required": False, "without_originals": word} for word in ("to_fit", "never", "always")
)
LONG = "a line of output\n" * 400
WORK = history(user("Go."), *(call("Read", out=f"{number} {LONG}", path=f"{number}.py") for number in range(12)))
RULES = Rules(clear_at_least=2_000, keep=Keep(tokens=500, groups=1))


class Turn(Driver):
    """One request of a client, at a proxy whose disk works or fails."""

    def __init__(self, worker, messages, *, writes, can_write=None, policy=TO_FIT, **context):
        super().__init__(worker, parse_request(body(messages)))
        self.asked = replace(self.asked, originals=choose_originals(**policy), **context)
        self.writes, self.can_write = writes, writes if can_write is None else can_write
        self.writings = []
        self.stored_blocks = 0

    async def keep_originals(self, writing, _conversation):
        self.writings.append(writing)
        return self.can_write if writing is CHECK else self.writes

    async def store_block(self, *block):
        self.stored_blocks += 1
        return await super().store_block(*block)

    def refuse(self):
        return self.answer(Opening(Refusal("input")))


def make_worker(usable_tokens=1_000_000, *, is_known=True):
    return Worker(RULES, Facts(usable_tokens=usable_tokens, was_forwarded=is_known))


@pytest.mark.parametrize(
    ("policy", "of_known", "of_unknown", "applied"),
    [
        (TO_FIT, [WRITE], [CHECK, WRITE], [HAND_OVER]),
        (NEVER, [WRITE], [CHECK, WRITE], [HAND_OVER]),
        (ALWAYS, [WRITE], [WRITE], [HAND_OVER]),
        ({**ALWAYS, "is_required": True}, [REFUSE], [REFUSE], [REFUSE]),
        ({**NEVER, "is_kept": False, "is_required": True}, [], [], []),
    ],
)
def test_the_original_is_written_before_the_first_fold_and_later_folds_do_not_wait(
    policy, of_known, of_unknown, applied
):
    worker, stranger = make_worker(), make_worker(is_known=False)
    turns = [
        Turn(worker, WORK, writes=True, policy=policy),
        Turn(stranger, WORK, writes=True, is_known_caller=False, policy=policy),
        Turn(worker, [*WORK, *user("And now?")], writes=True, policy=policy),
    ]
    for turn in turns:
        turn.prepare()
        turn.accept()
    assert [turn.writings for turn in turns] == [of_known, of_unknown, applied]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("policy", "usable_tokens", "outcome"),
    [
        (TO_FIT, 1_000_000, "none"),
        (TO_FIT, 8_000, "created"),
        (NEVER, 8_000, "none"),
        (ALWAYS, 1_000_000, "created"),
    ],
)
def test_the_policy_decides_about_folding_without_an_original(policy, usable_tokens, outcome, is_known):
    worker = make_worker(usable_tokens, is_known=is_known)
    decision = Turn(worker, WORK, writes=False, is_known_caller=is_known, policy=policy).prepare()
    assert decision.outcome == outcome
    assert (decision.reason == "originals-unwritable") == (outcome == "none")


def test_an_existing_block_is_applied_while_nothing_can_be_written():
    worker = make_worker()
    turn = Turn(worker, WORK, writes=True)
    assert turn.prepare().outcome == "created"
    turn.accept()
    assert Turn(worker, [*WORK, *user("And now?")], writes=False).prepare().outcome == "applied"


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("policy", "is_folded"), [(TO_FIT, True), (NEVER, False)])
def test_a_refused_history_did_not_fit(policy, is_folded, is_known):
    """Where the window is unknown, too: else each request would be refused, and shortened once more."""
    worker = make_worker(usable_tokens=None, is_known=is_known)
    turn = Turn(worker, WORK, writes=False, is_known_caller=is_known, policy=policy)
    assert turn.prepare().outcome == "none"
    assert (turn.refuse() is not None) == is_folded
    if is_folded:
        turn.accept()
    assert (turn.stored_blocks > 0) == is_folded


def test_for_a_new_caller_no_block_is_stored_without_its_original():
    """An unknown caller's history is kept only once the upstream has accepted it; here the disk fails until then."""
    turn = Turn(make_worker(is_known=False), WORK, writes=False, can_write=True, is_known_caller=False)
    assert turn.prepare().outcome == "created"
    assert turn.writings == [CHECK]
    turn.accept()
    assert turn.writings == [CHECK, WRITE]
    assert turn.stored_blocks == 0


REQUEST = parse_request(body(user("Hello there")))
IDENTITY = Identity.of(REQUEST, TENANT, KEY, "", "")


@pytest.fixture
def disk(monkeypatch):
    """Set: it writes."""
    writes, write = threading.Event(), TranscriptFolder._write
    monkeypatch.setattr(TranscriptFolder, "_write", lambda *line: writes.wait(10) and write(*line))
    monkeypatch.setattr(module, "WRITE_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(module, "REQUIRED_TIMEOUT_SECONDS", 0.1)
    yield writes
    writes.set()


@pytest.fixture
async def keeper(tmp_path, disk):
    made = Keeper(OriginalsWriter(tmp_path, Transcripts()))
    yield made
    disk.set()
    await made.close()


async def test_a_slow_disk_is_waited_for_once_and_known_until_it_writes(keeper, disk):
    kept, is_written = await keeper.write(IDENTITY, REQUEST, "", must=False)
    assert (is_written, keeper.is_writable) == (False, False)
    disk.set()
    assert await asyncio.wrap_future(kept.done)
    await until(lambda: keeper.is_writable)


async def test_what_a_request_waits_for_is_written_at_once(keeper, disk, monkeypatch):
    monkeypatch.setattr(writer, "GATHER_SECONDS", 60.0)
    monkeypatch.setattr(module, "WRITE_TIMEOUT_SECONDS", 30.0)
    disk.set()
    _, is_written = await keeper.write(IDENTITY, REQUEST, "", must=False)
    assert is_written
    assert await keeper.check_writable()


async def test_only_the_first_fold_of_a_message_waits(keeper):
    services, policy = Services(MemoryStore(), keeper, lambda _: None), CompiledPolicy.compile("default", Policy(), {})
    conversation = Conversation(Asked(REQUEST, RULES, len, now=1.0), RULES, IDENTITY)
    call = Call("POST", "/chat/completions", "", (), REQUEST.source, Caller())
    async with Client(Upstream(base_url="http://127.0.0.1:9/v1"), lambda _: None) as client:
        context = {"policy": policy, "client": client, "prefix": None, "arrived_at": 1.0}
        performer = ActionPerformer(services, call, RequestOptions(), REQUEST, **context)
        assert [await performer.keep_originals(writing, conversation) for writing in (HAND_OVER, WRITE)] == [
            True,
            False,
        ]


async def test_where_it_must_be_written_a_slow_disk_is_a_refusal(keeper):
    with pytest.raises(TranscriptsUnavailable):
        await keeper.write(IDENTITY, REQUEST, "", must=True)


async def test_without_transcripts_nothing_is_kept_and_everything_may_be_folded():
    assert await Keeper().write(IDENTITY, REQUEST, "", must=True) == (None, True)
