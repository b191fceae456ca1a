"""`doctor`: is the upstream there, which server is it, which windows does it tell, does a stream arrive unbuffered,
can state be kept.

It asks through the very door that requests take: whatever is in their way (DNS, a proxy, a certificate, a key) is in
its way too.
"""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from proxy.cli import options
from proxy.cli.kinds import MODELS, PAGES, UNKNOWN, Seen, kind_of, window_of
from proxy.config import Upstream
from proxy.errors import ProxyError
from proxy.upstream import Call, Client, Reply
from proxy.wire.headers import Headers

_SHORT_STREAM = {
    "messages": [{"role": "user", "content": "Count from 1 to 40, one number a line, nothing else."}],
    "stream": True,
    "max_tokens": 160,
}
_TOLD_OF = 8  # models whose windows are told: some servers have hundreds
# Chunks of a real stream are spread over its time; buffered ones arrive together at its end.
_SPREAD = 0.2
_FEW = 3

Finding = tuple[bool, str]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("doctor", help="look at the upstreams and the state directory as they are now")
    options.add_config(parser)
    parser.add_argument("--upstream", metavar="URL", help="look at this API instead of the configured ones")
    parser.add_argument("--model", metavar="M", help="ask this model for a short stream (it costs some 200 tokens)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    given: dict[options.Place, object] = {("upstreams", 0, "base_url"): args.upstream} if args.upstream else {}
    config = options.loaded(args, given).config
    key = os.environ.get("OPENAI_API_KEY", "")  # noqa: TID251 (as every client reads it)
    findings = [_state(Path(config.state.dir))]
    for settings in config.upstreams:
        findings += asyncio.run(_examine(settings, key, args.model))
    for good, text in findings:
        print(f"{'ok  ' if good else 'BAD '} {text}")  # noqa: T201
    return 0 if all(good for good, _ in findings) else 1


def _state(folder: Path) -> Finding:
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK):
        return True, f"state: {folder} can be written"
    return False, f"state: {folder} cannot be written: give another with --state, or change its owner"


async def _examine(settings: Upstream, key: str, model: str | None) -> list[Finding]:
    headers: Headers = (("authorization", f"Bearer {key}"),) if key and not settings.key else ()
    async with Client(settings, lambda _: None) as client:
        try:
            findings = await _look(client, headers)
            if model is not None and findings[0][0]:
                findings.append(await _stream(client, headers, model))
        except ProxyError as fault:
            findings = [(False, fault.message)]
    return findings


async def _look(client: Client, headers: Headers) -> list[Finding]:
    """Its list of models, and further pages only where that does not settle which server it is or what it can take."""
    name = client.settings.name
    reply, listed = await _answer(client, MODELS, headers)
    if reply.status in (401, 403):
        why = f"{name}: reachable, but refuses the key ({reply.status}): set `key`, or OPENAI_API_KEY for this check"
        return [(False, why)]
    if not isinstance(listed, dict) or not isinstance(listed.get("data"), list):
        why = f"{name}: answers {reply.status} to /models, and not as the OpenAI API does: check base_url"
        return [(False, why)]
    seen = Seen(urlsplit(client.settings.base_url).hostname or "", reply.headers, {MODELS: listed})
    for page in PAGES:
        if kind_of(seen) is None:
            seen = await _with_page(client, headers, seen, page)
    if (known := kind_of(seen)) is not None and known[0].window not in seen.pages:
        seen = await _with_page(client, headers, seen, known[0].window)
    return [_reachable(name, seen), _kind(name, seen)]


def _reachable(name: str, seen: Seen) -> Finding:
    models = [str(model.get("id")) for model in seen.models]
    told = ((model, window_of(seen, model)) for model in models[:_TOLD_OF])
    windows = ", ".join(f"{model} {window.total or window.input}" for model, window in told if window is not None)
    return True, f"{name}: reachable, {len(models)} models; windows it tells: {windows or 'none'}"


def _kind(name: str, seen: Seen) -> Finding:
    known = kind_of(seen)
    if known is None:
        return True, f"{name}: no server that is known here; {UNKNOWN}"
    kind, sign = known
    return True, f"{name}: {kind.name}, by {sign.name}; {kind.advice}"


async def _with_page(client: Client, headers: Headers, seen: Seen, path: str) -> Seen:
    """A server that does not like to be asked for it has no such page."""
    try:
        _, page = await _answer(client, path, headers)
    except ProxyError:
        return seen
    return seen if page is None else seen.and_page(path, page)


async def _answer(client: Client, path: str, headers: Headers) -> tuple[Reply, object]:
    """An answer and its JSON; None where it is no good one, or none of JSON."""
    asking = Call("GET", path.removeprefix("/v1"), "", headers, None)
    async with client.send(asking, None, at_server_root=not path.startswith("/v1/")) as reply:
        body = b"".join([chunk async for chunk in reply.chunks()])
    try:
        return reply, json.loads(body) if reply.is_good else None
    except ValueError:
        return reply, None


async def _stream(client: Client, headers: Headers, model: str) -> Finding:
    body = json.dumps({"model": model, **_SHORT_STREAM}).encode()
    began = perf_counter()
    call = Call("POST", "/chat/completions", "", (*headers, ("content-type", "application/json")), body)
    async with client.send(call, model) as reply:
        times = [at - began async for at in _arrivals(reply.chunks())]
    name = client.settings.name
    if reply.status >= 400 or not times:  # noqa: PLR2004 (the border between answers and errors)
        return False, f"{name}: answers {reply.status} to a short stream from {model}"
    spread = (times[-1] - times[0]) / times[-1]
    if len(times) < _FEW or spread < _SPREAD:
        return (
            False,
            f"{name}: the stream arrives in one piece after {times[-1]:.2f} s: something on the way buffers it",
        )
    return (
        True,
        f"{name}: streams unbuffered, {len(times)} chunks over {times[-1]:.2f} s, the first after {times[0]:.2f} s",
    )


async def _arrivals(chunks: AsyncIterator[bytes]) -> AsyncIterator[float]:
    async for _ in chunks:
        yield perf_counter()
