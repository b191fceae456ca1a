"""Silent truncation: how an answer shows that its prompt was cut before the model read it.

Some servers take any prompt and cut what does not fit, without an error. Their figures give it away
(`core.conversation.is_silently_cut`), or the way their answer ends.
"""

import re

_CONTEXT_EXCEEDED = re.compile(rb'"finish_reason"\s*:\s*"model_context_window_exceeded"')


def says_truncated(tail: bytes) -> bool:
    """True where the end of an answer shows a cut prompt: by its finish reason, or by a stream without choices."""
    return _CONTEXT_EXCEEDED.search(tail) is not None or (b"[DONE]" in tail and b'"choices"' not in tail)
