"""openai-node, with its own loop of tools."""

from tests.end_to_end.agents.library import library

AGENT = library(
    "openai-node",
    "openai",
    "openai_node_loop.js",
    "Reads both variables from the environment.",
    varies=r"\(node:\d+\)",
)
