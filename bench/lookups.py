"""How often the store is asked for one request, and how many tokens a history has: the proxy's own parts, counted."""

from collections.abc import Sequence
from pathlib import Path

from longwork import Work

from proxy.config.policies import Policy
from proxy.config.settings import Upstream
from proxy.models.tokenizer import Tokenizers
from proxy.serve.compactor import Compactor
from proxy.serve.request_context import CompiledPolicy, PolicyChoice, PolicyOffer
from proxy.serve.services import Keeper, Services
from proxy.store.contract import Found
from proxy.store.sqlite import SqliteStore
from proxy.upstream.client import Call, Client

SHORTENED_SOON_TOKENS = 40_000
ANY = Upstream(base_url="http://127.0.0.1:9/v1")


class Counting(SqliteStore):
    """The real store, with an eye on how often it is asked."""

    looked = 0

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        self.looked += 1
        return await super().find_first(blocks, facts, *more)

    async def read_fact(self, key: str) -> bytes | None:
        self.looked += 1
        return await super().read_fact(key)


async def look_ups(place: Path) -> tuple[int, int]:
    """For the last request of an agent that is looked up only once, and for its first one above."""
    policy, work = Policy(), Work(2, page=1_000)
    below = work.body()
    while await tokens(work.grown()) < SHORTENED_SOON_TOKENS:
        below = work.body()
    return await _ask_compactor(place / "below", policy, below), await _ask_compactor(
        place / "above", policy, work.body()
    )


async def tokens(work: Work) -> int:
    tokenizers = Tokenizers()
    return sum(await tokenizers.of("bench-1").count_all(work.pieces))


async def _ask_compactor(place: Path, policy: Policy, body: bytes) -> int:
    store = Counting(place / "promises.sqlite")
    services = Services(store, Keeper(), lambda _: None)
    compactor = Compactor(services)
    call = Call("POST", "/chat/completions", "", (("authorization", "Bearer sk-of-nobody"),), body)
    async with Client(ANY, lambda _: None) as client:
        offer = PolicyOffer(100, CompiledPolicy.compile("default", policy, {}))
        await compactor.prepare(call, body, client, PolicyChoice((offer,)))
        await services.close()
    return store.looked
