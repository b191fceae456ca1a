"""Requests that were read lately are known again, by their caller only, and in bounded memory."""

import gc
import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
from msgspec import Struct

from proxy.foundation.lru import ByteBoundedCache
from proxy.serve.services import Keeper, Services
from proxy.store.contract import StoreLimits
from proxy.store.memory_store import FallbackStore, MemoryStore
from proxy.store.transcripts.files import REMEMBERED_BYTES, History
from proxy.store.transcripts.writer import OriginalsWriter
from proxy.wire import known_requests
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.json_body import find_prefix
from proxy.wire.known_requests import KnownRequests
from proxy.wire.messages_api import MESSAGES_FORMAT
from tests.support.apis import each_api
from tests.support.compaction_worker import Worker
from tests.support.messages import body, call, history, system, tool, user

ONE, OTHER = 1, 2
LONG = history(system("You help."), user("Mend it."), *(call("Read", path=f"{n}.py", out="x" * 900) for n in range(20)))
MORE = history(call("Bash", command="ls"))


def read(known, caller, source, wire=CHAT_FORMAT):
    """How many of its messages were known; it is read as if none were."""
    prefix = known.find_prefix(caller, source, wire)
    request = wire.parse(source, prefix)
    assert request == wire.parse(source)
    known.add(caller, request, prefix)
    return 0 if prefix is None else prefix.count


def test_a_history_that_goes_on_is_known_to_its_caller_only():
    known = KnownRequests()
    assert read(known, ONE, body(LONG)) == 0
    assert read(known, OTHER, body(LONG)) == 0
    assert read(known, ONE, body(LONG + MORE)) == len(LONG)
    assert read(known, ONE, body(LONG + MORE + MORE)) == len(LONG + MORE)


def test_a_history_of_one_message_is_known_without_its_tools():
    known, first = KnownRequests(), history(user("Mend it. " * 90))
    assert read(known, ONE, body(first, tools=[tool("Read")] * 300)) == 0
    assert known._requests.bytes < 2 * len(body(first)) + 1_500
    assert read(known, ONE, body(first + MORE, tools=[tool("Read")] * 300)) == 1


def test_the_longest_of_several_is_found():
    known = KnownRequests()
    branches = [LONG + history(user(word), *[call("Bash", command=word)] * 6) for word in ("a", "b", "c")]
    for branch in branches:
        read(known, ONE, body(branch))
    assert [read(known, ONE, body(branch + MORE)) for branch in branches] == [len(branch) for branch in branches]


def test_a_history_that_goes_on_takes_the_place_of_the_one_before():
    known = KnownRequests()
    for steps in range(30):
        source = body(LONG + MORE * steps)
        read(known, ONE, source)
    alone = KnownRequests()
    read(alone, ONE, source)
    assert known._requests.bytes == alone._requests.bytes


@each_api
def test_a_byte_that_changed_is_noticed_however_long_ago_it_was_read(api):
    known, source = KnownRequests(), b""
    for steps in range(40):
        source = api.write(LONG + MORE * steps)
        prefix = known.find_prefix(ONE, source, api.wire)
        assert prefix is not None or not steps
        known.add(ONE, api.wire.parse(source, prefix), prefix)
    start = api.wire.find_first_message(source)
    whole = known.find_prefix(ONE, source, api.wire)
    for place in range(start, whole.stop - 1, 97):
        other = source[:place] + bytes([source[place] ^ 1]) + source[place + 1 :]
        prefix = known.find_prefix(ONE, other, api.wire)
        assert prefix is None or prefix.stop <= place


@each_api
def test_a_history_is_known_whether_a_system_prompt_stands_before_it_or_not(api):
    known, turns = KnownRequests(), [LONG, LONG[1:], LONG + MORE, LONG[1:] + MORE, LONG[1:] + MORE, LONG + MORE + MORE]
    for turn in turns:
        source = api.write(turn)
        read(known, ONE, source, api.wire)
        again = known.find_prefix(ONE, source, api.wire)
        assert again is not None
        assert again.stop > len(source) - 900


@each_api
def test_what_stands_in_another_list_of_that_name_is_not_taken_for_the_history(api):
    known, word = KnownRequests(), b"q" * 3_000
    source = api.write([*LONG[1:2], *user(word.decode()), *LONG[2:]])
    read(known, ONE, source, api.wire)
    changed = source.replace(word, b"".join((word[:40], b"z", word[41:])))
    read(known, ONE, b'{"metadata":%b,%b' % (source, changed[1:]), api.wire)
    read(known, ONE, source, api.wire)


def test_a_history_that_was_set_back_is_known_when_it_is_set_back_further():
    known, other = KnownRequests(), user("Do it otherwise.")
    assert [read(known, ONE, body(LONG[:stop] + other)) for stop in (42, 36, 30)] == [0, 36, 30]


def test_a_history_takes_one_place_however_often_it_comes():
    known = KnownRequests()
    read(known, ONE, body(LONG))
    once = known._requests.bytes
    prefixes = [known.find_prefix(ONE, body(LONG), CHAT_FORMAT) for _ in range(9)]
    for prefix in prefixes:
        known.add(ONE, CHAT_FORMAT.parse(body(LONG), prefix), prefix)
    assert known._requests.bytes == once


def test_one_caller_displaces_its_own_and_what_is_too_large_is_not_kept():
    size = len(body(LONG))
    known = KnownRequests(most_bytes=30 * size)
    read(known, OTHER, body(LONG))
    for number in range(20):
        read(known, ONE, body([*LONG[:1], *user(f"Do {number}."), *LONG[2:]]))
    assert known.find_prefix(OTHER, body(LONG), CHAT_FORMAT) is not None
    assert known._requests.bytes <= 30 * size
    huge = history(user("Mend it."), *(call("Read", path=f"{n}.py", out="x" * 9000) for n in range(40)))
    read(known, ONE, body(huge))
    assert known.find_prefix(ONE, body(huge), CHAT_FORMAT) is None


def test_requests_that_come_once_keep_no_conversation_of_their_caller_out():
    known = KnownRequests(most_bytes=60 * len(body(LONG)))
    counts = []
    for number in range(200):
        read(known, ONE, body(user(f"{number}: which language is this? " * 100)))
        if number >= 100 and number % 10 == 0:
            counts.append(read(known, ONE, body(LONG + MORE * len(counts))))
    assert all(counts[1:])


def test_nobody_outside_of_the_process_can_compute_the_hash_of_a_known_history():
    show_hash = "from proxy.foundation.lru import hash_bytes; print(hash_bytes(memoryview(b'a history')))"
    command, variables = [sys.executable, "-c", show_hash], {"PYTHONHASHSEED": "0"}
    hashes = [subprocess.run(command, env=variables, check=True, capture_output=True).stdout for _ in range(2)]
    assert hashes[0] != hashes[1]


def test_requests_of_another_api_are_passed_over():
    """What a chat request and one of Messages begin with may be the same bytes."""
    known, source = KnownRequests(), body(LONG[1:])
    known.add(ONE, CHAT_FORMAT.parse(source), None)
    assert known.find_prefix(ONE, source, CHAT_FORMAT) is not None
    assert known.find_prefix(ONE, source, MESSAGES_FORMAT) is None


def reach(root):
    """Everything that is reached from here, but for code."""
    reached, waiting = {}, [root]
    while waiting:
        value = waiting.pop()
        if id(value) in reached or callable(value) or isinstance(value, ModuleType):
            continue
        reached[id(value)] = value
        waiting += gc.get_referents(value)
        if isinstance(value, Struct):  # a message is not known to the collector
            waiting += [getattr(value, name) for name in value.__struct_fields__]
    return reached.values()


@each_api
def test_what_a_history_is_weighed_at_is_what_it_takes(api):
    """Each text is there once, in the chat message that says the same as the client's."""
    worker = Worker(wire=api.wire, write=api.write, known=KnownRequests())
    calls = [call("Read", path=f"{number}.py", out=f"{number}" * 9_000) for number in range(10, 30)]
    messages = history(system("You help. " * 900), user("Mend it."), *calls)
    for turn in range(3):
        worker.send(messages + MORE * turn, tools=[tool("Read")] * 300)
    taken = sum(map(sys.getsizeof, reach(worker.known._requests)))
    assert len(api.write(messages)) < taken < 1.3 * len(api.write(messages))
    assert worker.known._requests.bytes == pytest.approx(taken, rel=0.1)


@each_api
@pytest.mark.parametrize("turns", [0, 9])
def test_what_is_outside_of_a_history_is_not_kept_besides(api, turns):
    """Neither of a history of one message, nor if the bytes between its messages are not always the same."""

    def write_irregularly(messages, **more):
        source = api.write(messages, **more)
        answer = rb', (?=\{"role": "assistant"|\{"type": "function_call")'
        return re.sub(answer, b",\n", source, count=1) if turns else source

    worker = Worker(wire=api.wire, write=write_irregularly, known=KnownRequests())
    worker.send(history(system("You help. " * 900), user("Mend it. " * 90)) + MORE * turns, tools=[tool("Read")] * 300)
    taken = sum(map(sys.getsizeof, reach(worker.known._requests)))
    assert taken < worker.known._requests.bytes + 4_000


@each_api
def test_a_history_that_waits_to_be_written_takes_its_bytes_once(api):
    request = api.wire.parse(api.write(history(user("Mend it."), *[call("Read", path="a.py", out="x" * 90_000)] * 9)))
    queue = SimpleNamespace(keep_later=lambda _, read, __: read())
    queued_history = OriginalsWriter.keep(queue, History("tenant", [b"link"] * 20, request))
    size = len(request.source)
    assert size < sum(map(sys.getsizeof, reach(queued_history))) < 1.1 * size


def test_what_a_worker_keeps_for_its_conversations_takes_350_mb_at_most():
    """Without the blocks of policies that store no text, whose bound is the setting `state.mib`."""
    nothing = MemoryStore(StoreLimits(block_bytes=0, fact_bytes=0))
    services = Services(FallbackStore(nothing), Keeper(), lambda _event: None, memory=nothing)
    caches = [value for value in reach(services) if isinstance(value, ByteBoundedCache)]
    bounds = [cache._max_bytes for cache in caches if cache._max_bytes < sys.maxsize]
    assert len(bounds) > 10
    counts = 132 * services.tokenizers.remembered_counts
    assert sum(bounds) + counts + REMEMBERED_BYTES <= 350_000_000


def test_of_many_conversations_of_one_caller_only_a_few_are_compared(monkeypatch):
    """A gateway asks for all its users with one key."""
    known, compared = KnownRequests(), []
    histories = [
        history(system("You help."), *[call("Bash", command="make", out=f"{number} failed. " * 60)] * 12)
        for number in range(500)
    ]
    for each in histories:
        read(known, ONE, body(each))
    monkeypatch.setattr(known_requests, "find_prefix", lambda *given: compared.append(given) or find_prefix(*given))
    for each in histories:
        assert read(known, ONE, body(each + MORE)) == len(each)
    assert len(histories) <= len(compared) < 10 * len(histories)
