"""The LiteLLM SDK in a loop of one's own."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "litellm",
    "litellm",
    "litellm_loop.py",
    "Model names begin with `openai/`. Without `LITELLM_LOCAL_MODEL_COST_MAP` it fetches a price list when it starts.",
    environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
)
