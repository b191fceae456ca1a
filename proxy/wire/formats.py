"""The APIs whose requests are shortened."""

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.wire.api_format import ApiFormat
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.http_head import ApiPath
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT

FORMATS: Sequence[ApiFormat] = (RESPONSES_FORMAT, MESSAGES_FORMAT, CHAT_FORMAT)
"""Chat is the last, because all bodies could be its own (`find_api`)."""
PATHS: Mapping[str, ApiPath] = {form.name: form.path for form in FORMATS}
"""The path for requests with a history, by `Request.wire`."""
COUNTING_PATHS = frozenset({form.count_path for form in FORMATS} - {None})
COMPACTING_PATHS = frozenset({form.compact_path for form in FORMATS} - {None})
"""The paths at which a provider compacts."""
REQUEST_FORMATS: dict[str, ApiFormat] = {ApiPath.COMPACT: CHAT_FORMAT}
for _form in FORMATS:
    for _path in (_form.path, _form.count_path, _form.compact_path):
        if _path is not None:
            REQUEST_FORMATS[_path] = _form


def find_format(path: str) -> ApiFormat:
    """Return the API that a path belongs to, that of chat if it belongs to none. Some clients write `/v1` twice."""
    for form in FORMATS:
        if path.startswith((f"/v1{form.path}", f"/v1/v1{form.path}")):
            return form
    return CHAT_FORMAT


def find_api(body: Mapping[str, Any]) -> ApiPath:
    """Return the path that a saved request was made for: that of the chat API if the body fits several."""
    return next(form.path for form in FORMATS if form.fits(body))
