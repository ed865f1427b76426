"""The examples as a newcomer starts them: processes of their own, on the real server, without a key."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.client import Client

from outlast.cli.worker_process import WorkerProcess
from outlast.server import EmbeddedServer
from tests.asking import PATIENCE, query_until
from tests.scripts import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = 'Search "vector databases", 10 results; and what is 1.2 + "3"?'
ANSWER = "A vector database finds what is similar: FAISS, Milvus and PGVector do it. The sum is 4.2."
REFUND = "Ada wants a refund of order 1042."


class Desk:
    """A server of the test's own, so that nothing waits there but what the test started."""

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TEMPORAL_", "OUTLAST_", "DEEPSEEK_", "OPENAI_"))
        }
        self.server = server
        self.folder = folder
        self.env = {**kept, "TEMPORAL_ADDRESS": server.address, "TEMPORAL_CONFIG_FILE": os.devnull}

    async def python(self, *words: str, said: str = "") -> str:
        """What a Python program prints, which is told these lines."""
        return await run_script(*words, env=self.env, cwd=self.folder, typed=said)

    async def chat(self, said: str = "") -> str:
        # None: an import of outlast would fail.
        forbid = "import sys, runpy; sys.modules['outlast'] = None; runpy.run_path(sys.argv[1])"
        return await self.python("-c", forbid, str(EXAMPLES / "chat_approval.py"), said=said)

    def worker(self, example: str) -> WorkerProcess:
        log = self.folder / "worker.log"
        return WorkerProcess(EXAMPLES / example, env=self.env, folder=self.folder, log=log)

    async def refund(self) -> Any:
        """A run that waits, once the server lists it so: its listing is a little behind."""
        client = await Client.connect(self.server.address)
        run = await client.start_workflow(
            "AgentRun",
            {"agent": "support", "prompt": REFUND},
            id=f"refund-{uuid.uuid4().hex[:8]}",
            task_queue="outlast",
        )
        await query_until(run, "pending", bool)
        await self._listed(client, run.id)
        return run

    async def _listed(self, client: Client, run_id: str) -> None:
        with anyio.fail_after(PATIENCE):
            while True:
                async for found in client.list_workflows("ExecutionStatus = 'Running'"):
                    if found.id == run_id and (await found.memo()).get("outlast"):
                        return
                await anyio.sleep(0.02)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with EmbeddedServer(ui=False) as server:
        yield Desk(server, tmp_path)


@pytest.fixture
async def shop(desk: Desk) -> AsyncIterator[Desk]:
    async with desk.worker("refunds.py"):
        yield desk


async def test_the_assistant_uses_two_tools_at_once_and_one_again(desk: Desk) -> None:
    said = await desk.python(str(EXAMPLES / "multi_tool.py"), QUESTION)
    *calls, answer = said.splitlines()
    assert [line.partition("(")[0] for line in calls] == ["search", "add", "search"]
    assert answer == ANSWER


async def test_the_assistant_runs_durably_with_the_same_answer(desk: Desk) -> None:
    async with desk.worker("multi_tool.py"):
        said = await desk.python("-m", "outlast", "run", "assistant", QUESTION, "--json")
    assert json.loads(said)["output"] == ANSWER


async def test_with_a_key_in_the_env_file_deepseek_answers(desk: Desk) -> None:
    (desk.folder / ".env").write_text("DEEPSEEK_API_KEY=sk-test\nDEEPSEEK_MODEL=deepseek-reasoner\n")
    show = f"import runpy; print(runpy.run_path({str(EXAMPLES / 'multi_tool.py')!r})['assistant'].model.model_name)"
    assert (await desk.python("-c", show)).strip() == "deepseek-reasoner"


def test_the_program_that_decides_is_short() -> None:
    """What its page promises: fewer than 30 lines."""
    assert len((EXAMPLES / "chat_approval.py").read_text().splitlines()) < 30


async def test_where_nothing_waits_nobody_is_asked(desk: Desk) -> None:
    assert await desk.chat() == "Nothing else waits.\n"


async def test_each_call_that_waits_is_asked_for_and_done_as_was_said(shop: Desk) -> None:
    runs = [await shop.refund() for _ in range(3)]
    said = await shop.chat("y\nn\nOnly vouchers, please.\n")
    asked = re.findall(r"(refund-\w+): Refund 1999 cents of order 1042\?", said)
    assert sorted(asked) == sorted(run.id for run in runs)
    assert said.count("refund {'order_id': 1042, 'cents': 1999}") == 3
    by_id = {run.id: run for run in runs}
    with anyio.fail_after(PATIENCE):
        outputs = [(await by_id[run_id].result())["output"] for run_id in asked]
    assert outputs[0] == "Sorry about the headphones, Ada. Refunded 1999 cents of order 1042."
    assert outputs[1].startswith("The headphones cannot be refunded: ")
    assert "Only vouchers, please." in outputs[2]


async def test_an_empty_answer_is_a_no(shop: Desk) -> None:
    run = await shop.refund()
    assert "denied" in await shop.chat("\n")
    with anyio.fail_after(PATIENCE):
        assert "cannot be refunded" in (await run.result())["output"]


async def test_somebody_else_who_decides_first_is_told_and_no_mistake(shop: Desk) -> None:
    """Between the question and the answer the run may have gone on, or have ended."""
    run = await shop.refund()
    forbid = "import sys, runpy; sys.modules['outlast'] = None; runpy.run_path(sys.argv[1])"
    command = [sys.executable, "-uc", forbid, str(EXAMPLES / "chat_approval.py")]
    async with await anyio.open_process(command, env=shop.env, cwd=shop.folder) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        said = b""
        with anyio.fail_after(PATIENCE):
            while b"instead: " not in said:
                said += await chat.stdout.receive()
            [call] = await run.query("pending")
            await run.execute_update("deny", {"tool_call_id": call["tool_call_id"], "by": "grace"})
            await run.result()
            await chat.stdin.send(b"y\n")
            said = b"".join([part async for part in chat.stdout])
    assert b"already completed" in said
    assert b"Nothing else waits." in said
