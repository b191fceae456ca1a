"""What the programs beside this file share: their task, and the tools.

Each of these programs is what a user would write after the library's first page. The address of the model comes from
the library's own variables, and no program knows of a proxy. Only the standard library here: every program runs in
its library's own environment.
"""

import inspect
import sys
from collections.abc import Callable

from tools import edit_file, read_file, search, write_file

TASK = sys.argv[1]
MODEL = "scripted-1"
STEPS = 200  # more than anybody needs: some libraries stop after ten by themselves
TOOLS = {tool.__name__: tool for tool in (read_file, search, write_file, edit_file)}


def declare_tool(tool: Callable[..., str]) -> dict:
    """The tool as a request declares it, for libraries that do not make this themselves."""
    about, _, arguments = inspect.getdoc(tool).partition("\n\nArgs:\n")
    found = dict(line.strip().split(": ", 1) for line in arguments.splitlines())
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "description": text} for name, text in found.items()},
        "required": list(found),
    }
    return {"type": "function", "function": {"name": tool.__name__, "description": about, "parameters": schema}}
