"""Refusals within a stream of status 200, behind events that say only that the request was taken.

OpenAI's Responses refuses so what is too long, and a gateway that asks OpenAI for a client of Messages passes it on so.
"""

import json
import re

import msgspec

from proxy.wire.rounds import as_object

# An error may still follow these, before anything was answered.
_TAKEN = frozenset({"response.created", "response.in_progress", "response.queued", "message_start"})
_DATA = re.compile(rb"^data:\s*(\{.*\})\s*$", re.MULTILINE)


def find_refusal(said: bytes) -> bytes | None:
    """The error in the first events of a stream, as the body of a refusal; None while only the request was taken."""
    for found in _DATA.finditer(said):
        try:
            event = as_object(msgspec.json.decode(found[1]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        kind = str(event.get("type"))
        if kind == "error":
            return json.dumps({"error": event.get("error") or event}).encode()
        if kind == "response.failed":
            return json.dumps({"error": as_object(event.get("response")).get("error")}).encode()
        if kind not in _TAKEN:
            return None
    return None


def has_begun(said: bytes) -> bool:
    """True where these first events say more than that the request was taken."""
    return any(not any(f'"{kind}"'.encode() in found[1][:200] for kind in _TAKEN) for found in _DATA.finditer(said))
