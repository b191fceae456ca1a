"""`doctor`: is the upstream there, which windows does it tell, does a stream arrive unbuffered, can state be kept.

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
from typing import Any

from proxy.cli import options
from proxy.config import Upstream
from proxy.errors import ProxyError
from proxy.upstream import Call, Client
from proxy.wire.headers import Headers

_SHORT_STREAM = {
    "messages": [{"role": "user", "content": "Count from 1 to 40, one number a line, nothing else."}],
    "stream": True,
    "max_tokens": 160,
}
# What servers call the size of a model's window, in /v1/models.
_WINDOW_KEYS = ("context_length", "max_model_len", "context_window", "max_context_length", "loaded_context_length")
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
    client = Client(settings, lambda _: None)
    headers: Headers = (("authorization", f"Bearer {key}"),) if key and not settings.key else ()
    try:
        findings = [await _models(client, headers)]
        if model is not None and findings[0][0]:
            findings.append(await _stream(client, headers, model))
    except ProxyError as fault:
        findings = [(False, fault.message)]
    await client.retire()
    return findings


async def _models(client: Client, headers: Headers) -> Finding:
    reply = await client.send(Call("GET", "/models", "", headers, None), None)
    body = b"".join([chunk async for chunk in reply.chunks()])
    await reply.close()
    name = client.settings.name
    if reply.status in (401, 403):
        return (
            False,
            f"{name}: reachable, but refuses the key ({reply.status}): set `key`, or OPENAI_API_KEY for this check",
        )
    try:
        told = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError):
        return False, f"{name}: answers {reply.status} to /models, and not as the OpenAI API does: check base_url"
    windows = ", ".join(filter(None, map(_window, told[:8])))
    return True, f"{name}: reachable, {len(told)} models; windows it tells: {windows or 'none'}"


def _window(model: dict[str, Any]) -> str | None:
    size = next((model[key] for key in _WINDOW_KEYS if isinstance(model.get(key), int)), None)
    return f"{model.get('id')} {size}" if size else None


async def _stream(client: Client, headers: Headers, model: str) -> Finding:
    body = json.dumps({"model": model, **_SHORT_STREAM}).encode()
    began = perf_counter()
    call = Call("POST", "/chat/completions", "", (*headers, ("content-type", "application/json")), body)
    reply = await client.send(call, model)
    times = [at - began async for at in _arrivals(reply.chunks())]
    await reply.close()
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
