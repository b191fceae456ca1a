"""How an upstream's answer begins: whether it is an answer or a refusal, which may have come with status 200."""

from http import HTTPStatus

from proxy.decide.actions import Opening
from proxy.decide.remedies import SMALLEST_OVERFLOW_TOKENS
from proxy.upstream.client import Call, Reply
from proxy.wire.event_streams import StreamOpening
from proxy.wire.http_head import ApiPath, find_header, is_event_stream
from proxy.wire.refusals import (
    BODY_MAX_BYTES,
    RECOVERABLE_KINDS,
    Refusal,
    begins_as_error,
    classify,
    may_begin_as_error,
)

INVALID_STATUSES = (400, 422)


async def read_opening(reply: Reply, call: Call, hold_seconds: float | None = None, *, number: int = 0) -> Opening:
    """Read as much of *reply* as tells whether the request was refused. The reply yields all of it again.

    The first events of a stream are held back for at most *hold_seconds*; None: the client's stream has begun.
    """
    status, headers = reply.status, reply.headers
    if not reply.is_good:
        error = await reply.peek(_is_larger_than_refusal)
    elif is_event_stream(headers):
        error = await _find_error_in_stream(reply, call, hold_seconds)
        status, headers = HTTPStatus.BAD_REQUEST, ()
    else:
        error = await _find_error_in_answer(reply)
    if reply.is_good and error is None:
        return Opening(number=number)
    refusal = None if error is None else classify(status, headers, error)
    if refusal is None or refusal.kind not in RECOVERABLE_KINDS:
        refusal = Refusal("invalid" if reply.status in INVALID_STATUSES else "other")
    return Opening(refusal, number=number)


async def _find_error_in_stream(reply: Reply, call: Call, hold_seconds: float | None) -> bytes | None:
    if isinstance(call.body, bytes) and len(call.body) < SMALLEST_OVERFLOW_TOKENS:
        return None
    opening = StreamOpening(first_decides=call.path == ApiPath.CHAT)
    # Without a bound, the client would get neither headers nor heartbeats while the model reads or waits.
    beginning = await reply.peek(opening.is_decided, hold_seconds)
    return None if beginning is None else opening.find_refusal(beginning)


async def _find_error_in_answer(reply: Reply) -> bytes | None:
    """Some routers wrap an error in a good answer; it is no stream then."""
    if "json" not in (find_header(reply.headers, "content-type") or ""):
        return None
    beginning = await reply.peek(_can_be_classified)
    return beginning if beginning is not None and begins_as_error(beginning) else None


def _can_be_classified(beginning: bytes | bytearray) -> bool:
    return not may_begin_as_error(beginning) or _is_larger_than_refusal(beginning)


def _is_larger_than_refusal(beginning: bytes | bytearray) -> bool:
    return len(beginning) > BODY_MAX_BYTES
