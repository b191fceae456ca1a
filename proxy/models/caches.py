"""How long the caches of providers remember a prompt after its last use, by the model's name."""

import re

from proxy.foundation.model_names import plain_name
from proxy.shorten.economics import LAST_RESORT_SECONDS

MINUTE_SECONDS, HOUR_SECONDS = 60.0, 3_600.0

LIFETIMES: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    # Five minutes, or an hour for marks that say so, which the request itself tells:
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    (r"claude", 5 * MINUTE_SECONDS, ("claude-opus-5-5", "us.anthropic.claude-haiku-5-5-v1:0")),
    # Half an hour, the only `ttl` that `prompt_cache_options` knows:
    # https://developers.openai.com/api/docs/guides/prompt-caching
    (r"gpt-(?:5-(?:[6-9]|\d\d)|[6-9]|\d\d)(?!\d)", 30 * MINUTE_SECONDS, ("gpt-5.6-sol", "openai/gpt-6-astra")),
    # "This model is compatible only with 24h extended prompt caching", it says of `prompt_cache_retention: in_memory`:
    # https://community.openai.com/t/responses-api-with-5-6-echoes-nonsense-prompt-cache-retention-24h/1387096
    (r"gpt-5-5(?!\d)", 24 * HOUR_SECONDS, ("gpt-5.5", "gpt-5.5-pro")),
    # Cleared after five to ten minutes of inactivity, unless `prompt_cache_retention` says `24h`:
    # https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching
    (r"(?:^|-)(?:gpt|o[134])", 10 * MINUTE_SECONDS, ("gpt-4o", "gpt-5.1-codex", "o4-mini")),
    # "A few hours to a few days": https://api-docs.deepseek.com/guides/kv_cache
    (r"deepseek", HOUR_SECONDS, ("deepseek/deepseek-v4.1",)),
)
"""A pattern of the plain name, seconds, and examples. The first match counts."""


def find_cache_seconds(model: str) -> float:
    name = plain_name(model)
    for pattern, seconds, _ in LIFETIMES:
        if re.search(pattern, name):
            return seconds
    return LAST_RESORT_SECONDS
