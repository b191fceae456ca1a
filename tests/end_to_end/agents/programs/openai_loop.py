"""openai-python in a loop of one's own, not streamed."""
# ruff: noqa: T201 - what a program is for

import json

from openai import OpenAI
from workbench import MODEL, TASK, TOOLS, declare_tool

client = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY
messages = [{"role": "system", "content": "You are a careful engineer."}, {"role": "user", "content": TASK}]

while True:
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[declare_tool(tool) for tool in TOOLS.values()]
    )
    said = answer.choices[0].message
    messages.append(said)
    if not said.tool_calls:
        break
    for call in said.tool_calls:
        result = TOOLS[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

print(said.content)
