"""Two conversations as the proxy saves them: one is forked, one has long results and a secret."""

import asyncio
from pathlib import Path

from proxy.store.contract import SystemClock
from proxy.store.sqlite import SqliteStore
from proxy.wire.redaction import redaction
from tests.support.completions import call_turn, text_turn
from tests.support.messages import KEY, assistant, call, chat, system, user
from tests.support.transcripts import exchange, history_of, keep, originals

CANARY = "sk-canary-7d1e5a"
BIG = "a line of output\n" * 400
READS = [call("Read", path=f"src/{name}.py", out=f"{name}: {BIG}") for name in ("alpha", "beta", "gamma", "delta")]
HELLO = chat(user("Hello there"))
FIRST, SECOND = (chat(user("Hello there"), assistant("Hi."), user(text)) for text in ("And now?", "No, this: zebra"))
WORK = chat(system("You are terse."), user("Read them all."), *READS, user(f"The key is {CANARY}."))


def name_of(source: bytes) -> str:
    return history_of(source).conversation


NAMES = {"HELLO": name_of(HELLO), "WORK": name_of(WORK), "FIRST": history_of(FIRST).links[-1].hex()}


def save_conversations(state: Path) -> None:
    """And the store that made their chains."""
    now = 1_700_000_000
    clock = SystemClock(lambda: now)
    with originals(state / "originals", clock=clock, redaction=redaction()) as kept:
        work_answer = call_turn("Bash", command='ls; echo "done"') + text_turn("Let me look.")
        for one in (
            exchange(HELLO),
            exchange(FIRST, text_turn("Now this.").using(120, 7)),
            exchange(SECOND),
            exchange(WORK, work_answer),
        ):
            keep(kept, one)
            now += 60
    store_blocks(state, {})


def store_blocks(state: Path, blocks: dict[str, bytes]) -> None:
    """The store with the key of these chains, and these blocks."""

    async def fill() -> None:
        store = SqliteStore(state / "promises.sqlite")
        await store.load_secret(KEY)
        for key, value in blocks.items():
            await store.put_block(key, value)
        await store.close()

    asyncio.run(fill())
