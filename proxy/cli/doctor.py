"""`doctor`: check the upstreams, the state and the transcripts as they are now.

It uses the client that requests use, so a fault of DNS, a proxy, a certificate or a key shows here too. What a server
is, the table `KINDS` says: gateways come first in it, because they pass on signs of others.
"""

import argparse
import asyncio
import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from proxy import assembly
from proxy.cli import options
from proxy.config.faults import InvalidConfig, Place
from proxy.config.settings import Config, Upstream
from proxy.config.state_url import parse_state_url
from proxy.config.values import reveal
from proxy.foundation.errors import ProxyError
from proxy.models.windows import PROBES, is_known_model
from proxy.serve.summaries import classify_failure
from proxy.shorten.economics import Window
from proxy.store.contract import StoreUnavailable
from proxy.store.transcripts.archive import StoreFault
from proxy.upstream.client import Call, Client, Reply
from proxy.wire.api_format import ApiFormat
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.event_streams import read_error
from proxy.wire.http_head import Headers
from proxy.wire.json_body import as_object, read_json
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.refusals import BODY_MAX_BYTES

MODELS = "/v1/models"


class ServerEvidence(Struct, frozen=True):
    host: str
    headers: Headers = ()
    """The headers of the answer that lists the models."""
    pages: dict[str, Any] = field(default_factory=dict)
    """The JSON of each page that was asked for, by path; None if there is none."""

    @property
    def models(self) -> list[dict[str, Any]]:
        rows = as_object(self.pages.get(MODELS)).get("data", [])
        return [row for row in rows if isinstance(row, dict)]

    def read_windows(self) -> dict[str, Window]:
        windows: dict[str, Window] = {}
        for row in self.models:
            model = str(row.get("id"))
            for path, read_window in PROBES.items():
                window = read_window(self.pages.get(path), model)
                if window is not None:
                    windows.setdefault(model, window)
        return windows

    def list_signs(self) -> set[str]:
        signs = set()
        domain = self.host
        while domain:
            signs.add(f"address {domain}")
            domain = domain.partition(".")[2]
        for name, value in self.headers:
            signs |= {f"header {name}".lower(), f"header {name}: {value}".lower()}
        for row in self.models:
            signs.add(f"model with owned_by: {row.get('owned_by')}")
            for name in row:
                signs.add(f"model with {name}")
        for path, page in self.pages.items():
            for name in as_object(page):
                signs.add(f"page {path} with {name}")
        return signs


KINDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "LiteLLM": (
        # Its list of models comes without its headers.
        ("header x-litellm-version", "header x-litellm-call-id", "page /health/readiness with db"),
        "it reports no windows: set `window` where its model names are aliases",
    ),
    "Azure": (
        ("address azure.com", "header apim-request-id"),
        "set `key_header: api-key`, and `window` where a deployment is not named after its model",
    ),
    "llama.cpp": (
        ("header server: llama.cpp", "model with owned_by: llamacpp", "page /props with default_generation_settings"),
        "it reports the window of one slot, which is its context divided by --parallel",
    ),
    "LM Studio": (
        ("page /api/v0/models with data",),
        "it reports the window of a loaded model; load the model first",
    ),
    "Ollama": (
        ("page /api/ps with models",),
        "it truncates long prompts silently: set OLLAMA_CONTEXT_LENGTH; it reports the window of a loaded model",
    ),
}
"""Servers that need a setting or a warning: their signs, of which one is enough, and the advice. Others report their
windows, or their models are known by name."""


def detect_server(evidence: ServerEvidence) -> tuple[str, str, str] | None:
    """Return the name of the server, the sign that shows it, and the advice."""
    signs = evidence.list_signs()
    for name, (own_signs, advice) in KINDS.items():
        for sign in own_signs:
            if sign in signs:
                return name, sign, advice
    return None


Finding = tuple[Literal["ok", "WARN", "BAD"], str]
"""The result of a check and its sentence. `WARN` leaves the exit code at 0."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = options.add_command(
        commands,
        "doctor",
        "check the upstreams, the state and the transcripts as they are now",
        "doctor",
        "doctor --upstream http://127.0.0.1:11434 --model qwen3",
    )
    options.add_config_and_state(parser)
    options.add_json(parser)
    parser.add_argument("--upstream", metavar="URL", help="check this API in place of the first configured one")
    parser.add_argument(
        "--model",
        metavar="M",
        help="request a short stream from this model, of the upstream that serves it (about 200 tokens; a model that "
        "reasons may write up to 2,000)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    overrides: dict[Place, object] = {}
    if args.upstream:
        overrides["upstreams", 0, "base_url"] = args.upstream
    loaded_config = options.load_configuration(args, overrides)
    options.print_warnings(loaded_config)
    config = loaded_config.config
    findings = [*_check_state(config), *_check_transcripts(config)]
    serving = None
    if args.model is not None and args.upstream:
        serving = config.upstreams[0]  # its `models` do not matter
    elif args.model is not None:
        serving = config.upstream_for(args.model)
    for upstream in config.upstreams:
        findings += asyncio.run(_check_upstream(upstream, args.model if upstream is serving else None))
    if args.model is not None and serving is None:
        advice = "name another with --model, or add it to `models` of an upstream"
        findings.append(("BAD", f"no upstream serves {args.model}: {advice}"))
    if args.json:
        options.print_json([{"label": label, "finding": text} for label, text in findings])
    else:
        for label, text in findings:
            print(f"{label:4} {text}")  # noqa: T201
    return int(any(label == "BAD" for label, _ in findings))


def _check_state(config: Config) -> Iterator[Finding]:
    """Check the state folder, the registry of keys in it, and the state that replicas share."""
    folder = Path(config.state.dir)
    nearest = folder.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if why := assembly.find_write_fault(nearest):
        advice = "change its owner, make room on its disk, or name another folder with --state"
        yield "BAD", f"state: {folder} is not writable ({why}): {advice}"
    elif folder.exists() and folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield "WARN", f"state: {folder} is writable, and open to other users of this machine: chmod 700 {folder}"
    else:
        yield "ok", f"state: {folder} is writable"
    try:
        options.read_records(config)
    except InvalidConfig as invalid:
        for fault in invalid.faults:
            yield "BAD", str(fault)
    url = reveal(config.state.url)
    if not url:
        return
    try:
        assembly.read_blocks(config, ["doctor"])
    except StoreUnavailable as unavailable:
        yield "BAD", f"state: {unavailable}"
    else:
        yield "ok", f"state: {parse_state_url(url)} answers"


def _check_transcripts(config: Config) -> Iterator[Finding]:
    store = assembly.open_object_store(config)
    if store is None:
        return
    name, folder = f"doctor/{token_hex(8)}", config.transcripts.dir
    try:
        store.put(name, b"compaction-proxy doctor")
        store.get(name)
        store.delete(name)
    except StoreFault as fault:
        yield "BAD", f"transcripts: {folder}: {fault}"
    else:
        yield "ok", f"transcripts: {folder}: a file was written, read and removed"


async def _check_upstream(upstream: Upstream, model: str | None) -> list[Finding]:
    name = upstream.name
    try:
        headers = options.list_client_headers(upstream)
        async with Client(upstream, lambda _: None) as client:
            reply, page = await _fetch(client, MODELS, headers)
            if reply.status in (401, 403):
                advice = f"set `key`, or {options.name_key_variable(upstream)} for this check"
                return [("BAD", f"{name}: reachable, but it rejects the key ({reply.status}): {advice}")]
            if not isinstance(as_object(page).get("data"), list):
                why = f"/models answers {reply.status} and is not an OpenAI-compatible list of models: check base_url"
                return [("BAD", f"{name}: {why}")]
            evidence = ServerEvidence(urlsplit(upstream.base_url).hostname or "", reply.headers, {MODELS: page})
            if not evidence.read_windows():  # look further: each page is one more request
                for path in {*PROBES, "/health/readiness", "/props", "/api/v0/models", "/api/ps"} - {MODELS}:
                    with suppress(ProxyError):
                        evidence.pages[path] = (await _fetch(client, path, headers))[1]
            findings = list(_describe_server(upstream, evidence))
            if model is not None:
                # The form tells the API, and not the address: a gateway may answer in either form at any address.
                # https://docs.anthropic.com/en/api/models-list
                is_anthropic = any(row.get("type") == "model" for row in evidence.models)
                requests = MESSAGES_FORMAT if is_anthropic else CHAT_FORMAT
                findings.append(await _check_stream(client, headers, model, requests))
            return findings
    except options.CommandFailed as fault:
        return [("BAD", f"{name}: {fault}")]
    except ProxyError as fault:
        return [("BAD", fault.message)]


def _describe_server(upstream: Upstream, evidence: ServerEvidence) -> Iterator[Finding]:
    windows = evidence.read_windows()
    figures = []
    for model, window in islice(windows.items(), 8):  # some servers list hundreds of models
        figures.append(f"{model} {window.total or window.input}")
    reported = ", ".join(figures) or "none"
    count = options.format_count(len(evidence.models), "model")
    yield "ok", f"{upstream.name}: reachable, {count}; windows reported: {reported}"
    detection = detect_server(evidence)
    if detection is not None:
        kind, sign, advice = detection
        yield "ok", f"{upstream.name}: {kind}, detected by its {sign}; {advice}"
        return
    models = [str(row.get("id")) for row in evidence.models]
    if upstream.window is None and not all(model in windows or is_known_model(model) for model in models):
        yield "WARN", f"{upstream.name}: set `window` where it reports none and its models are not known by name"


async def _fetch(client: Client, path: str, headers: Headers) -> tuple[Reply, object]:
    """Return an answer and its JSON, which is None if the status is an error or the body is something else."""
    call = Call("GET", path.removeprefix("/v1"), "", headers, None)
    async with client.send(call, None, at_server_root=not path.startswith("/v1/")) as reply:
        body = b"".join([chunk async for chunk in reply.chunks()])
    return reply, read_json(body) if reply.is_good else None


async def _check_stream(client: Client, headers: Headers, model: str, requests: ApiFormat) -> Finding:
    usual_names = requests.find_bounds(b"{}", model)
    bound_names = sorted(requests.bounds, key=lambda name: name not in usual_names)
    question = {"role": "user", "content": "Count from 1 to 40, one number a line, nothing else."}
    for bound_name in bound_names:
        # Reasoning counts towards `max_completion_tokens`, and may take more tokens than the answer.
        max_tokens = 160 if bound_name == "max_tokens" else 2_000
        request = {"model": model, "messages": [question], "stream": True, bound_name: max_tokens}
        body = json.dumps(request).encode()
        call = Call("POST", requests.path, "", (*headers, ("content-type", "application/json")), body)
        start = perf_counter()
        async with client.send(call, model) as reply:
            why = str(reply.status)
            if reply.is_good:
                arrivals = [perf_counter() - start async for _ in reply.chunks()]
                if arrivals:
                    label, timing = _judge_stream(arrivals)
                    return label, f"{client.upstream.name}: {timing}"
                break
            refusal = await classify_failure(reply)
            error = read_error(await reply.peek(lambda read: len(read) > BODY_MAX_BYTES) or b"")
            # The code or type of the error, but not its message, which may quote a key.
            for code in (error.get("code"), error.get("type")):
                if isinstance(code, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", code):
                    why += f" ({code})"
                    break
        if not refusal.wants_other_name:
            break
    return "BAD", f"{client.upstream.name}: a short stream from {model} failed with status {why}"


def _judge_stream(arrivals: Sequence[float]) -> Finding:
    """Judge whether a stream arrives as it is written. *arrivals*: seconds from the request to each chunk."""
    # Buffered chunks come together at the end, even if the model has reasoned for long. So do those of a tiny model.
    telling_seconds, spread_share, min_chunks = 0.25, 0.2, 3
    first, last = arrivals[0], arrivals[-1]
    is_spread = last - first >= min(telling_seconds, last * spread_share)
    if len(arrivals) >= min_chunks and is_spread:
        return "ok", f"streams unbuffered: {len(arrivals)} chunks in {last:.2f} s, the first after {first:.2f} s"
    if last < telling_seconds:
        return "WARN", f"streams; complete after {last:.2f} s, too fast to tell whether a proxy buffers"
    return "BAD", f"the stream arrives in one piece after {last:.2f} s: a proxy on the way buffers it"
