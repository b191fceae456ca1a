"""The APIs whose requests are compacted."""

from collections.abc import Mapping
from typing import Any

from proxy.wire.api_format import ApiFormat
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.http_head import ApiPath
from proxy.wire.json_body import as_object
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT

REQUEST_FORMATS: Mapping[str, ApiFormat] = {
    ApiPath.CHAT: CHAT_FORMAT,
    ApiPath.COMPACT: CHAT_FORMAT,
    ApiPath.MESSAGES: MESSAGES_FORMAT,
    ApiPath.RESPONSES: RESPONSES_FORMAT,
    ApiPath.COUNT_TOKENS: MESSAGES_FORMAT,
    ApiPath.RESPONSES_COMPACT: RESPONSES_FORMAT,
    ApiPath.INPUT_TOKENS: RESPONSES_FORMAT,
}

PATHS: Mapping[str, ApiPath] = {
    REQUEST_FORMATS[path].NAME: path for path in (ApiPath.CHAT, ApiPath.MESSAGES, ApiPath.RESPONSES)
}
"""The path for requests with a history, by `Request.wire`."""


def find_api(body: Mapping[str, Any]) -> ApiPath:
    """Return the path that a saved request was made for: that of the chat API if the body fits several."""
    if "input" in body and "messages" not in body:
        return ApiPath.RESPONSES
    if "system" in body:
        return ApiPath.MESSAGES
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = as_object(message).get("content")
        for block in content if isinstance(content, list) else ():
            if as_object(block).get("type") in ("tool_use", "tool_result", "thinking"):
                return ApiPath.MESSAGES
    return ApiPath.CHAT
