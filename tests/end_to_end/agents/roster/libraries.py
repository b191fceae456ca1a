"""Libraries, each in a program of its user, the lightest first."""

import json
from dataclasses import asdict, astuple

from tests.end_to_end.agents.library import TOOLS, in_a_block, library
from tests.end_to_end.agents.model import Habits, last_step
from tests.end_to_end.agents.task import Action
from tests.support.completions import Turn, text_turn


# smolagents' CodeAgent: no tools; it calls by Python in its text, and results come as messages of the user.
def _act_in_smolagents(action: Action) -> Turn:
    arguments = ", ".join(map(repr, astuple(action)))
    return text_turn(f"<code>\nprint({TOOLS[type(action)]}({arguments}))\n</code>\n")


def _close_smolagents(word: str) -> Turn:
    return text_turn(f"<code>\nfinal_answer({word!r})\n</code>")


# CrewAI without tool calls: actions are in the model's text, and what they gave is added to the same message.
def _act_in_crewai(action: Action) -> Turn:
    return text_turn(f"Action: {TOOLS[type(action)]}\nAction Input: {json.dumps(asdict(action))}\n")


def _close_crewai(word: str) -> Turn:
    return text_turn(f"Final Answer: {word}")


AGENTS = (
    library("openai-python", "openai", "openai_loop.py", "Reads both variables from the environment."),
    library(
        "openai-node",
        "openai",
        "openai_node_loop.js",
        "Reads both variables from the environment.",
        varies=r"\(node:\d+\)",
    ),
    library(
        "ai-sdk",
        "ai",
        "ai_sdk_loop.js",
        "`createOpenAICompatible` takes the URL as `baseURL`. With `@ai-sdk/openai`, use `openai.chat(…)`: plain "
        "`openai(…)` speaks Responses and refers to answers stored at the provider, which are relayed and not "
        "compacted.",
    ),
    library(
        "pydantic-ai",
        r"pydantic-ai-slim",
        "pydantic_ai_loop.py",
        "`OpenAIChatModel` was tested; `OpenAIResponsesModel` is compacted as well.",
    ),
    library(
        "openai-agents",
        "openai-agents",
        "openai_agents_loop.py",
        'Tested with `set_default_openai_api("chat_completions")`; the variable is read by the program of this test.',
        environment={"OPENAI_AGENTS_API": "chat_completions"},
    ),
    library(
        "openai-agents-responses",
        "openai-agents",
        "openai_agents_loop.py",
        "The same program, with the API that the SDK speaks by default.",
        shares="openai-agents",
    ),
    library("langgraph", "langgraph", "langgraph_loop.py", "`ChatOpenAI` reads both variables from the environment."),
    library(
        "litellm",
        "litellm",
        "litellm_loop.py",
        "Model names begin with `openai/`. Without `LITELLM_LOCAL_MODEL_COST_MAP` it fetches a price list when it "
        "starts.",
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    library(
        "smolagents",
        "smolagents",
        "smolagents_loop.py",
        "Tool output arrives as user messages, recognised by their first words (`observations` in a policy).",
        habits=Habits(lambda body: last_step(body) + 1, _act_in_smolagents, _close_smolagents),
        varies=r"[\d.]+ seconds|(?:Input|Output) tokens: [\d,]+|Duration",
    ),
    library(
        "autogen",
        "autogen-agentchat",
        "autogen_loop.py",
        "With a code executor, output arrives as bare user messages that only their `name` tells apart. From the third "
        "on they are known for output by that name, behind an answer with a script. With tools they are results as "
        "usual.",
        habits=in_a_block("sh"),
    ),
    library(
        "crewai",
        "crewai",
        "crewai_loop.py",
        "Without tool calls, output is part of the model's own messages, behind `Observation:`: only this is cleared. "
        "With tools they are results as usual. It takes an unknown model for one of 8,192 tokens and writes summaries "
        "of its own, unless an agent has `respect_context_window=False`.",
        habits=Habits(lambda body: last_step(body) + 1, _act_in_crewai, _close_crewai),
        environment={
            "CREWAI_DISABLE_TELEMETRY": "true",
            "OTEL_SDK_DISABLED": "true",
            "CREWAI_TRACING_ENABLED": "false",
        },
    ),
)
