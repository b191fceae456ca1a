"""Items that call a tool of the client, and the outputs that answer them.

Apart because requests and answers both need them: each kind of call has an output of its own kind, and the API refuses
another one.
"""

import json

from proxy.history import splice

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that call a tool of the client, and the member that holds what the model wrote."""
ACTIONS = {"local_shell_call": "action", "shell_call": "action", "apply_patch_call": "operation"}
"""Items that call a tool which the API itself defines: what the model wrote is an object, and left as it is."""
LOCAL_SHELL = "local_shell_call"
SHELL_OUTPUT = "shell_call_output"
OUTPUTS = frozenset({f"{call}_output" for call in (*CALLS, *ACTIONS)})
_NO_END = {"type": "timeout"}


def is_call(kind: str) -> bool:
    """True for the type of an item that an output of the client must answer."""
    return kind in CALLS or kind in ACTIONS


def write_output(call: str, id_: str, text: str) -> bytes:
    """The output that says this in answer to a call of this type, which has not come to an end."""
    quoted_id, output = splice.quote(id_), splice.quote(text)
    if call == LOCAL_SHELL:  # it names its call by `id`, and has no `call_id`
        return b'{"type":"local_shell_call_output","id":%b,"output":%b}' % (quoted_id, output)
    other_members = b""
    if call == "shell_call":
        output = b"[" + json.dumps({"stdout": text, "stderr": "", "outcome": _NO_END}).encode() + b"]"
    elif call == "apply_patch_call":
        other_members = b',"status":"failed"'
    kind = call if is_call(call) else "function_call"
    return b'{"type":"%b_output","call_id":%b,"output":%b%b}' % (kind.encode(), quoted_id, output, other_members)
