"""Models that bind their thinking to the history it was written under.

From Claude Fable 5.1 on, the API checks each signed thinking block that a request sends back: if the system prompt, the
tools or an earlier message changed since, it refuses the request, whatever the request says about thinking:
<https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks>.
"""

import re
from dataclasses import dataclass
from typing import Literal

from proxy.models.names import plain_name

Binding = Literal["yes", "no", "if-refused"]
"""`if-refused`: thinking is taken for bound once the upstream has refused some in the same conversation."""


@dataclass(frozen=True, slots=True)
class Family:
    """Models with alike names."""

    name: re.Pattern[str]
    """Found in the name without provider, route and separators other than `-`."""
    binding: Binding
    examples: tuple[str, ...]


FAMILIES = (
    Family(
        re.compile(r"claude-[a-z]+-5-[1-9]\d?(?!\d)"),
        "yes",
        ("claude-opus-5-5", "anthropic/claude-fable-5.1", "us.anthropic.claude-haiku-5-5-v1:0"),
    ),
    # No document names these yet.
    Family(re.compile(r"claude-[a-z]+-(?:[6-9]|\d\d)(?!\d)"), "yes", ("claude-sonnet-6", "claude-opus-10-1")),
    Family(
        re.compile(r"claude-(?:[a-z]+-[1-5](?!\d)|v?[1-3](?!\d)|instant|mythos-preview)"),
        "if-refused",
        ("claude-opus-4-8", "claude-sonnet-4-20250514", "claude-sonnet-5", "claude-3-7-sonnet-latest"),
    ),
    # Some of these want their reasoning back: without it, they refuse the calls that it led to.
    Family(
        re.compile(r"(?:^|-)(?:deepseek|gemini|glm|gpt|grok|kimi|minimax|mistral|o[134]|qwen)"),
        "no",
        ("deepseek/deepseek-v4.1", "gemini-3.7-pro", "gpt-5.6", "moonshotai/kimi-k3", "MiniMax-M3", "qwen3.5-coder"),
    ),
)
"""The first that matches counts."""


def find_binding(model: str, *, has_budget: bool) -> Binding:
    """Whether signed thinking in a request to this model is bound. `has_budget`: the request sets one for thinking."""
    name = plain_name(model)
    binding = next((family.binding for family in FAMILIES if family.name.search(name)), None)
    # A model that binds takes no budget. One that takes it wants the thinking of the newest tool calls back:
    # <https://platform.claude.com/docs/en/build-with-claude/extended-thinking#extended-thinking-with-tool-use>.
    if binding is None:  # a name of the operator's own, for any of them
        return "if-refused" if has_budget else "yes"
    if has_budget and binding == "if-refused":
        return "no"
    return binding
