"""An assistant with two tools: it may use both at once, and again after it saw what they gave.

    python examples/multi_tool.py 'Search "vector databases", 10 results; and what is 1.2 + "3"?'

As a durable run, each line in a terminal of its own:

    outlast dev examples/multi_tool.py
    outlast run assistant 'Search "vector databases", 10 results; and what is 1.2 + "3"?'

With DEEPSEEK_API_KEY in the environment or in `.env`, DeepSeek answers (DEEPSEEK_MODEL and DEEPSEEK_BASE_URL pick
another model or server with the same API); without, fixed rules do.
"""

import os
import random
import sys
from typing import Annotated, Any

from dotenv import load_dotenv
from pydantic import Field

from outlast import Agent, OfflineModel, OpenAIModel, RunContext, ToolCallPart, ToolDefinition, TransientToolError
from outlast.models.offline import Conversation, Prompt, call

CORPUS = [
    "A vector database finds what is similar: FAISS, Milvus and PGVector do it.",
    "Retrieval-augmented generation looks facts up before the model answers.",
    "Several agents share a task by taking different roles.",
    "MCP is one way to offer tools and resources to any model.",
    "ReAct lets a model think before each action, so people can follow it.",
]
MAX_ROUNDS = 5

load_dotenv(".env")
offline = OfflineModel()
deepseek = OpenAIModel(os.environ.get("DEEPSEEK_MODEL") or "deepseek-chat", provider_name="deepseek")


def tools_for_some_rounds(ctx: RunContext, tools: list[ToolDefinition]) -> list[ToolDefinition]:
    """After so many rounds no tool is left, so the model answers with what it has."""
    return tools if ctx.run_step <= MAX_ROUNDS else []


assistant = Agent(
    deepseek if os.environ.get("DEEPSEEK_API_KEY") else offline,
    name="assistant",
    instructions="Use the tools for every part of the question, several at once where you can. Then answer in words.",
    prepare_tools=tools_for_some_rounds,
)


@assistant.tool_plain(max_retries=0)
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def repair_search(raw: dict[str, Any]) -> dict[str, Any]:
    """Mend what a rule can mend. It is asked only where the arguments do not fit, and they must fit afterwards."""
    try:
        top_k = int(float(raw.get("top_k", 3)))
    except (TypeError, ValueError, OverflowError):
        top_k = 3
    return {"query": str(raw.get("query", "")).strip(), "top_k": max(1, min(5, top_k))}


@assistant.tool(max_retries=2, attempts=3, backoff=0.5, repair=repair_search)
def search(
    ctx: RunContext, query: Annotated[str, Field(min_length=1)], top_k: Annotated[int, Field(ge=1, le=5)] = 3
) -> list[str]:
    """Search the notes for sentences that hold a phrase.

    Args:
        query: A word or a phrase.
        top_k: Most results.
    """
    if ctx.attempt == 1 and random.random() < 0.2:
        raise TransientToolError("The index is busy.")  # Made again after a while; the model never hears of it.
    return [sentence for sentence in CORPUS if query.strip().lower() in sentence.lower()][:top_k]


@offline.rule(r'search "(?P<query>[^"]+)"(, (?P<top_k>\d+) results)?.* (?P<a>-?[\d.]+) \+ "?(?P<b>-?[\d.]*\d)')
def search_and_add(prompt: Prompt) -> Conversation:
    found, added = yield [
        call("search", query=prompt["query"], top_k=prompt.groups.get("top_k", "3")),
        call("add", a=prompt["a"], b=prompt["b"]),
    ]
    if not found.content:
        found = yield call("search", query=prompt["query"].split()[0])
    return f"{' '.join(found.content) or 'Nothing found.'} The sum is {added.content}."


@offline.rule(r'search "(?P<query>[^"]+)"')
def search_only(prompt: Prompt) -> Conversation:
    found = yield call("search", query=prompt["query"])
    return " ".join(found.content) or "Nothing found."


if __name__ == "__main__":
    done = assistant.run_sync(" ".join(sys.argv[1:]) or 'Search "vector databases", 10 results; and what is 1.2 + "3"?')
    for part in (part for message in done.all_messages() for part in message.parts):
        if isinstance(part, ToolCallPart):
            print(f"{part.tool_name}({part.args})")
    print(done.output)
