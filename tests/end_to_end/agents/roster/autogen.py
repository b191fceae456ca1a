"""AutoGen with a code executor: no tools; scripts stand in the coder's text, their bare output is the executor's."""

from tests.end_to_end.agents.library import library
from tests.end_to_end.agents.shell import in_a_block

AGENT = library(
    "autogen",
    "autogen-agentchat",
    "autogen_loop.py",
    "With a code executor, output arrives as bare user messages that only their `name` tells apart. The proxy takes "
    "them for the user's words: nothing is cleared before the window is full. With tools they are results as usual.",
    habits=in_a_block("sh"),
    is_recognised=False,
)
