"""`doctor`: check the upstreams, the state and the transcripts as they are now.

It reports whether an upstream is reachable, which server it is and which settings that needs, which windows it reports,
and whether a stream arrives unbuffered. It uses the client that requests use, so a fault of DNS, a proxy, a certificate
or a key shows here too.

Which server it is, its own responses say: the servers are a table of signs that no other server shows. Gateways come
first, because they pass on signs of the servers behind them. Anthropic's API differs from the others in its headers and
in the request for a stream: `options.is_anthropic` and `_lists_as_anthropic` tell it apart.
"""

import argparse
import asyncio
import json
import re
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Any, Literal
from urllib.parse import urlsplit

from proxy import assembly
from proxy.cli import options
from proxy.cli.options import add_command
from proxy.config import Config, InvalidConfig, Upstream
from proxy.config.values import parse_state_url
from proxy.errors import ProxyError
from proxy.models.windows import PROBES, find_bundled_window
from proxy.shorten.window import Window
from proxy.store.contract import StoreUnavailable
from proxy.store.transcripts.archive import StoreFault
from proxy.summary.call import BOUND_NAMES, choose_bound_name, classify_refusal
from proxy.upstream import Call, Client, Reply
from proxy.wire.chat import refusals
from proxy.wire.delivery import read_error
from proxy.wire.http import CHAT, MESSAGES, Headers

MODELS = "/v1/models"
ADVICE_FOR_UNKNOWN = "set `window` where it reports none and its models are not known by name"
_SHORT_STREAM = {
    "messages": [{"role": "user", "content": "Count from 1 to 40, one number a line, nothing else."}],
    "stream": True,
}
# Reasoning counts towards the second one, and may take more tokens than the answer.
_ANSWER_MAX_TOKENS: Mapping[str, int] = {"max_tokens": 160, "max_completion_tokens": 2_000}
_ERROR_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_MODELS_SHOWN_LIMIT = 8  # some servers list hundreds of models
# Chunks of an unbuffered stream arrive over this share of its time at least; buffered ones arrive together at its end.
_SPREAD_SHARE = 0.2
_CHUNKS_MIN = 3
# A buffer shows only where a model needs time: a tiny one on this machine writes all its words in one go. Chunks that
# arrive over this time are not buffered either, however long the model has reasoned before them.
_TELLING_STREAM_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class ServerEvidence:
    """Responses of an upstream: its host, the headers of its list of models, its pages."""

    host: str
    headers: Headers = ()
    pages: Mapping[str, Any] = field(default_factory=dict)
    """Successful JSON responses by path."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """Rows of its list of models; none where the page is not such a list."""
        page = self.pages.get(MODELS)
        rows = page.get("data") if isinstance(page, dict) else None
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind of server, and its signs: any one of them is enough."""

    name: str
    advice: str
    """Settings it needs, in a sentence."""
    address: str = ""
    """Pattern of the end of its host's name."""
    headers: tuple[str, ...] = ()
    """Lines that begin like this."""
    owner: str = ""
    """What its models are `owned_by`."""
    column: str = ""
    """In its list of models."""
    page: tuple[str, str] = ("", "")
    """A page of its own, and a key at its top."""

    def find_sign(self, seen: ServerEvidence) -> str:
        """One of its signs that is seen; empty: there is none."""
        lines = [f"{name}: {value}".lower() for name, value in seen.headers]
        header = next((each for each in self.headers for line in lines if line.startswith(each)), "")
        path, key = self.page
        page = seen.pages.get(path)
        signs = {
            "its address": self.address and re.search(rf"(?:^|\.)(?:{self.address})$", seen.host),
            f"its header {header.partition(':')[0]}": header,
            f'"owned_by": "{self.owner}"': self.owner and any(row.get("owned_by") == self.owner for row in seen.models),
            f'"{self.column}" in its list of models': self.column and any(self.column in row for row in seen.models),
            f"its page {path}": isinstance(page, dict) and key in page,
        }
        return next((sign for sign, is_seen in signs.items() if is_seen), "")


_NOTHING_TO_SET = "nothing to set: it reports its window"
KINDS: tuple[ServerKind, ...] = (
    ServerKind(
        "LiteLLM",
        "it reports no windows: set `window` where its model names are aliases",
        headers=("x-litellm-version:", "x-litellm-call-id:"),
        page=("/health/readiness", "db"),  # its list of models comes without its headers
    ),
    ServerKind(
        "Azure",
        "set `key_header: api-key`, and `window` where a deployment is not named after its model",
        address=r"azure\.com",
        headers=("apim-request-id:",),
    ),
    ServerKind(
        "OpenAI",
        "nothing to set: its windows are known",
        address=r"api\.openai\.com",
        headers=("openai-version:",),
    ),
    ServerKind(
        "Anthropic",
        "nothing to set: its windows are known",
        address=r"api\.anthropic\.com",
        headers=("anthropic-organization-id:",),
    ),
    ServerKind("OpenRouter", _NOTHING_TO_SET, address=r"openrouter\.ai", column="top_provider"),
    ServerKind("vLLM", _NOTHING_TO_SET, owner="vllm"),
    ServerKind("SGLang", _NOTHING_TO_SET, owner="sglang"),
    ServerKind(
        "llama.cpp",
        "nothing to set: it reports the window of one slot, which is its context divided by --parallel",
        headers=("server: llama.cpp",),
        owner="llamacpp",
        page=("/props", "default_generation_settings"),
    ),
    ServerKind(
        "LM Studio",
        "nothing to set: it reports the window of a loaded model; load the model first",
        page=("/api/v0/models", "data"),
    ),
    ServerKind(
        "Ollama",
        "it truncates long prompts silently: set OLLAMA_CONTEXT_LENGTH; it reports the window of a loaded model",
        page=("/api/ps", "models"),
    ),
)


def detect_server(seen: ServerEvidence) -> tuple[ServerKind, str] | None:
    """The server and the sign it was detected by. None: unknown server."""
    return next(((kind, sign) for kind in KINDS if (sign := kind.find_sign(seen))), None)


def read_window(seen: ServerEvidence, model: str) -> Window | None:
    """The window that it reports for a model, read by the same functions that requests use."""
    windows = (read(seen.pages[path], model) for path, read in PROBES.items() if path in seen.pages)
    return next(filter(None, windows), None)


_MODEL_HELP = (
    "request a short stream from this model, of the upstream that serves it (about 200 tokens; a model that reasons "
    "may write up to 2,000)"
)
Label = Literal["ok", "WARN", "BAD"]
Finding = tuple[Label, str]
"""A label and a sentence. `WARN` leaves the exit code at 0: it works, and something should be looked at."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "doctor",
        "check the upstreams, the state and the transcripts as they are now",
        "doctor",
        "doctor --upstream http://127.0.0.1:11434 --model qwen3",
    )
    options.add_config_and_state(parser)
    options.add_json(parser)
    parser.add_argument("--upstream", metavar="URL", help="check this API instead of the configured ones")
    parser.add_argument("--model", metavar="M", help=_MODEL_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    given: dict[options.Place, object] = {("upstreams", 0, "base_url"): args.upstream} if args.upstream else {}
    config = options.load_configuration(args, given).config
    findings = [*_check_state(Path(config.state.dir)), *_check_registry(config)]
    findings += [*_check_shared_state(config), *_check_transcripts(config)]
    named = config.upstreams[0] if args.upstream else None  # it is asked whatever its `models` are
    serving = named or config.upstream_for(args.model) if args.model is not None else None
    for settings in config.upstreams:
        findings += asyncio.run(_check_upstream(settings, args.model if settings is serving else None))
    if args.model is not None and serving is None:
        advice = "name another with --model, or add it to `models` of an upstream"
        findings.append(("BAD", f"no upstream serves {args.model}: {advice}"))
    if args.json:
        options.print_json([{"label": label, "finding": text} for label, text in findings])
    for label, text in () if args.json else findings:
        print(f"{label:4} {text}")  # noqa: T201
    return 1 if any(label == "BAD" for label, _ in findings) else 0


def _check_state(folder: Path) -> Iterator[Finding]:
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir() or not assembly.can_write(nearest):
        yield "BAD", f"state: {folder} is not writable: change its owner, or name another folder with --state"
    elif nearest == folder and folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield "WARN", f"state: {folder} is writable, and open to other users of this machine: chmod 700 {folder}"
    else:
        yield "ok", f"state: {folder} is writable"


def _check_registry(config: Config) -> Iterator[Finding]:
    """Report a registry of keys and switches that `serve` would refuse to start with."""
    try:
        options.read_records(config)
    except InvalidConfig as invalid:
        yield from (("BAD", str(fault)) for fault in invalid.faults)


def _check_shared_state(config: Config) -> Iterator[Finding]:
    """Connect to the Redis that replicas share, where there is one."""
    if not assembly.state_url(config):
        return
    where = parse_state_url(assembly.state_url(config))
    try:
        assembly.read_blocks(config, ["doctor"])
    except StoreUnavailable as fault:
        yield "BAD", f"state: {fault}"
    else:
        yield "ok", f"state: {where} answers"


def _check_transcripts(config: Config) -> Iterator[Finding]:
    """Write a file to the object store of the transcripts, read it and remove it, where there is one."""
    store = assembly.open_object_store(config)
    if store is None:
        return
    name, where = f"doctor/{token_hex(8)}", config.transcripts.dir
    try:
        store.put(name, b"compaction-proxy doctor")
        store.get(name)
        store.delete(name)
    except StoreFault as fault:
        yield "BAD", f"transcripts: {where}: {fault}"
    else:
        yield "ok", f"transcripts: {where}: a file was written, read and removed"


def _lists_as_anthropic(seen: ServerEvidence) -> bool:
    """True where the list of models is one of Anthropic's API: a gateway may answer in OpenAI's form at any address."""
    return any(row.get("type") == "model" for row in seen.models)


async def _check_upstream(settings: Upstream, model: str | None) -> list[Finding]:
    """Check one upstream; with a stream from this model, where one is named."""
    headers = options.list_client_headers(settings)
    async with Client(settings, lambda _: None) as client:
        try:
            seen, findings = await _check_models(client, headers)
            if model is not None and seen is not None:
                path = MESSAGES if _lists_as_anthropic(seen) else CHAT
                findings.append(await _check_stream(client, headers, model, path))
        except ProxyError as fault:
            findings = [("BAD", fault.message)]
    return findings


async def _check_models(client: Client, headers: Headers) -> tuple[ServerEvidence | None, list[Finding]]:
    """Check the list of models; fetch further pages only where it reports no windows. None: there is no such list."""
    name = client.settings.name
    reply, listed = await _fetch(client, MODELS, headers)
    if reply.status in (401, 403):
        advice = f"set `key`, or {options.name_key_variable(client.settings)} for this check"
        return None, [("BAD", f"{name}: reachable, but it rejects the key ({reply.status}): {advice}")]
    if not isinstance(listed, dict) or not isinstance(listed.get("data"), list):
        why = f"{name}: /models answers {reply.status} and is not an OpenAI-compatible list of models: check base_url"
        return None, [("BAD", why)]
    seen = ServerEvidence(urlsplit(client.settings.base_url).hostname or "", reply.headers, {MODELS: listed})
    if not any(read_window(seen, str(model.get("id"))) for model in seen.models):
        for path in PROBES.keys() - {MODELS} | {kind.page[0] for kind in KINDS if kind.page[0]}:
            seen = await _fetch_page(client, headers, seen, path)
    return seen, [_describe_models(name, seen), _describe_server(client.settings, seen)]


def _describe_models(name: str, seen: ServerEvidence) -> Finding:
    models = [str(model.get("id")) for model in seen.models]
    reported = ((model, read_window(seen, model)) for model in models[:_MODELS_SHOWN_LIMIT])
    windows = ", ".join(f"{model} {window.total or window.input}" for model, window in reported if window is not None)
    return "ok", f"{name}: reachable, {len(models)} models; windows reported: {windows or 'none'}"


def _describe_server(settings: Upstream, seen: ServerEvidence) -> Finding:
    known, name = detect_server(seen), settings.name
    if known is None:
        models = (str(model.get("id")) for model in seen.models)
        windows = (read_window(seen, model) or find_bundled_window(model) for model in models)
        is_known = settings.window is not None or all(windows)
        return ("ok" if is_known else "WARN"), f"{name}: unknown server; {ADVICE_FOR_UNKNOWN}"
    kind, sign = known
    return "ok", f"{name}: {kind.name}, detected by {sign}; {kind.advice}"


async def _fetch_page(client: Client, headers: Headers, seen: ServerEvidence, path: str) -> ServerEvidence:
    """The evidence with this page, where the server has one."""
    try:
        _, page = await _fetch(client, path, headers)
    except ProxyError:
        return seen
    return seen if page is None else replace(seen, pages={**seen.pages, path: page})


async def _fetch(client: Client, path: str, headers: Headers) -> tuple[Reply, object]:
    """A response and its JSON; None for an error status or a body that is not JSON."""
    asking = Call("GET", path.removeprefix("/v1"), "", headers, None)
    async with client.send(asking, None, at_server_root=not path.startswith("/v1/")) as reply:
        body = b"".join([chunk async for chunk in reply.chunks()])
    try:
        return reply, json.loads(body) if reply.is_good else None
    except ValueError:
        return reply, None


@dataclass(frozen=True, slots=True)
class ShortStream:
    """A short stream that was requested: when its chunks arrived, or why it was refused."""

    status: int
    arrivals: tuple[float, ...]
    """Seconds since the request."""
    code: str = ""
    """Of the upstream's error."""
    wants_other_name: bool = False
    """It knows the bound of an answer by another name."""


async def _check_stream(client: Client, headers: Headers, model: str, path: str) -> Finding:
    name = client.settings.name
    bound = choose_bound_name(model) if path == CHAT else "max_tokens"
    stream = await _request_stream(client, headers, model, path, bound)
    if stream.wants_other_name and path == CHAT:
        other = next(each for each in BOUND_NAMES if each != bound)
        stream = await _request_stream(client, headers, model, path, other)
    times = stream.arrivals
    if stream.status >= 400 or not times:  # noqa: PLR2004 (errors begin at 400)
        code = f" ({stream.code})" if stream.code else ""
        return "BAD", f"{name}: a short stream from {model} failed with status {stream.status}{code}"
    spread = times[-1] - times[0]
    if len(times) >= _CHUNKS_MIN and (spread >= _TELLING_STREAM_SECONDS or spread >= times[-1] * _SPREAD_SHARE):
        timing = f"{len(times)} chunks in {times[-1]:.2f} s, the first after {times[0]:.2f} s"
        return "ok", f"{name}: streams unbuffered: {timing}"
    if times[-1] < _TELLING_STREAM_SECONDS:
        return "WARN", f"{name}: streams; complete after {times[-1]:.2f} s, too fast to tell whether a proxy buffers"
    return "BAD", f"{name}: the stream arrives in one piece after {times[-1]:.2f} s: a proxy on the way buffers it"


async def _request_stream(client: Client, headers: Headers, model: str, path: str, bound: str) -> ShortStream:
    """Request a short stream, whose answer is bounded by this parameter."""
    body = json.dumps({"model": model, **_SHORT_STREAM, bound: _ANSWER_MAX_TOKENS[bound]}).encode()
    call = Call("POST", path, "", (*headers, ("content-type", "application/json")), body)
    began = perf_counter()
    async with client.send(call, model) as reply:
        if reply.is_good:
            return ShortStream(reply.status, tuple([at - began async for at in _arrivals(reply.chunks())]))
        _, refused = await classify_refusal(reply)
        code = _find_code(await reply.peek(lambda read: len(read) > refusals.BODY_MAX_BYTES) or b"")
    return ShortStream(reply.status, (), code, wants_other_name=refused is not None and refused.wants_other_name)


def _find_code(body: bytes) -> str:
    """The code of an upstream's error, or its type; nothing else of it is shown: its message may quote a key."""
    error = read_error(body)
    named = (error.get("code"), error.get("type"))
    return next((name for name in named if isinstance(name, str) and _ERROR_CODE.fullmatch(name)), "")


async def _arrivals(chunks: AsyncIterator[bytes]) -> AsyncIterator[float]:
    async for _ in chunks:
        yield perf_counter()
