"""How each peer is started, and what it is configured with: the upstream, the port, the window where it asks for one.

The rest is its default, but for what would make the comparison one of something else, and the page tells it:
headroom's limit of 60 requests a minute and its cache of whole answers are off. No peer uses the network, so that a
run is the same everywhere: vocabularies and lists of prices are those that peers bring along, and headroom's model for
prose, which it would download, stays out. What a peer writes goes below the run's folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contestants import OURS as PROXY
from contestants import Contestant, Kind
from process import Server

from peers.conversations import WINDOW
from peers.environments import OURS, program, site

FIRST_PORT = 18_790
"""Each has its own, the same in every run: results that are kept are known again by where the turns went."""
_LITELLM = """\
model_list:
  - model_name: "*"
    litellm_params: {{model: "openai/*", api_base: "{upstream}/v1", api_key: sk-of-nobody}}
general_settings:
  dangerously_permit_weak_or_unset_master_key: true
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A proxy that is tried."""

    name: str
    environment: str
    kind: Kind
    told: str
    """Its settings beside its upstream and port."""
    asks: bool = False
    """Whether it has a model write summaries."""


@dataclass(frozen=True, slots=True)
class Absent:
    """One that cannot be tried here."""

    name: str
    why: str


def with_environment(environment: Mapping[str, str], *command: str) -> list[str]:
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()), *command]


def _headroom(mode: str, place: Path, port: int, upstream: str) -> list[str]:
    own = {
        "HOME": str(place),
        "HEADROOM_WORKSPACE_DIR": str(place),
        "TIKTOKEN_CACHE_DIR": str(site("headroom") / "litellm/litellm_core_utils/tokenizers"),
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    options = ["--port", str(port), "--openai-api-url", f"{upstream}/v1", "--mode", mode]
    options += ["--no-rate-limit", "--no-cache", "--no-telemetry"]
    return with_environment(own, program("headroom", "headroom"), "proxy", *options)


def _headroom_cache(place: Path, port: int, upstream: str) -> list[str]:
    return _headroom("cache", place, port, upstream)


def _headroom_token(place: Path, port: int, upstream: str) -> list[str]:
    return _headroom("token", place, port, upstream)


def _guardian(place: Path, port: int, upstream: str) -> list[str]:
    own = {
        "HOME": str(place),
        "GUARDIAN_PORT": str(port),
        "GUARDIAN_UPSTREAM_URL": f"{upstream}/v1",
        "GUARDIAN_NUM_CTX": str(WINDOW),
    }
    return with_environment(own, program("context-guardian", "context-guardian"))


def _kompact(place: Path, port: int, upstream: str) -> list[str]:
    options = ["--host", "127.0.0.1", "--port", str(port), "--openai-base-url", upstream, "--no-otel"]
    return with_environment({"HOME": str(place)}, program("kompact", "kompact"), "proxy", *options)


def _litellm(place: Path, port: int, upstream: str) -> list[str]:
    (place / "litellm.yaml").write_text(_LITELLM.format(upstream=upstream))
    options = ["--config", str(place / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    return with_environment(
        {"HOME": str(place), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}, program("litellm", "litellm"), *options
    )


def _cliff(threshold: int, place: Path, port: int, upstream: str) -> list[str]:
    options = ["--port", str(port), "--threshold", str(threshold), "--openai-upstream", upstream]
    return with_environment({"HOME": str(place)}, program("cliffcompaction", "cliff"), "serve", *options)


def _cliff_60k(place: Path, port: int, upstream: str) -> list[str]:
    return _cliff(60_000, place, port, upstream)


def _cliff_100k(place: Path, port: int, upstream: str) -> list[str]:
    return _cliff(100_000, place, port, upstream)


PEERS = (
    Peer(OURS, OURS, PROXY, "nothing", asks=True),
    Peer(
        "headroom",
        "headroom",
        Kind("headroom", None, _headroom_cache, live="/livez", slower=10),
        "offline, no limit of requests, no cache of answers",
    ),
    Peer(
        "headroom, token mode",
        "headroom",
        Kind("headroom, token mode", None, _headroom_token, live="/livez", slower=10),
        "the same, and `--mode token`",
    ),
    Peer(
        "context-guardian",
        "context-guardian",
        Kind("context-guardian", None, _guardian, live="/guardian/stats", slower=4),
        "the window",
        asks=True,
    ),
    Peer("kompact", "kompact", Kind("kompact", None, _kompact, live="/health", slower=10), "no telemetry"),
    Peer(
        "LiteLLM",
        "litellm",
        Kind("LiteLLM", None, _litellm, live="/health/liveliness", slower=10),
        "one route for all models",
    ),
    Peer(
        "CliffCompaction, 100k",
        "cliffcompaction",
        Kind("CliffCompaction, 100k", None, _cliff_100k, live="/__cliff__/status", slower=4),
        "`--threshold 100000`, because its default of 200,000 is over the window",
    ),
    Peer(
        "CliffCompaction, 60k",
        "cliffcompaction",
        Kind("CliffCompaction, 60k", None, _cliff_60k, live="/__cliff__/status", slower=4),
        "`--threshold 60000`",
    ),
)
UNTRIED = (
    Absent("lean-ctx", "neither pip nor npm has it here; it comes as a Rust crate"),
    Absent("tulbase", "pip does not have it; from source only"),
    Absent("Compresr Context-Gateway", "a Go program, not built here; it compresses by a remote API or a model"),
    Absent("LocalAI", "a Go program that serves models itself, not built here"),
    Absent("LiteLLM's `compression_interception`", "works on `/v1/messages` only, not on chat completions"),
)
"""Further ones that were looked for, and why they are not here."""


def start(peer: Peer, upstream: str, place: Path) -> Contestant:
    """Running and ready; RuntimeError or TimeoutError tell why it is not."""
    own = place / peer.kind.name.replace(" ", "-")
    own.mkdir(parents=True, exist_ok=True)
    port = FIRST_PORT + PEERS.index(peer)
    server = Server(peer.kind.command(own, port, upstream), own / "log.txt")
    origin = f"http://127.0.0.1:{port}"
    try:
        ready = server.ready(origin + peer.kind.live)
    except TimeoutError:
        server.stop()
        raise
    return Contestant(peer.name, origin, origin + peer.kind.live, (), server, ready, server.rss, peer.kind.slower)
