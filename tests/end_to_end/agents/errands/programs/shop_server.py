"""The tools that change the world, as a server of the Model Context Protocol on standard input and output.

A result is JSON around the text, as many such servers give it.
"""

import inspect
import json
import sys
import typing

from shop_tools import ACTING

KINDS = {str: "string", int: "integer"}


def declare(tool: typing.Callable[..., str]) -> dict:
    kinds = {name: kind for name, kind in typing.get_type_hints(tool).items() if name != "return"}
    schema = {"type": "object", "properties": {name: {"type": KINDS[kind]} for name, kind in kinds.items()}}
    about = inspect.getdoc(tool).partition("\n")[0]
    return {"name": tool.__name__, "description": about, "inputSchema": {**schema, "required": list(kinds)}}


def answer(method: str, given: dict) -> dict:
    if method == "initialize":
        about = {"name": "shop", "version": "1"}
        return {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [declare(tool) for tool in ACTING]}
    if method == "tools/call":
        tool = next(tool for tool in ACTING if tool.__name__ == given["name"])
        text = json.dumps({"result": tool(**given["arguments"])})
        return {"content": [{"type": "text", "text": text}], "isError": False}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply = {
            "jsonrpc": "2.0",
            "id": message["id"],
            "result": answer(message["method"], message.get("params") or {}),
        }
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
