"""The work that is done before each server: an agent reads one file after the other, longer than the window."""

from typing import Any

from tests.end_to_end.servers.recipes import upstream_of
from tests.end_to_end.servers.server import Running, Server
from tests.support.agent import reading

# Some servers refuse a message whose content is null.
WORK = [{**message, "content": message["content"] or ""} for message in reading(40)]
# Longer than a small window, and still so short that no server is asked how large its window is.
SHORT = WORK[: 2 + 2 * 16]
ANSWER = 24


def settings(server: Server, running: Running) -> dict[str, Any]:
    return {**upstream_of(server.name, at=running.origin), "log": {"format": "json"}}
