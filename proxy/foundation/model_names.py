"""Names of models: the same model has another name at each provider, router and cloud.

Some models bind their thinking to the history it was written under: the API refuses a request if anything before a
signed block changed:
<https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks>.
"""

import re
from typing import Literal


def plain_name(model: str) -> str:
    """Return the name of a model without provider, region and route.

    `anthropic/claude-sonnet-4.5:free`, `us.anthropic.claude-sonnet-4-5-v1:0` -> `claude-sonnet-4-5`
    """
    name = model.strip().lower().rpartition("/")[2]
    name = name.replace("@", "-")
    base_name, _, route = name.rpartition(":")
    if base_name and route in ("beta", "exacto", "extended", "floor", "free", "nitro", "online", "thinking"):
        name = base_name
    region_and_maker = (
        r"^(?:[a-z]{2,6}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|moonshot|openai|qwen|zai)\."
    )
    without_maker = re.sub(region_and_maker, "", name)
    if without_maker != name:
        name = re.sub(r"-v\d+(?::\d+)?$", "", without_maker)
    return name.replace(".", "-").replace("_", "-").replace("gpt-35", "gpt-3-5")


def without_date(name: str) -> str:
    return re.sub(r"-(?:20\d\d-?\d\d-?\d\d|latest)$", "", name)


def model_family(model: str) -> str:
    """Return the name of all models that share this one's tokenizer: `claude-sonnet-4-5` -> `claude-4`."""
    maker, version, *_ = [*re.findall(r"^[a-z]*|\d+", plain_name(model)), ""]
    return f"{maker}-{version}"


Binding = Literal["yes", "no", "if-refused"]
"""Whether reasoning is bound to its history. `if-refused`: once the upstream has refused some in the conversation."""
FAMILIES: tuple[tuple[str, Binding, tuple[str, ...]], ...] = (
    (
        r"claude-[a-z]+-5-[1-9]\d?(?!\d)",
        "yes",
        ("claude-opus-5-5", "anthropic/claude-fable-5.1", "us.anthropic.claude-haiku-5-5-v1:0"),
    ),
    # No document names these yet: they are taken for models that bind reasoning, like the newest known ones.
    (r"claude-[a-z]+-(?:[6-9]|\d\d)(?!\d)", "yes", ("claude-sonnet-6", "claude-opus-10-1")),
    (
        r"claude-(?:[a-z]+-[1-5](?!\d)|v?[1-3](?!\d)|instant|mythos-preview)",
        "if-refused",
        ("claude-opus-4-8", "claude-sonnet-4-20250514", "claude-sonnet-5", "claude-3-7-sonnet-latest"),
    ),
    # Some of these want their reasoning back: without it, they refuse the calls that it led to.
    (
        r"(?:^|-)(?:deepseek|gemini|glm|gpt|grok|kimi|minimax|mistral|o[134]|qwen)",
        "no",
        ("deepseek/deepseek-v4.1", "gemini-3.7-pro", "gpt-5.6", "moonshotai/kimi-k3", "MiniMax-M3", "qwen3.5-coder"),
    ),
)
"""For each family a pattern of plain names, whether its models bind reasoning, and examples. The first match counts."""


def find_binding(model: str, *, has_budget: bool) -> Binding:
    name = plain_name(model)
    for pattern, binding, _ in FAMILIES:
        if re.search(pattern, name):
            # A model that takes a budget does not bind, and wants the thinking of the newest tool calls back:
            # <https://platform.claude.com/docs/en/build-with-claude/extended-thinking#extended-thinking-with-tool-use>.
            return "no" if has_budget and binding == "if-refused" else binding
    # The name is unknown: an operator may give any name to any of these models.
    return "if-refused" if has_budget else "yes"
