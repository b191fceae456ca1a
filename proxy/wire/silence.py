"""What an answer does not say: that its prompt was cut before the model read it, or not read at all.

Some servers take any prompt and cut what does not fit, without a word. The client sees a good answer to half of its
question, turn after turn; only the figures, or the way the answer ends, give it away.
"""

import re
from collections.abc import Mapping
from typing import Any

SURE = 2_000  # tokens: below, markup drowns the difference
CUT = 0.5
_ENDED = re.compile(rb'"finish_reason"\s*:\s*"model_context_window_exceeded"')


def silent(counted: int, usage: Mapping[str, Any] | None, tail: bytes) -> bool:
    """Does this answer, which looks good, tell that the prompt was too long?

    `counted` is our own count of what was sent, `tail` the end of the answer.
    """
    if _ENDED.search(tail) or (b"[DONE]" in tail and b'"choices"' not in tail):
        return True
    told = _reported(usage or {})
    return told is not None and counted >= SURE and told < counted * CUT


def _reported(usage: Mapping[str, Any]) -> int | None:
    """Some servers report only what they had not cached: that is no cut."""
    told, details = usage.get("prompt_tokens"), usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    if not isinstance(told, int) or told <= 0:
        return None
    return max(told, cached) if isinstance(cached, int) else told
