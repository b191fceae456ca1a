"""A proxy's operator, with the admin key in hand: `await AdminClient(proxy).read("/overview")`."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from proxy.access.registry import Records, create_team_key
from proxy.events import TurnEnded
from tests.support import http_client
from tests.support.proxy_client import PATIENCE_SECONDS, request
from tests.support.running_proxy import Proxy, serving

T = TypeVar("T")
PATIENT = {"clear_at_least": 6_000, "keep": {"tokens": 2_000}, "pins": {"markers": ["Never touch"]}}


@dataclass(frozen=True, slots=True)
class AdminClient:
    """A proxy, and its operator with the key."""

    proxy: Proxy
    own: str = ""
    """The key that the configuration names."""

    @property
    def key(self) -> str:
        return self.own or (self.proxy.state / "admin.key").read_text()

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        raw: bytes | None = None,
    ) -> http_client.Answer:
        """With the key, as a program would; `key=""`: without one."""
        shown = self.key if key is None else key
        given = {"host": f"localhost:{self.proxy.port}", **({"authorization": f"Bearer {shown}"} if shown else {})}
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        return await http_client.send(
            self.proxy.origin, request(method, path, {**given, **(headers or {})}, data), method=method
        )

    async def read(self, path: str, **how: Any) -> Any:
        """What the API answers, which must be good."""
        answer = await self.send(how.pop("method", "GET"), f"/admin/api{path}", **how)
        assert answer.status == 200, answer.body.data
        return json.loads(answer.body.data)

    async def until(self, path: str, seen: Callable[[Any], T], within: float = PATIENCE_SECONDS) -> T:
        """What a function finds in an answer, as soon as it finds anything."""
        async with asyncio.timeout(within):
            while not (found := seen(await self.read(path))):  # noqa: ASYNC110 (nothing signals it)
                await asyncio.sleep(0.05)
        return found

    async def read_error(self, status: int, method: str, path: str, **how: Any) -> dict[str, Any]:
        """The error of an answer of this status."""
        answer = await self.send(method, f"/admin/api{path}", **how)
        assert answer.status == status, answer.body.data
        return json.loads(answer.body.data)["error"]


def team_key(proxy: Proxy, team: str) -> str:
    text, key = create_team_key(team, time.time(), label=f"{team}'s")
    Records(proxy.state).change(lambda registry: registry.with_key(key))
    return text


def admin_config(upstream: str, **more: Any) -> dict[str, Any]:
    return {
        "upstreams": [{"name": "simulated", "base_url": upstream}],
        "policies": {"patient": PATIENT},
        "teams": {"platform": {}, "search": {"policy": "patient"}},
        "attachments": [{"policy": "observe", "tag": "night*"}, {"policy": "default", "tag": "nightly"}],
        "log": {"format": "json"},
        **more,
    }


@asynccontextmanager
async def idle_proxy(place: Path, **more: Any) -> AsyncIterator[AdminClient]:
    """The operator of a proxy that nobody uses: its upstream is away."""
    async with serving(None, place=place, config=admin_config("http://127.0.0.1:9/v1", **more)) as proxy:
        yield AdminClient(proxy)


TURN = TurnEnded(
    conversation="c" * 16,
    tenant="team.a",
    link="ab",
    team="a",
    key="",
    tag="",
    model="m",
    upstream="u",
    policy="default",
    policy_version="1",
    action="created",
    reason="stride",
    messages=3,
    tokens_before=100,
    tokens_after=40,
    tokens_would_be=40,
    tokens_unshortened=100,
    refetches=0,
    prompt_tokens=40,
    cached_tokens=30,
    output_tokens=5,
    paid_dollars=0.1,
    plain_dollars=0.2,
    would_be_dollars=0.1,
)
"""A request, as the activity log records it."""


async def until_open(proxy: Proxy, text: str) -> None:
    """A key counts within a tenth of a second."""
    asked = request("GET", "/v1/models", {"authorization": f"Bearer {text}"})
    while (await http_client.send(proxy.origin, asked, method="GET")).status == 401:
        pass
