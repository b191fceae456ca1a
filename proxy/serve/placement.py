"""Cache marks and a cache key: the proxy adds them to a request so that the provider's prompt cache is found.

This is the one exception to the rule that a request leaves in the client's bytes if nothing is shortened. Only members
are added: each byte of the head, the messages and the tools is the client's.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from proxy.config import Policy
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.serve.request_context import RefusedOptions, RequestOptions, WindowScope
from proxy.upstream.client import Call
from proxy.wire.api_format import RequestFormat
from proxy.wire.http_head import ApiPath
from proxy.wire.refusals import AddedOption

PLACED_PATHS = frozenset({ApiPath.CHAT, ApiPath.RESPONSES, ApiPath.MESSAGES})
KEYED_HOSTS = (".api.openai.com", ".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
"""Domains, each with a dot before it, whose hosts route by `prompt_cache_key`.

<https://platform.openai.com/docs/guides/prompt-caching>,
<https://learn.microsoft.com/en-us/azure/ai-foundry/openai/how-to/prompt-caching>
"""


class Placement(Struct, frozen=True):
    """The options that policy, client and upstream let the proxy add to one request."""

    may_mark: bool = False
    marks_always: bool = False
    """Whether marks are also added to requests without results, and to Chat Completions for models of Anthropic."""
    may_key: bool = False

    def place(
        self, requests: RequestFormat, request: Request, body: bytes, view: Sequence[Message] = (), prefix_size: int = 0
    ) -> tuple[bytes, tuple[AddedOption, ...]]:
        """Return the body to forward instead of *body*, and the options that were added to it.

        If the history was shortened, *view* is the forwarded one, whose first *prefix_size* messages the upstream has
        read before.
        """
        placed: list[AddedOption] = []
        if self.may_mark:
            fold_ends = requests.find_fold_ends(request, view, prefix_size) if view else ()
            marked_body = requests.place_marks(body, request, fold_ends, always=self.marks_always)
            if marked_body is not body:
                placed.append("cache-marks")
                body = marked_body
        # A request without tools is not continued by another, so its system prompt is best found without a key.
        if self.may_key and request.tools not in (None, b"[]"):
            keyed_body = requests.place_key(body, request)
            if keyed_body is not body:
                placed.append("cache-key")
                body = keyed_body
        return body, tuple(placed)


NOTHING = Placement()


def list_options(policy: Policy, url: str) -> list[AddedOption]:
    """Return the options that a policy adds to requests to this upstream, if their API takes them."""
    options: list[AddedOption] = []
    if policy.mode not in ("auto", "lossless"):
        return options
    if policy.cache_marks != "off":
        options.append("cache-marks")
    if policy.cache_key == "on" or (policy.cache_key == "auto" and routes_by_key(url)):
        options.append("cache-key")
    return options


def choose_placement(
    call: Call, policy: Policy, options: RequestOptions, scope: WindowScope, refused_options: RefusedOptions
) -> Placement:
    may_add = options.mode in ("auto", "force") and call.caller.switch == "on"
    if call.path not in PLACED_PATHS or not may_add:
        return NOTHING
    is_of_messages, marks_always = call.path == ApiPath.MESSAGES, policy.cache_marks == "on"
    added = list_options(policy, scope.url)
    may_mark = "cache-marks" in added and (is_of_messages or marks_always)
    may_key = "cache-key" in added and not is_of_messages
    return Placement(
        may_mark=may_mark and not refused_options.has(scope, "cache-marks"),
        marks_always=marks_always,
        may_key=may_key and not refused_options.has(scope, "cache-key"),
    )


def routes_by_key(url: str) -> bool:
    return f".{urlsplit(url).hostname or ''}".endswith(KEYED_HOSTS)
