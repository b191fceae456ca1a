"""openai-python in a loop of one's own."""

from tests.end_to_end.agents.library import library

AGENT = library("openai-python", "openai", "openai_loop.py", "Reads both variables from the environment.")
