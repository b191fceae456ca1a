"""Gather, decide, keep, render: with the real core, real stores and real originals, and no socket."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from proxy import events
from proxy.config.policies import Policy
from proxy.config.settings import Upstream as Settings
from proxy.decide.actions import Opening
from proxy.foundation import lifetime
from proxy.foundation.errors import BadRequest, Overloaded
from proxy.foundation.lru import ENTRY_BYTES
from proxy.serve import request_context
from proxy.serve.compactor import Compactor
from proxy.serve.driver import OutgoingRequest
from proxy.serve.gateway import render_decision
from proxy.serve.request_context import CompiledPolicy, PolicyChoice, PolicyOffer
from proxy.serve.services import Keeper, RefetchWatch, Services
from proxy.store.contract import Kind
from proxy.store.memory_store import MemoryStore
from proxy.upstream.client import Call, Client
from proxy.wire import chat_api
from proxy.wire.http_head import Caller, find_header
from proxy.wire.redaction import redaction
from proxy.wire.token_counts import AnswerEnds
from tests.support import responses_api
from tests.support.agent import reading
from tests.support.messages import body, user

UNIDENTIFIED = Caller()

SMALL = Policy.model_validate({"clear_at_least": 3_000, "keep": {"tokens": 1_000}})
WORK = reading(16)
KEY = ("authorization", "Bearer sk-a")
TEAM = Caller(team="a")
ANSWER = (("content-type", "application/json"),)


def offer(*rollouts, policy=SMALL, arm=""):
    return tuple(PolicyOffer(share, CompiledPolicy.compile(name, policy, {}, arm)) for share, name in rollouts)


class RecordingStore(MemoryStore):
    def __init__(self):
        super().__init__()
        self.written = []

    async def put(self, kind, *given):
        self.written.append(kind)
        return await super().put(kind, *given)


class CompactorUnderTest:
    """A compactor, and an upstream that accepts every request and counts as a test says."""

    def __init__(self):
        self.store, self.events_seen, self.turns = RecordingStore(), [], []
        self.services = Services(self.store, Keeper(), self._record_event, redaction())
        self.compactor = Compactor(self.services)
        self.client = Client(Settings(base_url="http://127.0.0.1:9/v1", window=1_000_000), lambda _: None)
        self.lease = self.client.lease()

    def _record_event(self, event):
        """Events about blocks and faults; the end of a turn has an event each time."""
        (self.turns if isinstance(event, events.TurnEnded) else self.events_seen).append(event)

    async def prepares(
        self, messages, *headers, policy=SMALL, arm="", caller=UNIDENTIFIED, path="/chat/completions", offers=(), **more
    ):
        sent = messages if isinstance(messages, bytes) else body(messages, **more)
        call = Call("POST", path, "", (KEY, *headers), sent, caller)
        choice = PolicyChoice(offers or offer((100, "small"), policy=policy, arm=arm))
        return await self.compactor.prepare(call, sent, self.client, choice)

    async def send(self, messages, *headers, policy=SMALL, usage=None, **more) -> OutgoingRequest:
        prepared = await self.prepares(messages, *headers, policy=policy, **more)
        await self.accept(prepared)
        if prepared.driver is not None:
            await prepared.driver.finish(tail_of(usage), is_whole=True)
        return prepared

    async def accept(self, prepared):
        if prepared.driver is not None:
            await prepared.driver.advance(Opening())
        if self.compactor.may_record(prepared):
            await self.compactor.start_recording(prepared, ANSWER)

    async def leave(self):
        await self.services.close()
        self.lease.release()
        await self.client.wait_closed()


@pytest.fixture
async def compactor_under_test():
    made = CompactorUnderTest()
    yield made
    await made.leave()


async def test_a_key_in_the_place_of_a_user_or_session_is_not_recorded(compactor_under_test):
    key = "sk-proj-a1b2c3d4e5f6g7h8i9j0k1l2m3n4"
    await compactor_under_test.send(WORK, ("x-session-id", f"run of {key}"), usage={"prompt_tokens": 9}, user=key)
    (turn,) = compactor_under_test.turns
    assert (turn.user, turn.session) == ("[redacted: api-key]", "run of [redacted: api-key]")


async def test_what_one_caller_fetches_again_changes_nothing_for_another_without_teams(compactor_under_test):
    performer = (await compactor_under_test.send(WORK)).driver.performer
    (turn,) = compactor_under_test.turns
    for _ in range(RefetchWatch.FEWEST):
        await performer.note(replace(turn, refetches=1))
    again = await compactor_under_test.prepares(WORK)
    another = await compactor_under_test.prepares(WORK, ("x-api-key", "sk-b"))
    assert (await again.driver.performer.gather()).refetches_much
    assert not (await another.driver.performer.gather()).refetches_much


@pytest.mark.parametrize("switch", ["on", "still-fit", "off", "bypass"])
@pytest.mark.parametrize("arm", ["treated", "left-alone"])
async def test_a_turn_while_a_switch_is_on_is_in_no_arm(compactor_under_test, switch, arm):
    """So its conversation is not compared: it was neither left alone nor under the policy from first to last."""
    await compactor_under_test.send(WORK, caller=Caller("a", switch=switch), arm=arm)
    assert [turn.arm for turn in compactor_under_test.turns] == [arm if switch == "on" else ""]


def tail_of(usage):
    tail = AnswerEnds()
    tail.feed(json.dumps({"choices": [], "usage": usage}).encode())
    return tail


def action(prepared):
    return find_header(render_decision(prepared.decision, "cp-1"), "x-compaction")


def reason(prepared):
    return find_header(render_decision(prepared.decision, "cp-1"), "x-compaction-reason")


def conversation_of(prepared):
    return prepared.driver._forwarding.conversation


def mode(word):
    return ("x-compaction", word)


async def test_an_existing_block_applies_after_a_reload_raised_every_threshold(compactor_under_test):
    """Below them no block would be made, but what was forwarded once is forwarded again."""
    made = await compactor_under_test.send(WORK)
    raised = SMALL.model_copy(update={"clear_at_least": 10**6})
    again = await compactor_under_test.send(WORK, policy=raised)
    assert [action(made), action(again)] == ["created", "applied"]
    assert again.call.body == made.call.body


async def test_pictures_by_their_addresses_are_counted_though_they_have_few_bytes(compactor_under_test):
    messages = [{"role": "user", "content": "Look at all pages."}]
    for number in range(40):
        picture = {"type": "image", "source": {"type": "url", "url": f"https://pages.example/{number}.png"}}
        use = {"type": "tool_use", "id": f"use_{number}", "name": "show", "input": {"page": number}}
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": [picture]}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    sent = json.dumps({"model": "claude-opus-4-8", "max_tokens": 1_000, "messages": messages}).encode()
    prepared = await compactor_under_test.prepares(sent, policy=Policy(trigger_tokens=20_000), path="/messages")
    assert len(sent) < 20_000
    assert prepared.decision.tokens_before > 40_000
    assert prepared.decision.tokens_after < 20_000


async def test_the_tokenizer_is_loaded_while_histories_are_still_short(compactor_under_test):
    assert compactor_under_test.compactor._loading is None
    await compactor_under_test.send(reading(1))
    await asyncio.wait_for(compactor_under_test.compactor._loading, 60)


@pytest.mark.parametrize(
    "odd", [b"", b"null", b"{}", b'{"messages": []}', b'{"messages": [1]}', b'{"messages": [{"role": 1}]}', b"\xff"]
)
async def test_a_body_that_is_not_understood_is_relayed_unchanged(compactor_under_test, odd):
    prepared = await compactor_under_test.send(odd)
    assert (action(prepared), reason(prepared)) == ("none", "not-understood")
    assert prepared.call.body == odd


async def test_a_large_request_that_is_only_relayed_waits_for_no_thread(compactor_under_test, monkeypatch):
    monkeypatch.setattr(lifetime, "LARGE", lifetime.Lane("full", threads=1, most_waiting=-1))
    large = user("x" * 400_000)
    sent = responses_api.request(large, previous_response_id="resp_1")
    prepared = await compactor_under_test.prepares(sent, path="/responses")
    assert (reason(prepared), prepared.call.body) == ("history-elsewhere", sent)
    with pytest.raises(Overloaded):
        await compactor_under_test.prepares(responses_api.request(large), path="/responses")


async def test_a_decision_emits_events(compactor_under_test):
    prepared = await compactor_under_test.send(WORK)
    started, ended = compactor_under_test.events_seen
    conversation = find_header(render_decision(prepared.decision, "cp-1"), "x-compaction-conversation")
    before, after = prepared.decision.tokens_before, prepared.decision.tokens_after
    assert started == events.CompactionStarted(conversation, "small", "stride", before)
    assert ended.tokens_after == after < before == ended.tokens_before
    assert [name for name, messages, saved in ended.steps if messages and saved]
    assert not ended.is_observed


async def test_an_invalid_mode_is_refused_unless_the_policy_ignores_options(compactor_under_test):
    with pytest.raises(BadRequest):
        await compactor_under_test.prepares(WORK, mode("please"))
    deaf = SMALL.model_copy(update={"headers": False})
    assert action(await compactor_under_test.prepares(WORK, mode("please"), policy=deaf)) == "created"


async def test_a_request_that_says_auto_observes_where_its_policy_does_and_force_does_not(compactor_under_test):
    watching = SMALL.model_copy(update={"mode": "observe"})
    assert action(await compactor_under_test.prepares(WORK, policy=watching)) == "observed"
    assert action(await compactor_under_test.prepares(WORK, mode("force"), policy=watching)) == "created"


async def test_the_upstreams_count_is_learned_with_each_answer(compactor_under_test):
    first = await compactor_under_test.send(WORK)
    for _ in range(8):
        await compactor_under_test.send(WORK, usage={"prompt_tokens": int(first.decision.tokens_after * 1.3)})
    learned = conversation_of(await compactor_under_test.prepares(WORK)).calibration
    assert learned.ratio == pytest.approx(1.3, abs=0.02)


@pytest.mark.parametrize("has_driver", [True, False])
async def test_a_caller_is_known_by_all_its_credentials_once_an_upstream_accepted_it(compactor_under_test, has_driver):
    compactor = compactor_under_test.compactor
    callers = [
        (UNIDENTIFIED, (KEY, ("accept", "*/*")), ""),
        (UNIDENTIFIED, (("authorization", "Bearer sk-b"),), ""),
        (UNIDENTIFIED, (KEY,), "key=b"),
        (Caller(identified_by=(("x-user", "b"),)), (KEY,), ""),
    ]
    assert not any(compactor.knows(*caller) for caller in callers)
    assert compactor.knows(TEAM, (), "")
    if has_driver:
        await compactor_under_test.send(WORK)
    else:  # as after a request that is only relayed
        compactor.note_accepted(Call("POST", "/embeddings", "", (KEY,), b"", UNIDENTIFIED))
    assert [compactor.knows(*caller) for caller in callers] == [True, False, False, False]


async def test_so_many_callers_are_remembered_and_the_others_are_not_forgotten_with_the_oldest(monkeypatch):
    monkeypatch.setattr(request_context, "REMEMBERED_MAX_BYTES", 100 * ENTRY_BYTES)
    compactor = Compactor(Services(MemoryStore(), Keeper(), lambda _event: None))
    keys = [(("authorization", f"Bearer sk-{number}"),) for number in range(101)]
    for key in keys:
        compactor.note_accepted(Call("POST", "/embeddings", "", key, b"", UNIDENTIFIED))
    assert [compactor.knows(UNIDENTIFIED, key, "") for key in keys] == [False, *[True] * 100]


async def test_a_turn_of_a_small_history_is_noted_without_a_turn_of_the_event_loop(compactor_under_test):
    """The client may send its next request at once, to this worker or another: it needs what this turn leaves."""
    prepared = await compactor_under_test.prepares(WORK)
    await compactor_under_test.accept(prepared)
    compactor_under_test.store.written.clear()

    note = prepared.driver.finish(tail_of({"prompt_tokens": 900}), is_whole=True)
    with pytest.raises(StopIteration):
        note.send(None)

    assert Kind.FACT in compactor_under_test.store.written


async def test_a_small_request_has_come_before_the_refusal_that_gives_it_a_driver(compactor_under_test):
    """An order to delete that was given between the two covers it."""
    prepared = await compactor_under_test.prepares(user("Hello?"))
    started = await prepared.start_driver()
    assert (await started.driver.performer.gather()).now == prepared.since


async def test_under_a_rollout_a_body_is_read_once_and_a_conversation_keeps_its_policy(
    compactor_under_test, monkeypatch
):
    parse, bodies = chat_api.ChatFormat.parse, []

    def note(requests, source, prefix=None):
        bodies.append(source)
        return parse(requests, source, prefix)

    monkeypatch.setattr(chat_api.ChatFormat, "parse", note)
    offers, policies = offer((50, "a"), (100, "b")), []
    for task in range(20):
        for steps in (15, 16):
            messages = [*user(f"Task {task}."), *reading(steps)[2:]]
            prepared = await compactor_under_test.prepares(messages, offers=offers)
            policies.append(prepared.decision.policy)
    assert policies[::2] == policies[1::2]
    assert {*policies} == {"a", "b"}
    assert len(bodies) == len(policies)


async def test_a_stream_is_asked_for_its_usage_unless_its_client_asks_or_its_upstream_has_refused(compactor_under_test):
    async def may_ask(**more):
        prepared = await compactor_under_test.prepares(WORK, **more)
        return prepared.driver.performer, (await prepared.driver.performer.gather()).may_ask_usage

    _, whole = await may_ask()
    _, asks_itself = await may_ask(stream=True, stream_options={"include_usage": True})
    performer, streamed = await may_ask(stream=True)
    compactor_under_test.services.refused_options.add(performer.scope, "usage-option")
    _, refused = await may_ask(stream=True)
    assert (whole, asks_itself, streamed, refused) == (False, False, True, False)


async def test_the_headers_of_a_request_choose_no_arm_if_the_policies_ignore_them(compactor_under_test):
    plain = SMALL.model_copy(update={"headers": False})
    offers, chosen = offer((50, "a"), (100, "b"), policy=plain), set()
    for number in range(16):
        headers = ("x-conversation-id", str(number)), ("x-compaction", "whatever")
        prepared = await compactor_under_test.prepares(WORK, *headers, offers=offers)
        chosen.add(prepared.driver.policy.rules.policy)
    assert len(chosen) == 1
