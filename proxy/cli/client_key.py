"""The headers with which a command calls an upstream, as a client would."""

import os
from urllib.parse import urlsplit

from proxy.config import Upstream
from proxy.wire.http_head import Headers

_ANTHROPIC_VERSION = ("anthropic-version", "2023-06-01")
"""https://docs.anthropic.com/en/api/versioning"""


def is_anthropic(settings: Upstream) -> bool:
    """Whether these are the settings of Anthropic's API, which wants the key and a version in headers of its own."""
    host = urlsplit(settings.base_url).hostname or ""
    names = {name.lower() for name in settings.headers}
    return f".{host}".endswith(".anthropic.com") or settings.key_header == "x-api-key" or "anthropic-version" in names


def name_key_variable(settings: Upstream) -> str:
    if is_anthropic(settings):
        return "ANTHROPIC_API_KEY"
    return "OPENAI_API_KEY"


def list_client_headers(settings: Upstream) -> Headers:
    """List the headers of a client: its key, if none is configured, and the version of Anthropic's API."""
    headers = []
    key = os.environ.get(name_key_variable(settings), "")  # noqa: TID251 (as every client reads it)
    if key and not settings.key:
        if is_anthropic(settings):
            headers.append(("x-api-key", key))
        else:
            headers.append(("authorization", f"Bearer {key}"))
    if is_anthropic(settings):
        headers.append(_ANTHROPIC_VERSION)
    return tuple(headers)
