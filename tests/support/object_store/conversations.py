"""What the tests of the object store write into it, and how they look at it."""

import json

from tests.support.messages import assistant, chat, user
from tests.support.proxy_client import until

HELLO = chat(user("Hello there"))


def turn_request(turns, first="Hello there"):
    """The request of a conversation's n-th turn."""
    return chat(user(first), *(piece for turn in range(turns) for piece in (assistant("Hm."), user(f"turn {turn}"))))


TURNS = [turn_request(turn) for turn in range(4)]


def messages(request) -> list:
    return json.loads(request)["messages"]


def object_names(bucket) -> list[str]:
    return [one.name for one in bucket.list_objects()]


def pending_files(spool) -> list[str]:
    return sorted(path.name for path in spool.rglob("*.jsonl"))


async def wait_until_sent(spool) -> None:
    await until(lambda: not pending_files(spool))
