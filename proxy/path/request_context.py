"""The context of a request besides its conversation: its options, its tenant, its policy, the facts of its model.

A conversation has a position between 0 and 100 from its first message on, the same on every replica. A policy rolled
out to 5 percent gets the conversations below 5, and keeps them when it is raised to 10.

The windows in the store are used for every decision but one. A history so short that the store is not asked may still
be too long for a small window; for that case each worker keeps a few windows in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from proxy.config import Config, Occasion, Policy, RolloutChoice, Upstream
from proxy.config.values import ALL_PERCENT
from proxy.errors import BadRequest
from proxy.history.chain import compute_beginning
from proxy.history.request import Request
from proxy.lru import ByteBoundedCache
from proxy.models.calibrations import find_prior_calibration, make_counter_name
from proxy.models.tokenizer import Estimator, Tokenizer, Tokenizers
from proxy.models.windows import resolve_window
from proxy.path.recognition import LOOK_UP_MIN_TOKENS, find_smallest_bytes
from proxy.shorten.economics import Calibration, Prices, Window, compute_relative_prices
from proxy.shorten.rules import Rules
from proxy.upstream.call import Call
from proxy.upstream.client import Client
from proxy.wire.caller import Caller, find_credentials
from proxy.wire.headers import Headers, find_header, read_own_headers

Mode = Literal["auto", "off", "force", "observe", "bypass"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options that a client sets for one request; the defaults leave everything to its policy."""

    mode: Mode = "auto"
    focus: str = ""
    """What a summary should keep above all."""
    conversation: str = ""
    """Tells apart conversations whose content is equal."""
    is_by_name: bool = False
    """It asks to compact by command, by a call of the tool, or at the endpoint."""

    def with_force(self, focus: str) -> "RequestOptions":
        """The same from a client that has asked to compact now, whatever its headers say."""
        return replace(self, mode="force", focus=focus or self.focus, is_by_name=True)

    @classmethod
    def read(cls, headers: Headers) -> "RequestOptions":
        words = read_own_headers(headers)
        mode_text = words.get("x-compaction", "").strip().lower() or "auto"
        mode = next((mode for mode in MODES if mode == mode_text), None)
        if mode is None:
            raise BadRequest(f"x-compaction must be one of {', '.join(MODES)}")
        return cls(mode, words.get("x-compaction-focus", ""), words.get("x-conversation-id", ""))


SESSION_HEADERS = ("x-session-id", "session_id", "session-id", "x-claude-code-session-id")
"""Headers in which agents name their session, in the order in which they count."""


def find_session(headers: Headers, options: RequestOptions, name_in_body: str) -> str:
    """The session of a request as its client names it: in a header, else in the body. For the activity log only."""
    names = (find_header(headers, name) for name in SESSION_HEADERS)
    return options.conversation or next(filter(None, names), name_in_body)


ANONYMOUS = "anonymous"
TENANT_BYTES = 12
# One of these, and no other credential, is hashed alone.
_HASHED_ALONE = frozenset({"authorization", "api-key", "x-api-key"})


def find_tenant(call: Call, secret: bytes) -> str:
    """Return the team, or a keyed hash of all credentials that the request shows. They themselves are kept nowhere.

    Every key of the store begins with the tenant.
    """
    if call.caller.tenant:
        return call.caller.tenant
    credentials = make_identity(call)
    if not credentials:
        return ANONYMOUS
    if len(credentials) == 1 and credentials[0][0] in _HASHED_ALONE:
        return blake2b(_encode_text(credentials[0][1]), key=secret, digest_size=TENANT_BYTES).hexdigest()
    digest = blake2b(key=secret, digest_size=TENANT_BYTES, person=b"credentials")
    for text in (text for pair in credentials for text in pair):
        data = _encode_text(text)
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def make_identity(call: Call) -> Headers:
    """The credentials that distinguish a client without a team key, and headers that the operator names."""
    return (*find_credentials(call.headers, call.query), *call.caller.identified_by)


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


ROOMY_WINDOW_TOKENS = 4 * LOOK_UP_MIN_TOKENS
"""With this much room for the prompt, no limit of a policy is as low as the smallest history that is looked up."""
CACHED_SELECTIONS_MAX = 1_000
CACHED_CHARS_MAX = 256
"""Model and tag are the client's own words: long ones are not remembered."""
NO_CLIENTS: Mapping[str, Client] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy and the rules it compiles to, once per configuration."""

    settings: Policy
    rules: Rules
    summary_client: Client | None = None
    """The upstream that makes the summaries, if it is not the one of the request."""
    acts_from_bytes: int = 0
    """A shorter body needs no decision."""

    @classmethod
    def compile(cls, name: str, policy: Policy, clients: Mapping[str, Client] = NO_CLIENTS) -> "CompiledPolicy":
        rules = replace(policy.rules(name), version=policy.version)
        return cls(policy, rules, clients.get(policy.summary.upstream), find_smallest_bytes(rules))

    def leaves_alone(self, request: Request, window: Window) -> bool:
        """True for a request so small that nothing is looked up for it and nothing can become of it.

        Not in a small window, nor if the request asks for compaction by whatever word.
        """
        if len(request.source) >= self.acts_from_bytes or b"compact" in request.source.lower():
            return False
        limit = window.input or window.total
        return limit is None or limit - (request.max_output or 0) >= ROOMY_WINDOW_TOKENS


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """Policies, each with the percentage it applies to; the last of them applies to all."""

    policies: tuple[tuple[float, CompiledPolicy], ...]

    @classmethod
    def of_one(cls, policy: CompiledPolicy) -> "PolicyChoice":
        return cls(((ALL_PERCENT, policy),))

    @property
    def only(self) -> CompiledPolicy | None:
        """The policy, if there is only one."""
        if len(self.policies) != 1:
            return None
        return self.policies[0][1]

    def choose(self, position: float) -> CompiledPolicy:
        return next(policy for rollout, policy in self.policies if position < rollout or rollout == ALL_PERCENT)


class PolicySelector:
    """All policies of a configuration, each compiled once."""

    def __init__(self, config: Config, clients: Mapping[str, Client]) -> None:
        self._config = config
        self._clients = clients
        self._compiled: dict[tuple[str, str], CompiledPolicy] = {}
        self._cached = lru_cache(maxsize=CACHED_SELECTIONS_MAX)(self._select)

    def select(self, occasion: Occasion) -> PolicyChoice:
        is_short = len(occasion.model) + len(occasion.tag) <= CACHED_CHARS_MAX
        if is_short:
            return self._cached(occasion)
        return self._select(occasion)

    @property
    def cached_count(self) -> int:
        return self._cached.cache_info().currsize

    def _select(self, occasion: Occasion) -> PolicyChoice:
        return PolicyChoice(tuple((choice.rollout, self._compile(choice)) for choice in self._config.choices(occasion)))

    def _compile(self, choice: RolloutChoice) -> CompiledPolicy:
        key = choice.policy, choice.mode
        if key not in self._compiled:
            self._compiled[key] = CompiledPolicy.compile(choice.policy, self._config.policy(*key), self._clients)
        return self._compiled[key]


def compute_rollout_position(request: Request | None, tenant: str, key: bytes, conversation: str) -> float:
    """A conversation's position between 0 and 100; a request that is none is last."""
    if request is None:
        return ALL_PERCENT
    return int.from_bytes(compute_beginning(request, tenant, key, conversation)[:4], "big") * ALL_PERCENT / 2**32


REMEMBERED_MAX_BYTES = 4 * 1024 * 1024
"""For each kind of memory here: some ten thousand callers with models of ordinary names."""
PROFILES_MAX_BYTES = 1024 * 1024


class WindowScope(NamedTuple):
    """The owner of a window. The upstream is known by its URL: a reload may give its name to another server."""

    url: str
    model: str
    caller: int
    """The fingerprint of the caller."""


find_caller = attrgetter("caller")


def make_window_scope(upstream: Upstream, model: str, call: Call) -> WindowScope:
    """Return the scope of an upstream's statements."""
    return WindowScope(upstream.base_url, model, compute_fingerprint(call))


class AcceptedCallers:
    """Callers that an upstream has accepted, as far as this process remembers.

    Nothing is written for anybody else: made-up keys could fill a disk.
    """

    def __init__(self) -> None:
        self._fingerprints = ByteBoundedCache[int, bool](REMEMBERED_MAX_BYTES)

    def add(self, fingerprint: int) -> None:
        # Mostly known already; to write it again would cost more than to look.
        if not self._fingerprints.get(fingerprint):
            self._fingerprints[fingerprint] = True

    def knows(self, caller: Caller, fingerprint: int) -> bool:
        return bool(caller.team) or bool(self._fingerprints.get(fingerprint))


def compute_fingerprint(call: Call) -> int:
    """A hash that lives no longer than the process: no credential is kept, not even its hash on disk."""
    return hash((call.caller.tenant, make_identity(call)))


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Facts about a model at an upstream before its first answer, the same for all requests."""

    window: Window
    prices: Prices
    counter: str
    """Whose token counts these are: upstream and family of models."""
    prior: Calibration
    tokenizer: Tokenizer

    @classmethod
    def of(cls, settings: Upstream, model: str, tokenizer: Tokenizer) -> "ModelProfile":
        configured_window = None
        if settings.window:
            configured_window = Window(total=settings.window, origin="config")
        window = resolve_window(model, configured_window)
        counter = make_counter_name(settings.name, model)
        return cls(window, compute_relative_prices(window), counter, find_prior_calibration(model), tokenizer)


class ModelProfiles:
    """The profiles of this worker's models. Names are the client's own words, so they are bounded in bytes."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self._tokenizers = tokenizers
        self._profiles = ByteBoundedCache[tuple[str, int | None, str, str], ModelProfile](PROFILES_MAX_BYTES)

    def find(self, settings: Upstream, model: str, estimator: Estimator) -> ModelProfile:
        key = settings.name, settings.window, model, estimator
        profile = self._profiles.get(key)
        if profile is None:
            profile = ModelProfile.of(settings, model, self._tokenizers.of(model, estimator))
            self._profiles[key] = profile
        return profile


USAGE_REFUSALS_MAX_BYTES = 256 * 1024


class UsageRefusals:
    """Models whose upstream refuses `stream_options`: a caller's streams are not asked for usage again.

    Of each caller apart: an error may quote a request, so one could pretend for all others that the option is refused.
    """

    def __init__(self) -> None:
        self._refused = ByteBoundedCache[WindowScope, bool](USAGE_REFUSALS_MAX_BYTES, owner_of=find_caller)

    def add(self, scope: WindowScope) -> None:
        self._refused[scope] = True

    def __contains__(self, scope: WindowScope) -> bool:
        return scope in self._refused


class LearnedWindows:
    """Windows learned from overflows and probes. The store keeps the same for a day, per credential."""

    def __init__(self) -> None:
        self._hints = ByteBoundedCache[WindowScope, Window](REMEMBERED_MAX_BYTES, owner_of=find_caller)
        self._probed = ByteBoundedCache[WindowScope, Window](REMEMBERED_MAX_BYTES, owner_of=find_caller)

    def find_hint(self, scope: WindowScope) -> Window | None:
        return self._hints.get(scope)

    def note(self, scope: WindowScope, window: Window | None) -> None:
        """Remember the window of the store; None: nothing, so that an expired limit is forgotten here as well."""
        if window is None:
            self._hints.pop(scope)
        else:
            self._hints[scope] = window

    def note_probed(self, scope: WindowScope, window: Window) -> None:
        """Remember a probed window until it is stored for the other workers."""
        self._probed[scope] = window

    def take_probed(self, scope: WindowScope) -> Window | None:
        """Remove and return the probed window that is still to be stored, so that other workers decide alike."""
        return self._probed.pop(scope)
