"""The APIs whose requests are compacted."""

from collections.abc import Mapping

from proxy.wire.api_format import RequestFormat
from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.http_head import ApiPath
from proxy.wire.messages.messages_format import MESSAGES_FORMAT
from proxy.wire.responses.responses_format import RESPONSES_FORMAT

REQUEST_FORMATS: Mapping[str, RequestFormat] = {
    ApiPath.CHAT: CHAT_FORMAT,
    ApiPath.COMPACT: CHAT_FORMAT,
    ApiPath.MESSAGES: MESSAGES_FORMAT,
    ApiPath.RESPONSES: RESPONSES_FORMAT,
    ApiPath.COUNT_TOKENS: MESSAGES_FORMAT,
    ApiPath.RESPONSES_COMPACT: RESPONSES_FORMAT,
    ApiPath.INPUT_TOKENS: RESPONSES_FORMAT,
}
