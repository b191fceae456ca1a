"""What the store remembers of a conversation: the same for every worker, one look-up, and never in the way."""

import json
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from proxy.decide.actions import Finished, Planned
from proxy.decide.conversation import Asked, Conversation, Decision, LastRequest, SummaryCandidate, read_candidate
from proxy.decide.planning import Plan
from proxy.decide.program import take_step
from proxy.decide.remember import load_memory, remember
from proxy.history.identity import Identity, make_block_key
from proxy.history.messages import make_literal
from proxy.lab.replay.simulation import UnheardInterpreter
from proxy.serve import services
from proxy.serve.services import StoreSecret
from proxy.shorten.block import Block, Part
from proxy.shorten.economics import Calibration, StoredWindow, Window
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Anchor, Rules
from proxy.shorten.summary import Summary
from proxy.store.contract import StoreUnavailable
from proxy.store.memory_store import MemoryStore
from proxy.store.sqlite import SqliteStore
from tests.support.messages import body, parse_request, user

LINKS = tuple(bytes([number]) * 20 for number in range(12))
US = Identity("team-a", LINKS, "up/gpt-4")
THEM = replace(US, tenant="team-b")
PRIOR = Calibration(1.2)


def block(covers, text=b'{"role": "user", "content": "short"}'):
    shortened = make_literal(text, covers - 1, covers, "clear_results")
    return Block(covers, (Part(0, covers - 1), Part(covers - 1, covers, shortened)), reason="stride")


def ready_plan(block_):
    return Plan((), None, "created", block_.reason, 100, 50, block=block_, view_id=LINKS[block_.covers])


def last_time(tokens=1_000, seen=1, counter=US.counter):
    return LastRequest(Anchor(LINKS[-1], tokens, b""), 1_763_700_000.0, counter, Calibration(1.5, seen))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    kind = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "promises.sqlite")
    yield kind
    await kind.close()


class Recollection(UnheardInterpreter):
    """The look-ups and writes of the orchestration, for a stated identity, performed on a real store."""

    def __init__(self, store):
        self.kept = store

    def ask(self, identity, *, observes):
        request = parse_request(body(user("x")))
        mode = "observe" if observes else "auto"
        return Asked(request, Rules(), estimate_tokens, now=0.0, mode=mode, counter=identity.counter, prior=PRIOR)

    async def find(self, identity=US, *, observes=False):
        with patch.object(Identity, "of", return_value=identity):
            return await self.perform(load_memory(self.ask(identity, observes=observes), Rules()))

    def conversation(self, identity=US, *, observes=False):
        asked = self.ask(identity, observes=observes)
        return Conversation(asked, asked.rules, identity)

    async def store(self, block_, identity=US, *, known=None, observes=False):
        """The upstream accepts a request with this block; *known* is what was found for the request."""
        conversation = known or self.conversation(identity, observes=observes)
        await self.perform(remember(Planned(Decision("created"), conversation=conversation, plan=ready_plan(block_))))

    async def note(self, identity, last, *, first):
        await self.kept.write_fact(identity.anchor_key(identity.links[-1]), last.to_bytes(), 60)
        if first and last.calibration.observations:
            await self.kept.write_fact(identity.scale_key, last.calibration.to_bytes(), 60)

    async def candidate(self, identity):
        keys = identity.list_summary_keys()
        return read_candidate((await self.kept.find_first((), keys))[1], keys)

    async def perform(self, life):
        reply = None
        while not isinstance(step := take_step(life, reply), Finished):
            reply = await step.perform(self)
        return step.value

    async def look_up(self, blocks, facts):
        return await self.kept.find_first(blocks, *facts)

    async def store_block(self, key, block, replaces, _identity):
        return await self.kept.put_block(key, block, over=replaces)


@pytest.fixture
def recall(store):
    return Recollection(store)


def list_remembered(conversation):
    return conversation.block, conversation.last, conversation.calibration, conversation.candidate


async def test_tenants_never_meet(recall):
    await recall.store(block(2))
    await recall.note(US, last_time(), first=True)
    assert list_remembered(await recall.find(THEM)) == (None, None, PRIOR, None)


ONE, OTHER = replace(US, head="aa"), replace(US, head="bb")


def summary_block(covers, words):
    return replace(
        block(covers, json.dumps({"role": "user", "content": words}).encode()), summary=Summary(covers, words)
    )


async def stores(recall, identity, block_):
    await recall.store(block_, known=await recall.find(identity))


async def test_however_many_blocks_of_another_head_there_are_none_is_used(recall):
    for covers in range(1, len(LINKS)):
        await stores(recall, ONE, summary_block(covers, "of one"))
    assert (await recall.find(OTHER)).block is None


async def test_one_head_does_not_hide_blocks_before_its_summary(recall):
    await stores(recall, OTHER, block(2))
    await stores(recall, OTHER, summary_block(3, "of the other"))
    await stores(recall, ONE, summary_block(4, "of one"))
    await stores(recall, ONE, summary_block(5, "more of one"))
    assert (await recall.find(OTHER)).block.summary.text == "of the other"
    assert (await recall.find(replace(OTHER, head="cc"))).block == block(2)


async def test_a_deeper_block_of_a_head_takes_the_place_of_its_own(recall):
    await stores(recall, ONE, summary_block(4, "of one"))
    for words in ("of the other", "deeper"):
        await stores(recall, OTHER, summary_block(4, words))
    texts = [(await recall.find(who)).block.summary.text for who in (ONE, OTHER)]
    assert texts == ["of one", "deeper"]


async def test_a_summary_of_version_0_1_stays(recall, store):
    """It names no head. Blocks from before an upgrade are used for the same tenant and messages, as they were."""
    await store.put_block(make_block_key(US.tenant, LINKS[4]), summary_block(4, "old").to_bytes())
    assert (await recall.find(ONE)).block.summary.text == "old"


async def test_only_a_head_that_meets_another_ones_summary_looks_twice(recall, store, monkeypatch):
    await stores(recall, ONE, summary_block(4, "of one"))
    lookups, find_first = [], store.find_first

    async def count_lookups(*keys):
        lookups.append(keys)
        return await find_first(*keys)

    monkeypatch.setattr(store, "find_first", count_lookups)
    await recall.find(ONE)
    assert len(lookups) == 1
    await recall.find(OTHER)
    assert len(lookups) == 3


async def test_a_candidate_is_found_under_its_own_head_only(recall, store):
    ready = SummaryCandidate("ready", "of one").to_bytes()
    await store.write_fact(ONE.summary_key(4), ready, 60)
    assert (await recall.candidate(ONE)).text == "of one"
    assert await recall.candidate(OTHER) is None


async def test_a_deeper_block_that_cuts_where_the_last_one_did_takes_its_place(recall):
    deeper, late = block(2, b'{"role": "user"}'), block(2, b'{"role": "tool"}')
    await recall.store(block(2))
    stood_on = await recall.find()
    await recall.store(deeper, known=stood_on)
    assert (await recall.find()).block == deeper
    await recall.store(late, known=stood_on)
    assert (await recall.find()).block == deeper


async def test_a_block_at_another_place_is_not_replaced(recall):
    await recall.store(block(2))
    await recall.store(block(4), known=await recall.find())
    assert (await recall.find(replace(US, links=LINKS[:4]))).block == block(2)


async def test_an_observed_block_counts_for_observers_only(recall):
    await recall.store(block(2), observes=True)
    assert (await recall.find()).block is None
    seen = await recall.find(observes=True)
    assert seen.block == block(2)
    assert seen.is_block_observed


async def test_a_block_in_force_comes_before_an_observed_one(recall):
    await recall.store(block(4), observes=True)
    await recall.store(block(2))
    seen = await recall.find(observes=True)
    assert seen.block == block(2)
    assert not seen.is_block_observed


async def test_the_newest_time_counts(recall):
    await recall.note(replace(US, links=LINKS[:3]), last_time(500), first=True)
    await recall.note(US, last_time(900), first=False)
    assert (await recall.find()).last == last_time(900)


async def test_the_lessons_of_one_conversation_start_the_next(recall):
    await recall.note(US, last_time(), first=True)
    stranger = replace(US, links=(LINKS[0], *(link[::-1] + b"!" for link in LINKS[1:])))
    assert list_remembered(await recall.find(stranger)) == (None, None, Calibration(1.5, 1), None)


async def test_the_known_window_comes_with_the_same_look_up(recall, store):
    learned, warnings, _ = recall.conversation(US).model_keys
    await store.write_fact(warnings, StoredWindow(Window(total=9_000, origin="live")).to_bytes(), 60)
    assert (await recall.find()).window == Window(total=9_000, origin="live")
    await store.write_fact(learned, StoredWindow(Window(total=8_000, origin="learned")).to_bytes(), 60)
    assert (await recall.find()).window == Window(total=8_000, origin="learned")


class UnavailableStore(MemoryStore):
    """While it is away, every call is one too many."""

    away = True

    async def load_secret(self, held=None):
        if self.away:
            raise StoreUnavailable("the disk is gone")
        return await super().load_secret(held)


async def test_without_a_store_a_local_key_serves_until_it_is_back():
    store = UnavailableStore()
    secret = StoreSecret(store)
    meanwhile = await secret.get()
    assert await secret.get() == meanwhile
    store.away = False
    held = await MemoryStore.load_secret(store)
    assert await secret.get() == held != meanwhile


async def test_a_key_that_the_store_lost_is_restored_and_all_use_the_same(store, monkeypatch):
    monkeypatch.setattr(services, "SECRET_CHECK_SECONDS", 0)
    one, two = StoreSecret(store), StoreSecret(store)
    secret = await one.get()
    assert await two.get() == secret
    lost = MemoryStore()
    one._store = two._store = lost
    assert await one.get() == await two.get() == secret
    assert await StoreSecret(lost).get() == secret


async def test_the_store_has_the_last_word_on_the_key_and_is_asked_for_it_every_second(store, monkeypatch):
    kept = StoreSecret(MemoryStore())
    ours, theirs = await kept.get(), await store.load_secret()
    kept._store = store
    assert await kept.get() == ours
    monkeypatch.setattr(services, "SECRET_CHECK_SECONDS", 0)
    assert await kept.get() == theirs
