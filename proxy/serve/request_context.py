"""The context of a request besides its conversation: its options, tenant, policy, and the facts of its model.

A conversation has a position between 0 and 100, the same on all replicas that share a state. A policy rolled out to 5
percent gets the conversations below 5, and keeps them when it is raised to 10.

`Placement` is an exception to the rule that a request leaves in the client's bytes if nothing is shortened: it adds
cache marks or a cache key, so that the provider's prompt cache is found. Only members are added: each byte of the head,
the messages and the tools is the client's.
"""

import ipaddress
import json
from collections.abc import Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from math import inf
from operator import attrgetter
from time import monotonic
from typing import NamedTuple, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from proxy.config.policies import Occasion, Policy
from proxy.config.settings import SUBSCRIPTION, Config, ModelPrices, Upstream, find_prices
from proxy.config.values import ALL_PERCENT
from proxy.decide.conversation import Mode
from proxy.decide.remember import BYTES_PER_TOKEN, LOOK_UP_MIN_TOKENS
from proxy.foundation.errors import BadRequest, ProxyError
from proxy.foundation.lifetime import BackgroundTasks
from proxy.foundation.lru import ByteBoundedCache
from proxy.history.identity import compute_beginning
from proxy.history.request import Request
from proxy.models.tokenizer import Estimator, Tokenizer, Tokenizers
from proxy.models.windows import (
    PROBES,
    find_cache_seconds,
    find_prior_calibration,
    is_known_model,
    make_counter_name,
    resolve_window,
)
from proxy.shorten.economics import Calibration, Prices, Window, compute_relative_prices
from proxy.shorten.rules import Rules
from proxy.upstream.client import Call, Client
from proxy.wire.api_format import ApiFormat
from proxy.wire.cache_placement import Choice, ForwardedView, place_cache_key
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import Headers, is_credential, read_headers
from proxy.wire.refusals import AddedOption

SESSION_HEADERS = ("x-session-id", "session_id", "session-id", "x-claude-code-session-id")
MODES: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}


class RequestOptions(Struct, frozen=True):
    mode: Mode = "auto"
    focus: str = ""
    name: str = ""
    """The client's name of the conversation: `x-conversation-id`."""
    session: str = ""
    """The client's name of its session, for the activity log only."""

    def with_force(self, focus: str) -> "RequestOptions":
        return replace(self, mode="force", focus=focus or self.focus)

    @classmethod
    def read(cls, headers: Headers, *, obeys: bool = True) -> "RequestOptions":
        """Read the options of a request, or only its session if the policy does not obey its headers."""
        values = read_headers(headers)
        session = next(filter(None, map(values.get, SESSION_HEADERS)), "")
        if not obeys:
            return cls(session=session)
        mode_text = values.get("x-compaction", "").strip().lower() or "auto"
        mode = MODES.get(mode_text)
        if mode is None:
            raise BadRequest(f"x-compaction must be one of {', '.join(MODES)}")
        return cls(mode, values.get("x-compaction-focus", ""), values.get("x-conversation-id", ""), session)


ANONYMOUS = "anonymous"


def find_tenant(call: Call, secret: bytes) -> str:
    """Return the team, or a keyed hash of all credentials. Every key of a block or a fact begins with it."""
    if call.caller.tenant:
        return call.caller.tenant
    credentials = call.identity
    if not credentials:
        return ANONYMOUS
    if len(credentials) == 1 and credentials[0][0] in ("authorization", "api-key", "x-api-key"):
        return blake2b(_encode_text(credentials[0][1]), key=secret, digest_size=12).hexdigest()
    digest = blake2b(key=secret, digest_size=12, person=b"credentials")
    for text in (text for pair in credentials for text in pair):
        data = _encode_text(text)
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class CompiledPolicy(Struct, frozen=True):
    settings: Policy
    rules: Rules
    summary_client: Client | None = None
    """The client of `summary.upstream`; None if the request's own upstream writes summaries."""
    acts_from_bytes: int = 0
    """The smallest body that may need a decision, by `trigger_tokens`, `clear_at_least` and others."""
    arm: str = ""
    """`treated` or `left-alone`, of an attachment with a `holdout`."""

    @classmethod
    def compile(cls, name: str, policy: Policy, clients: Mapping[str, Client], arm: str = "") -> "CompiledPolicy":
        rules = replace(policy.rules(name), version=policy.version)
        thresholds = (LOOK_UP_MIN_TOKENS, rules.clear_at_least, rules.trigger_tokens)
        acts_from_bytes = BYTES_PER_TOKEN * min(filter(None, thresholds))
        return cls(policy, rules, clients.get(policy.summary.upstream), acts_from_bytes, arm)

    def may_act_on(self, body: bytes) -> bool:
        """Return whether a body is large, or may ask for compaction."""
        return len(body) >= self.acts_from_bytes or b"compact" in body.lower()


class PolicyOffer(Struct, frozen=True):
    """A policy for the conversations below a position, and the policy of those that are held out of it."""

    rollout: float
    policy: CompiledPolicy
    holdout: float = 0.0
    left_alone: CompiledPolicy | None = None

    def choose(self, position: float) -> CompiledPolicy:
        # The arm depends on lower bits of the position than the roll-out, so a larger roll-out changes no arm.
        if self.left_alone is not None and position * 2**16 % ALL_PERCENT < self.holdout:
            return self.left_alone
        return self.policy


class PolicyChoice(Struct, frozen=True):
    offers: tuple[PolicyOffer, ...]

    @property
    def depends_on_conversation(self) -> bool:
        return len(self.offers) > 1 or bool(self.offers[0].holdout)

    def choose(self, position: float) -> CompiledPolicy:
        """Return the policy of a conversation. The last offer takes every position."""
        for offer in self.offers:
            if position < offer.rollout:
                return offer.choose(position)
        return self.offers[-1].choose(position)


class PolicySelector:
    def __init__(self, config: Config, clients: Mapping[str, Client]) -> None:
        self._config = config
        self._clients = clients
        self._compiled: dict[tuple[str, str, str], CompiledPolicy] = {}
        self._cached = lru_cache(maxsize=1_000)(self._select)

    def select(self, occasion: Occasion) -> PolicyChoice:
        # The client has written both names, and long ones would fill the cache.
        if len(occasion.model) + len(occasion.tag) > 256:  # noqa: PLR2004 (far longer than real names)
            return self._select(occasion)
        return self._cached(occasion)

    def _select(self, occasion: Occasion) -> PolicyChoice:
        offers: list[PolicyOffer] = []
        for choice in self._config.choices(occasion):
            if choice.holdout:
                treated = self._compile(choice.policy, choice.mode, "treated")
                left_alone = self._compile(choice.policy, "observe", "left-alone")
                offers.append(PolicyOffer(choice.rollout, treated, choice.holdout, left_alone))
            else:
                offers.append(PolicyOffer(choice.rollout, self._compile(choice.policy, choice.mode)))
        return PolicyChoice(tuple(offers))

    def _compile(self, name: str, mode: str, arm: str = "") -> CompiledPolicy:
        key = name, mode, arm
        if key not in self._compiled:
            self._compiled[key] = CompiledPolicy.compile(name, self._config.policy(name, mode), self._clients, arm)
        return self._compiled[key]


def compute_rollout_position(request: Request | None, tenant: str, key: bytes, conversation: str) -> float:
    if request is None:
        return ALL_PERCENT
    return int.from_bytes(compute_beginning(request, tenant, key, conversation)[:4], "big") * ALL_PERCENT / 2**32


REMEMBERED_MAX_BYTES = 4 * 1024 * 1024
"""Enough for some ten thousand callers, with models of ordinary names."""


class WindowScope(NamedTuple):
    """The scope of a window or an option. It has a URL: a reload may give the upstream's name to another server."""

    base_url: str
    model: str
    caller: int


find_caller = attrgetter("caller")


def make_window_scope(upstream: Upstream, model: str, call: Call) -> WindowScope:
    return WindowScope(upstream.base_url, model, call.fingerprint)


class AcceptedCallers:
    """Callers with a request that an upstream has accepted.

    State is written before a request is sent only for them and for teams, because made-up keys could fill a disk.
    """

    def __init__(self) -> None:
        self._fingerprints = ByteBoundedCache[int, bool](REMEMBERED_MAX_BYTES)

    def add(self, call: Call) -> None:
        # A look-up is cheaper than writing the entry again.
        if not self._fingerprints.get(call.fingerprint):
            self._fingerprints[call.fingerprint] = True

    def knows(self, call: Call) -> bool:
        """Return whether an upstream has accepted this caller, or it belongs to a team."""
        return bool(call.caller.team) or bool(self._fingerprints.get(call.fingerprint))


class ModelProfile(Struct, frozen=True):
    window: Window
    prices: Prices
    counter: str
    prior: Calibration
    tokenizer: Tokenizer
    cache_seconds: float


class ModelProfiles:
    def __init__(self, tokenizers: Tokenizers) -> None:
        self._tokenizers = tokenizers
        self._profiles = ByteBoundedCache[tuple[object, ...], ModelProfile](1024 * 1024)

    def find(self, upstream: Upstream, model: str, estimator: Estimator) -> ModelProfile:
        own_prices = find_prices(upstream.prices, model) if upstream.prices else None
        key = upstream.name, upstream.window, own_prices, model, estimator
        profile = self._profiles.get(key)
        if profile is None:
            window = find_window(upstream, model)
            counter, prior = make_counter_name(upstream.name, model), find_prior_calibration(model)
            tokenizer = self._tokenizers.of(model, estimator)
            prices, cache_seconds = compute_relative_prices(window), find_cache_seconds(model)
            # A subscription has no price per token. Folds are still weighed by the relative prices, computed above.
            if own_prices == SUBSCRIPTION:
                window = replace(window, prices=None, cliffs=())
            profile = ModelProfile(window, prices, counter, prior, tokenizer, cache_seconds)
            self._profiles[key] = profile
        return profile


def find_window(upstream: Upstream, model: str) -> Window:
    """Return the window of a model at this upstream as far as it is configured or listed, with its prices."""
    configured_window = Window(total=upstream.window, origin="config") if upstream.window else None
    window = resolve_window(model, configured_window)
    prices = find_prices(upstream.prices, model)
    if isinstance(prices, ModelPrices):
        return prices.price(window)
    return window


class RefusedOptions:
    """The added options that an upstream has refused, which are not added again, and those that it has accepted.

    They are kept for each caller and model: an error may quote a request, and with it the name of an option, so one
    caller could switch an option off for others.
    """

    def __init__(self) -> None:
        self._are_refused = ByteBoundedCache[tuple[WindowScope, AddedOption], bool](
            256 * 1024, owner_of=lambda key: key[0].caller
        )

    def add(self, scope: WindowScope, option: AddedOption) -> None:
        self._are_refused[scope, option] = True

    def has(self, scope: WindowScope, option: AddedOption) -> bool:
        return self._are_refused.get((scope, option)) is True

    def note_taken(self, scope: WindowScope, option: AddedOption) -> None:
        if not self.was_taken(scope, option):
            self._are_refused[scope, option] = False

    def was_taken(self, scope: WindowScope, option: AddedOption) -> bool:
        return self._are_refused.get((scope, option)) is False


def make_window_cache() -> ByteBoundedCache[WindowScope, Window]:
    return ByteBoundedCache(REMEMBERED_MAX_BYTES, owner_of=find_caller)


class WindowProbe:
    """Asks upstreams for the windows of their models.

    A private server may be started with a smaller window than its model has, so it is asked about all models. A public
    API is asked about unknown models only.
    """

    INTERVAL_SECONDS = 3600.0
    ANSWER_MAX_BYTES = 4 * 1024 * 1024

    def __init__(self) -> None:
        self._windows = make_window_cache()
        self.unshared = make_window_cache()
        """The answers that are not in the store yet."""
        self._probed_at = ByteBoundedCache[WindowScope, float](REMEMBERED_MAX_BYTES, owner_of=find_caller)
        self._probing = BackgroundTasks(100)

    def find(self, scope: WindowScope) -> Window | None:
        return self._windows.get(scope)

    def start(self, client: Client, call: Call, scope: WindowScope) -> None:
        model = scope.model
        is_recent = (self._probed_at.get(scope) or -inf) + self.INTERVAL_SECONDS > monotonic()
        if is_recent or not _is_worth_probing(client.upstream, model):
            return
        # The request does not wait for the probe, so the probe holds its own lease on the connections.
        if self._probing.start(partial(self._probe, client, model, call, scope), client.lease()) is not None:
            self._probed_at[scope] = monotonic()

    async def close(self) -> None:
        await self._probing.close(0)

    async def _probe(self, client: Client, model: str, call: Call, scope: WindowScope) -> None:
        for path, read in PROBES.items():
            answer = await _fetch(client, path, call)
            window = read(answer, model) if answer is not None else None
            if window is not None:
                self._windows[scope] = window
                self.unshared[scope] = window
                return


async def _fetch(client: Client, path: str, call: Call) -> object:
    headers = tuple(pair for pair in call.headers if is_credential(pair[0]))
    request = replace(call, method="GET", path=path.removeprefix("/v1"), query="", headers=headers, body=None)
    try:
        async with client.send(request, None, at_server_root=not path.startswith("/v1/")) as reply:
            body = b"".join([chunk async for chunk in reply.chunks()]) if reply.is_good else b""
        if not 0 < len(body) < WindowProbe.ANSWER_MAX_BYTES:
            return None
        return json.loads(body)
    except (ProxyError, ValueError):
        return None


def _is_worth_probing(upstream: Upstream, model: str) -> bool:
    return _is_private(upstream.base_url) or not is_known_model(model)


def _is_private(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan"))


class Placement(Struct, frozen=True):
    """The settings `cache_marks` and `cache_key` as client and upstream let them hold for one request."""

    cache_marks: Choice = "off"
    cache_key: Choice = "off"

    @classmethod
    def of(cls, settings: Policy, base_url: str) -> "Placement":
        """Return the settings of a policy as they hold for requests to this upstream."""
        if settings.mode not in ("auto", "lossless"):
            return cls()
        # The hosts of these domains route by `prompt_cache_key`: https://platform.openai.com/docs/guides/prompt-caching,
        # https://learn.microsoft.com/en-us/azure/ai-foundry/openai/how-to/prompt-caching
        keyed_hosts = ".api.openai.com", ".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"
        cache_key = settings.cache_key
        if cache_key == "auto" and not f".{urlsplit(base_url).hostname or ''}".endswith(keyed_hosts):
            cache_key = "off"
        return cls(settings.cache_marks, cache_key)

    def place(
        self, requests: ApiFormat, request: Request, body: bytes, view: ForwardedView | None = None
    ) -> tuple[bytes, tuple[AddedOption, ...]]:
        """Return the body to forward instead of *body*, and the options that were added to it.

        *view*: the history, if it was shortened.
        """
        placed: list[AddedOption] = []
        if self.cache_marks != "off":
            marked_body = requests.place_marks(body, request, self.cache_marks, view)
            if marked_body is not body:
                placed.append("cache-marks")
                body = marked_body
        # A request without tools is not continued by another, so its system prompt is best found without a key.
        if self.cache_key != "off" and request.tools not in (None, b"[]"):
            keyed_body = place_cache_key(body, request.messages)
            if keyed_body is not body:
                placed.append("cache-key")
                body = keyed_body
        return body, tuple(placed)


NOTHING = Placement()


def choose_placement(
    call: Call, settings: Policy, options: RequestOptions, scope: WindowScope, refused_options: RefusedOptions
) -> Placement:
    may_add = options.mode in ("auto", "force") and call.caller.switch == "on"
    requests = REQUEST_FORMATS[call.path]
    if call.path != requests.path or not may_add:
        return NOTHING
    placement = Placement.of(settings, scope.base_url)
    if placement.cache_marks not in requests.marked_with or refused_options.has(scope, "cache-marks"):
        placement = replace(placement, cache_marks="off")
    if not requests.takes_cache_key or refused_options.has(scope, "cache-key"):
        placement = replace(placement, cache_key="off")
    return placement
