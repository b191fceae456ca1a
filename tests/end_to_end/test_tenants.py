"""What a client can tell of another one: nothing, be it by headers, errors, time, or what is forwarded for it."""

import functools
import gc
import secrets
from itertools import count

import pytest

from proxy.upstream.client import Call
from tests.support.agent import reading, turns
from tests.support.apis import each_api
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import assistant, body, call, history, system, user
from tests.support.overflow_replies import overflow
from tests.support.proxy_client import ask
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, text_turn
from tests.support.summary_model import SMALL_WINDOW_SETTINGS, WORK, account, asks_for_summary, model

SMALL = {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}
# Other ones in any two answers; the conversation's name is made with a secret of the proxy's own.
OF_EACH_ANSWER = {b"date", b"x-compaction-request-id", b"x-compaction-conversation"}


def words(number):
    """Words that were never sent before."""
    return " ".join(secrets.token_hex(4) for _ in range(number))


def new_work():
    """A history of which no line was ever sent: not its head, no name of a tool, no short message and no long one."""
    instructions = "\n".join(f"{words(8)} {number}:30, {number % 100} % of the time" for number in range(200))
    pieces = [
        piece
        for number in range(20)
        for piece in (call(f"fs.{words(1)}", path=words(3), out=words(30 + number % 2 * 300)), assistant(words(20)))
    ]
    return history(system(instructions), user(words(20)), *pieces, user(words(10)))


def list_caches():
    """Every `lru_cache` of the proxy."""
    gc.collect()
    kind = functools._lru_cache_wrapper
    return [each for each in gc.get_objects() if isinstance(each, kind) and each.__module__.startswith("proxy.")]


@pytest.mark.seconds
@each_api
async def test_no_cache_of_the_process_knows_what_another_tenant_has_sent(up, tmp_path, api):
    """An `lru_cache` has one memory for all callers: nothing that is looked up there may come out of a request."""
    up.script = text_turn("Go on.")
    async with GatewayInProcess(up, tmp_path, policies={"default": SMALL}) as served:

        async def send(messages):
            """Send this as a tenant of its own."""
            await served.relay(
                Call("POST", api.path, "", (("authorization", f"Bearer {words(1)}"),), api.write(messages))
            )
            await served.notes.wait_idle()

        async def count_hits_after(first, second):
            await send(first)
            before = [cache.cache_info().hits for cache in watched]
            await send(second)
            hits = [cache.cache_info().hits - earlier for cache, earlier in zip(watched, before, strict=True)]
            return dict(zip(map(str, watched), hits, strict=True))

        await send(new_work())
        watched, same = list_caches(), new_work()
        assert await count_hits_after(same, same) == await count_hits_after(new_work(), new_work())
        assert [turn.action for turn in served.turns] == ["created"] * 5
        assert served.faults == []


def refuse_long(request):
    """An upstream with a small window, which is not configured."""
    return overflow("openai") if len(request.body) > 20_000 else text_turn("Go on.")


@pytest.mark.seconds
async def test_answers_and_errors_are_the_same_whether_or_not_another_tenant_has_sent_the_same(tmp_path):
    work = reading(24)

    async def send_all(proxy, up, key):
        seen = []
        for messages in [*turns(work)][12:]:
            asked = len(up.requests)
            answer = await ask(proxy, body(messages), headers={"authorization": f"Bearer {key}"})
            headers = [pair for pair in answer.head.headers if pair[0].lower() not in OF_EACH_ANSWER]
            forwarded = [request.body for request in up.requests[asked:] if request.body]
            seen.append((answer.status, headers, answer.body.data, forwarded))
            names.setdefault(key, set()).add(answer.head.first("x-compaction-conversation"))
        return seen

    names, seen = {}, []
    for others in ((), ("sk-a", "sk-c")):
        place = tmp_path / str(len(others))
        place.mkdir()
        config = {"policies": {"default": SMALL}}
        async with Upstream(refuse_long) as up, serving(up.url, config=config, place=place) as proxy:
            for key in others:
                await send_all(proxy, up, key)
            seen.append(await send_all(proxy, up, "sk-b"))
    assert seen[0] == seen[1]
    assert {len(forwarded) for *_, forwarded in seen[0]} == {1, 2}, "a refusal is learned from, by each for itself"
    assert names["sk-b"].isdisjoint(names["sk-a"])


SHOWN = {
    "authorization": ({"authorization": "Bearer sk-a"}, {"authorization": "Bearer sk-b"}),
    "operator's": ({"x-forwarded-user": "alice"}, {"x-forwarded-user": "bob"}),
}


def config(up):
    upstream = {"base_url": up.url, "window": 200_000}
    access = {"tenant_headers": ["x-forwarded-user"]}
    return {"upstreams": [upstream], "policies": {"default": SMALL_WINDOW_SETTINGS}, "access": access}


def counting():
    """A model that writes into each summary which one it is."""
    numbers = count(1)
    return model(lambda _: text_turn(account(words=f"This is summary {next(numbers)}.")))


async def force_compaction(proxy, up, headers):
    """What is forwarded for a history that is compacted by name."""
    answer = await ask(proxy, body(WORK), headers={"x-compaction": "force", **headers})
    assert answer.status == 200
    return next(request.body for request in reversed(up.requests) if not asks_for_summary(request)).decode()


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
async def test_a_summary_of_one_client_is_never_forwarded_for_another(tmp_path, shown):
    async with Upstream(counting()) as up, serving(None, config=config(up), place=tmp_path) as proxy:
        forwarded = [await force_compaction(proxy, up, headers) for headers in (shown[0], shown[1], shown[0])]
    assert ["summary 1" in each for each in forwarded] == [True, False, True]
