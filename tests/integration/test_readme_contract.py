"""The promise that any program starts runs and decides, with nothing of outlast: the pages' own words, and by hand."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anyio
import pytest
from temporalio.client import Client

from outlast.server import EmbeddedServer, find_temporal
from outlast.settings import Settings
from outlast.worker import build_worker
from tests.asking import PATIENCE, query_until
from tests.docs.blocks import ROOT, blocks
from tests.histories import assert_healthy
from tests.scripts import run_script
from tests.strict import assert_replays_in_sandbox

README = ROOT / "README.md"
CONTRACT = ROOT / "docs" / "reference" / "contract.md"
PROMPT = "Ada wants a refund of order 1042."
ANSWER = "Sorry about the headphones, Ada. Refunded 1999 cents of order 1042."


def block(page: Path, language: str, containing: str) -> str:
    """The one block of a page in this language that contains these words."""
    [found] = [each.text for each in blocks(page) if each.language == language and containing in each.text]
    return found


class Shop:
    """A queue of the test's own where the refunds example listens, and what is paid there."""

    def __init__(self, client: Client, example: dict[str, Any]) -> None:
        self.client = client
        self.task_queue = f"readme-{uuid.uuid4().hex[:8]}"
        self.run_id = f"refund-{uuid.uuid4().hex[:8]}"
        self._example = example

    def refunded(self) -> int:
        with self._example["database"]() as db:
            return sum(order["refunded"] for order in db.execute(self._example["ORDERS"]))

    def words(self, text: str) -> str:
        """A page's words, for this queue and this run."""
        text = re.sub(r"\brefund-\d\b", self.run_id, text)
        text = text.replace("--task-queue outlast", f"--task-queue {self.task_queue}")
        text = text.replace('"name": "outlast"', f'"name": "{self.task_queue}"')
        return text.replace('task_queue="outlast"', f'task_queue="{self.task_queue}"')

    async def waits(self) -> None:
        await query_until(self.client.get_workflow_handle(self.run_id), "pending", bool)


@pytest.fixture
async def shop(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    monkeypatch.setenv("REFUNDS_DB", str(tmp_path / "refunds.db"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    example = runpy.run_path(str(ROOT / "examples" / "refunds.py"))
    shop = Shop(client, example)
    settings = Settings(task_queue=shop.task_queue)
    # With a cache: the pages ask again and again, and without one the SDK drops a task of those that pile up.
    async with build_worker(client, [example["support"]], settings=settings):
        yield shop
    await assert_replays_in_sandbox(await assert_healthy(client.get_workflow_handle(shop.run_id)))


async def _python(shop: Shop, server: EmbeddedServer, source: str, *, without_outlast: bool = True) -> list[str]:
    source = shop.words(source).replace("localhost:7233", server.address)
    forbidding = "import sys\nsys.modules['outlast'] = None\n" if without_outlast else ""
    env = {**os.environ, "OUTLAST_TASK_QUEUE": shop.task_queue}
    return (await run_script("-c", forbidding + source, env=env)).splitlines()


async def test_the_readmes_python_needs_only_temporalio(shop: Shop, server: EmbeddedServer) -> None:
    question, answer = await _python(shop, server, block(README, "python", "temporalio.client"))
    assert question == "Refund 1999 cents of order 1042? {'order_id': 1042, 'cents': 1999}"
    assert answer == ANSWER
    assert shop.refunded() == 1999


async def test_the_contracts_python_is_refused_with_a_reason_and_then_denies(
    shop: Shop, server: EmbeddedServer
) -> None:
    refused, state, answer = await _python(shop, server, block(CONTRACT, "python", "WorkflowUpdateFailedError"))
    assert refused.startswith("InvalidArguments: The edited arguments do not fit the schema of 'refund'")
    assert "'state': 'denied'" in state
    assert "Offer a voucher." in answer
    assert shop.refunded() == 0


async def test_the_contracts_python_with_outlasts_client(shop: Shop, server: EmbeddedServer) -> None:
    source = block(CONTRACT, "python", "from outlast import Client")
    state, answer = await _python(shop, server, source, without_outlast=False)
    assert "state='approved'" in state
    assert answer == ANSWER
    assert shop.refunded() == 1999


async def _temporal(shop: Shop, server: EmbeddedServer, text: str) -> list[str]:
    env = {
        **os.environ,
        "PATH": f"{find_temporal().parent}{os.pathsep}{os.environ['PATH']}",
        "TEMPORAL_ADDRESS": server.address,
    }
    commands = shop.words(text).replace("\\\n", " ").strip().splitlines()
    return [await _after_waiting(shop, number, command, env) for number, command in enumerate(commands)]


async def test_the_contracts_lines_for_the_temporal_command_line(shop: Shop, server: EmbeddedServer) -> None:
    said = await _temporal(shop, server, block(CONTRACT, "sh", "temporal workflow signal"))
    assert "Refund 1999 cents of order 1042?" in said[1]
    assert ANSWER in said[3]
    assert shop.refunded() == 1999


async def test_the_contracts_update_by_the_temporal_command_line(shop: Shop, server: EmbeddedServer) -> None:
    said = await _temporal(shop, server, block(CONTRACT, "sh", "temporal workflow update"))
    assert "denied" in said[1]
    assert "Offer a voucher." in said[2]
    assert shop.refunded() == 0


async def _curl(shop: Shop, server: EmbeddedServer, text: str) -> list[str]:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    text = shop.words(text).replace("http://localhost:7243", server.http_url)
    where, *commands = re.split(r"\n(?=curl )", text.replace("\\\n", " ").strip())
    return [await _after_waiting(shop, number, f"{where}\n{command}") for number, command in enumerate(commands)]


async def test_the_contracts_lines_for_curl(shop: Shop, server: EmbeddedServer) -> None:
    said = await _curl(shop, server, block(CONTRACT, "sh", "signal/approve"))
    assert json.loads(said[1])["queryResult"][0][0]["prompt"] == "Refund 1999 cents of order 1042?"
    assert ANSWER in said[3]
    assert shop.refunded() == 1999


async def test_the_contracts_updates_by_curl(shop: Shop, server: EmbeddedServer) -> None:
    said = await _curl(shop, server, block(CONTRACT, "sh", "update/deny"))
    assert "outcome" in json.loads(said[1]), said
    refused = json.loads(said[1])["outcome"]["failure"]
    assert refused["applicationFailureInfo"]["type"] == "UnknownCall"
    assert json.loads(said[2])["outcome"]["success"][0]["state"] == "denied"
    with anyio.fail_after(PATIENCE):
        await shop.client.get_workflow_handle(shop.run_id).result()
    assert shop.refunded() == 0


async def _after_waiting(shop: Shop, number: int, command: str, env: dict[str, str] | None = None) -> str:
    if number == 1:
        await shop.waits()
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(["sh", "-ec", command], env=env, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout.decode()


async def test_any_temporal_client_and_a_dict(shop: Shop, client: Client) -> None:
    """As README's Python, and to the letter: each answer has exactly the shape of the contract."""
    run_input = {"agent": "support", "prompt": PROMPT, "metadata": {"requester": "ada"}}
    run = await client.start_workflow("AgentRun", run_input, id=shop.run_id, task_queue=shop.task_queue)
    await shop.waits()
    [call] = await run.query("pending")
    assert {
        "tool_call_id",
        "tool_name",
        "args",
        "digest",
        "kind",
        "requested_at",
        "approvals",
        "needed",
        "metadata",
    } <= (call.keys())
    assert (call["tool_name"], call["kind"]) == ("refund", "approval")
    assert call["args"] == {"order_id": 1042, "cents": 1999}
    assert call["metadata"]["run"] == {"requester": "ada"}
    assert (await run.query("status"))["state"] == "waiting"
    assert shop.refunded() == 0
    await run.signal("approve", {"tool_call_id": call["tool_call_id"], "digest": call["digest"]})
    with anyio.fail_after(PATIENCE):
        result = await run.result()
    assert result.keys() == {"output", "usage", "steps", "messages"}
    assert result["output"] == ANSWER
    assert shop.refunded() == 1999


async def test_the_http_api_and_nothing_but_the_standard_library(shop: Shop, server: EmbeddedServer) -> None:
    base = f"{server.http_url}/api/v1/namespaces/{server.namespace}/workflows/{shop.run_id}"

    def send(path: str = "", body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(base + path, data=data, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    async def ask(path: str = "", body: Any = None) -> Any:
        return await asyncio.to_thread(send, path, body)

    await ask(
        body={
            "workflowType": {"name": "AgentRun"},
            "taskQueue": {"name": shop.task_queue},
            "input": [{"agent": "support", "prompt": PROMPT}],
        }
    )
    await shop.waits()
    [[call]] = (await ask("/query/pending", {}))["queryResult"]
    assert call["prompt"] == "Refund 1999 cents of order 1042?"
    decision = {"tool_call_id": call["tool_call_id"], "digest": call["digest"], "by": "ada"}
    await ask("/signal/approve", {"input": [decision]})
    events = (await ask("/history?waitNewEvent=true&historyEventFilterType=HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT"))[
        "history"
    ]["events"]
    [result] = events[-1]["workflowExecutionCompletedEventAttributes"]["result"]
    assert result["output"] == ANSWER
    assert shop.refunded() == 1999
