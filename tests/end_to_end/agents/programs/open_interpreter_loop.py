"""Open Interpreter: its model's answers hold shell scripts; it runs them and sends back what they print. Streamed."""
# ruff: noqa: T201 - what a program is for

from interpreter import interpreter
from workbench import MODEL, TASK

interpreter.offline = True  # no telemetry
interpreter.auto_run = True
interpreter.max_output = 20_000  # characters of output that it shows its model: 2,800 unless set
interpreter.llm.model = f"openai/{MODEL}"  # OPENAI_BASE_URL and OPENAI_API_KEY
interpreter.llm.context_window = 1_000_000  # of a model that it does not know it sends the newest 8,000 tokens
messages = interpreter.chat(TASK, display=False)
print(messages[-1]["content"])
