"""Names of models: the same model has another name at each provider, router and cloud.

Nothing here knows a model; `models/windows.py` and `models/tokenizer.py` look up what they know by these names.
"""

import re

_REGION_AND_MAKER = re.compile(
    r"^(?:[a-z]{2,6}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|moonshot|openai|qwen|zai)\."
)
_ROUTES = re.compile(r":(?:beta|exacto|extended|floor|free|nitro|online|thinking)$")
_BEDROCK_VERSION = re.compile(r"-v\d+(?::\d+)?$")
_DATE = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|latest)$")


def plain_name(model: str) -> str:
    """`anthropic/claude-sonnet-4.5:free`, `us.anthropic.claude-sonnet-4-5-v1:0` -> `claude-sonnet-4-5`."""
    name = model.strip().lower().rpartition("/")[2]
    name = name.replace("@", "-")
    name = _ROUTES.sub("", name)
    without_maker = _REGION_AND_MAKER.sub("", name)
    if without_maker != name:
        name = _BEDROCK_VERSION.sub("", without_maker)
    return name.replace(".", "-").replace("_", "-").replace("gpt-35", "gpt-3-5")


def without_date(name: str) -> str:
    return _DATE.sub("", name)


def model_family(model: str) -> str:
    """Models that share a tokenizer, by name: `claude-sonnet-4-5` -> `claude-4`, `qwen3-coder-30b` -> `qwen-3`."""
    name = plain_name(model)
    maker = re.match(r"[a-z]*", name)
    version = re.search(r"\d+", name)
    return f"{maker[0] if maker else ''}-{version[0] if version else ''}"
