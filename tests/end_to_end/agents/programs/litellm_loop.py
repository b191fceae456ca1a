"""The LiteLLM SDK in a loop of one's own, streamed: the message is put together from its chunks."""
# ruff: noqa: T201 - what a program is for

import json

from litellm import completion, stream_chunk_builder
from workbench import MODEL, TASK, TOOLS, declare_tool

messages = [{"role": "system", "content": "You are a careful engineer."}, {"role": "user", "content": TASK}]

while True:
    chunks = completion(  # OPENAI_BASE_URL and OPENAI_API_KEY
        model=f"openai/{MODEL}", messages=messages, tools=[declare_tool(tool) for tool in TOOLS.values()], stream=True
    )
    said = stream_chunk_builder(list(chunks), messages=messages).choices[0].message
    messages.append(said.model_dump(exclude_none=True))
    if not said.tool_calls:
        break
    for call in said.tool_calls:
        result = TOOLS[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

print(said.content)
