"""Where a provider's prompt cache is found: marks and a key that the proxy adds to a request.

This is the one exception to the rule that a request leaves in the client's bytes if nothing is shortened. Only members
are added: each byte of the head, the messages and the tools is the client's.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from proxy.config import Upstream
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.path.actions import AddedOption
from proxy.path.request_context import CompiledPolicy, RefusedOptions, RequestOptions, make_window_scope
from proxy.upstream.client import Call
from proxy.wire.api_format import RequestFormat
from proxy.wire.http_head import ApiPath

PLACED_PATHS = frozenset({ApiPath.CHAT, ApiPath.RESPONSES, ApiPath.MESSAGES})
KEYED_HOSTS = ("api.openai.com", ".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
"""Ends of the names of hosts that route by `prompt_cache_key`.

<https://platform.openai.com/docs/guides/prompt-caching>,
<https://learn.microsoft.com/en-us/azure/ai-foundry/openai/how-to/prompt-caching>
"""
EMPTY_LIST_BYTES = 2


class Placement(Struct, frozen=True):
    """What the policy, the client and the upstream let the proxy add to one request."""

    may_mark: bool = False
    marks_always: bool = False
    """Also requests without results, and Chat Completions for models of Anthropic."""
    may_key: bool = False

    def place(
        self, requests: RequestFormat, request: Request, body: bytes, view: Sequence[Message] = (), prefix_size: int = 0
    ) -> tuple[bytes, tuple[AddedOption, ...]]:
        """Return the body to forward in place of *body*, and what was added to it.

        If the history was shortened, *view* is the forwarded one, and the upstream has read its first messages before.
        """
        placed: list[AddedOption] = []
        if self.may_mark:
            fold_ends = requests.find_fold_ends(request, view, prefix_size) if view else ()
            marked_body = requests.place_marks(body, request, fold_ends, always=self.marks_always)
            if marked_body is not body:
                placed.append("cache-marks")
                body = marked_body
        # A request without tools has no successor that begins alike: its system prompt is best found without a key.
        if self.may_key and request.tools is not None and len(request.tools) > EMPTY_LIST_BYTES:
            keyed_body = requests.place_key(body, request)
            if keyed_body is not body:
                placed.append("cache-key")
                body = keyed_body
        return body, tuple(placed)


NOTHING = Placement()


def choose_placement(
    call: Call,
    request: Request,
    *,
    policy: CompiledPolicy,
    options: RequestOptions,
    upstream: Upstream,
    refused_options: RefusedOptions,
) -> Placement:
    settings = policy.settings
    if settings.mode not in ("auto", "lossless") or options.mode not in ("auto", "force") or call.caller.halted:
        return NOTHING
    if call.path not in PLACED_PATHS:
        return NOTHING
    scope = make_window_scope(upstream, request.model, call)
    is_keyed = settings.cache_key == "on" or (settings.cache_key == "auto" and routes_by_key(upstream.base_url))
    return Placement(
        may_mark=settings.cache_marks != "off" and not refused_options.has(scope, "cache-marks"),
        marks_always=settings.cache_marks == "on",
        may_key=is_keyed and not refused_options.has(scope, "cache-key"),
    )


def routes_by_key(url: str) -> bool:
    return (urlsplit(url).hostname or "").endswith(KEYED_HOSTS)
