"""The APIs whose requests are compacted."""

from collections.abc import Mapping

from proxy.wire.api_format import RequestFormat
from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.http_head import CHAT_PATH, COMPACT_PATH, COUNT_TOKENS_PATH, MESSAGES_PATH, RESPONSES_PATH
from proxy.wire.messages.messages_format import MESSAGES_FORMAT
from proxy.wire.responses.responses_format import RESPONSES_FORMAT

REQUEST_FORMATS: Mapping[str, RequestFormat] = {
    CHAT_PATH: CHAT_FORMAT,
    COMPACT_PATH: CHAT_FORMAT,
    MESSAGES_PATH: MESSAGES_FORMAT,
    RESPONSES_PATH: RESPONSES_FORMAT,
    COUNT_TOKENS_PATH: MESSAGES_FORMAT,
}
