"""First words by which a harness or a tool says that it could not do its work."""

import re

_HARNESS_REFUSAL = re.compile(
    r"\s*(?:error executing |no replacement was|your proposed edit has introduced"
    r"|[\w-]+ verification failed|command timed out"
    r"|file \S[^\n]{0,300} has (?:not been read in this session|been modified since you last read it))",
    re.IGNORECASE,
)
"""First words of a harness that could not do its work, also of one that runs commands."""
_REFUSAL = re.compile(
    r"\s*(?:\[?error\b|fatal:|failed\b|exception\b|could not\b|cannot\b|unable to\b|invalid\b|permission denied"
    r"|found \d+ matches\b[^\n]{0,200}\breplace_all\b|file has not been read"
    r"|file has been (?:unexpectedly )?modified|file not found|file already exists|no (?:changes|replacements?)\b"
    r"|(?:the )?(?:old_str(?:ing)?|string to replace|search (?:text|block|string)|pattern)\b[^\n]{0,200}?"
    r"\b(?:not (?:be )?found|did not|does not|no match))",
    re.IGNORECASE,
)
"""First words of a tool that could not do its work, or has changed nothing."""
REFUSAL_CHARACTERS = 1_000
"""A reading tool that fails says so in fewer characters. A longer text is the one that it has read."""


def is_refusal(message: str, kind: str, quoting: str) -> bool:
    """Return whether a call was refused or did nothing. *quoting*: its result is the text of something else."""
    if _HARNESS_REFUSAL.match(message):
        return True
    if kind == "run" or (quoting and len(message) > REFUSAL_CHARACTERS):
        return False
    return _REFUSAL.match(message) is not None
