"""AutoGen with a code executor: no tools; scripts are in the coder's text, their bare output is the executor's."""

from tests.end_to_end.agents.library import library
from tests.end_to_end.agents.shell import in_a_block

AGENT = library(
    "autogen",
    "autogen-agentchat",
    "autogen_loop.py",
    "With a code executor, output arrives as bare user messages that only their `name` tells apart. From the third on "
    "they are known for output by that name, behind an answer with a script. With tools they are results as usual.",
    habits=in_a_block("sh"),
)
