"""The APIs whose requests are compacted: which path has which format."""

from collections.abc import Mapping

from proxy.wire.api_format import AnswerFormat, RequestFormat
from proxy.wire.chat.chat_answers import CHAT_ANSWERS
from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.http_head import CHAT_PATH, COMPACT_PATH, COUNT_TOKENS_PATH, MESSAGES_PATH, RESPONSES_PATH
from proxy.wire.messages.messages_answers import MESSAGES_ANSWERS
from proxy.wire.messages.messages_format import MESSAGES_FORMAT
from proxy.wire.responses.responses_answers import RESPONSES_ANSWERS
from proxy.wire.responses.responses_format import RESPONSES_FORMAT

REQUEST_FORMATS: Mapping[str, RequestFormat] = {
    CHAT_PATH: CHAT_FORMAT,
    COMPACT_PATH: CHAT_FORMAT,
    MESSAGES_PATH: MESSAGES_FORMAT,
    RESPONSES_PATH: RESPONSES_FORMAT,
    COUNT_TOKENS_PATH: MESSAGES_FORMAT,
}
ANSWER_FORMATS: Mapping[str, AnswerFormat] = {
    CHAT_PATH: CHAT_ANSWERS,
    COMPACT_PATH: CHAT_ANSWERS,
    MESSAGES_PATH: MESSAGES_ANSWERS,
    RESPONSES_PATH: RESPONSES_ANSWERS,
    COUNT_TOKENS_PATH: MESSAGES_ANSWERS,
}
