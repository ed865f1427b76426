"""The command line against the real server, as a user types it: each verb in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.client import Client

from outlast import Agent, OfflineModel
from outlast.client import Client as OutlastClient
from outlast.models.offline import Conversation, Prompt, call
from outlast.server import EmbeddedServer
from outlast.settings import Settings
from outlast.toolsets.definition import ToolDefinition
from outlast.toolsets.external import ExternalToolset
from outlast.worker import build_worker
from tests.asking import PATIENCE, query_until
from tests.histories import assert_healthy


def shop_agent() -> Agent[Any, str]:
    """Pays what a person approves, and asks another system for a parcel."""
    model = OfflineModel()

    @model.rule(r"pay (?P<cents>\d+)")
    def pay_rule(prompt: Prompt) -> Conversation:
        done = yield call("pay", cents=int(prompt["cents"]), to="ada")
        return f"{done.outcome}: {done.content}"

    @model.rule("parcel")
    def parcel_rule(_: Prompt) -> Conversation:
        done = yield call("parcel")
        return f"{done.outcome}: {done.content}"

    @model.rule("hello")
    def hello_rule(prompt: Prompt) -> str:
        return f"hello {prompt.text}"

    @model.rule(r"look (?P<times>\d+) times")
    def look_rule(prompt: Prompt) -> Conversation:
        for page in range(int(prompt["times"])):
            yield call("look", page=page)
        return "looked"

    @model.rule("fail")
    def fail_rule(_: Prompt) -> Conversation:
        yield call("fail")
        yield call("fail")
        return "unreachable"

    external = ToolDefinition(name="parcel", parameters_json_schema={"type": "object", "properties": {}})
    agent: Agent[Any, str] = Agent(model, name="shop", toolsets=[ExternalToolset([external])])

    @agent.tool_plain(requires_approval=True)
    def pay(cents: int, to: str) -> str:
        """Pay somebody."""
        return f"paid {cents} cents to {to}"

    @agent.tool_plain
    def look(page: int) -> str:
        """Look at a page."""
        return f"page {page}"

    @agent.tool_plain(on_error="fail_run", attempts=1)
    def fail() -> str:
        """Fail."""
        raise ValueError("card declined")

    return agent


class Shell:
    """Types commands; the task queue and the folder are the test's own."""

    def __init__(self, client: Client, server: EmbeddedServer, folder: Path) -> None:
        self.client = client
        self.task_queue = f"cli-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "OUTLAST_"))},
            "TEMPORAL_ADDRESS": server.address,
            "OUTLAST_TASK_QUEUE": self.task_queue,
            "OUTLAST_SHUTDOWN_GRACE": "1",
            "COLUMNS": "80",
        }
        self.error = ""

    async def outlast(self, *words: str, code: int = 0) -> str:
        """What a command prints on standard output; what it prints on standard error is in `error`."""
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(
                [sys.executable, "-m", "outlast", *words], cwd=self.folder, env=self.env, check=False
            )
        self.error = done.stderr.decode()
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout.decode()}\n{self.error}"
        assert "Traceback" not in self.error
        return done.stdout.decode()

    async def json(self, *words: str, code: int = 0) -> Any:
        """The one JSON value that a command prints."""
        return json.loads(await self.outlast(*words, "--json", code=code))

    async def start(self, prompt: str) -> str:
        """Start a run; its ID."""
        run = await OutlastClient(self.client, task_queue=self.task_queue).start("shop", prompt)
        return run.id

    async def waiting(self, prompt: str) -> tuple[str, str]:
        """Start a run and wait until its call waits; their IDs."""
        run_id = await self.start(prompt)
        calls = await query_until(self.client.get_workflow_handle(run_id), "pending", bool)
        return run_id, calls[0]["tool_call_id"]

    async def listed(self, run_id: str) -> None:
        """Wait until the server lists what the run waits for: its listing is a little behind."""
        client = OutlastClient(self.client)
        with anyio.fail_after(PATIENCE):
            while run_id not in [call.run_id for call in await client.list_pending()]:
                await anyio.sleep(0.05)

    async def output(self, run_id: str) -> Any:
        """The output of a run, whose history is looked at."""
        handle = self.client.get_workflow_handle(run_id)
        with anyio.fail_after(PATIENCE):
            result = await handle.result()
        await assert_healthy(handle)
        return result["output"]

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[None]:
        """A worker, in this process."""
        settings = Settings(task_queue=self.task_queue)
        async with build_worker(self.client, [shop_agent()], settings=settings, max_cached_workflows=0):
            yield


@pytest.fixture
def shell(client: Client, server: EmbeddedServer, tmp_path: Path) -> Shell:
    return Shell(client, server, tmp_path)


@pytest.fixture
async def served(shell: Shell) -> AsyncIterator[Shell]:
    """A shell, with a worker."""
    async with shell.worker():
        yield shell


async def test_a_run_that_needs_nobody_prints_its_output(served: Shell) -> None:
    assert "output     hello hello there\n" in await served.outlast("run", "shop", "hello there")
    result = await served.json("run", "shop", "hello there", "--id", f"{served.task_queue}-1")
    assert result["run_id"] == f"{served.task_queue}-1"
    assert result["state"] == "completed"
    assert result["output"] == "hello hello there"


async def test_a_run_that_waits_ends_with_3_and_what_to_type(served: Shell) -> None:
    text = await served.outlast("run", "shop", "pay 5", code=3)
    commands = [line.split() for line in text.splitlines() if line.startswith("  outlast approve")]
    [[_, verb, run_id, call_id]] = commands
    await served.outlast(verb, run_id, call_id)
    assert await served.output(run_id) == "success: paid 5 cents to ada"


async def test_a_failed_run_ends_with_1_and_says_why(served: Shell) -> None:
    text = await served.outlast("run", "shop", "fail", code=1)
    assert "failed     ToolFailed: " in text
    assert "card declined" in text
    failed = await served.json("run", "shop", "fail", code=1)
    assert failed["state"] == "failed"
    assert failed["error"]["type"] == "ToolFailed"


async def test_an_id_that_is_running_is_refused(served: Shell) -> None:
    run_id, _ = await served.waiting("pay 5")
    await served.outlast("run", "shop", "hello", "--id", run_id, code=2)
    assert "is under way already" in served.error


async def test_an_agent_that_no_worker_has_fails_the_run_with_the_names_that_it_has(served: Shell) -> None:
    text = await served.outlast("run", "stop", "hello", code=1)
    assert "UnknownAgent" in text
    assert "'shop'" in text


async def test_pending_lists_what_waits_over_all_runs_and_in_one(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    await served.listed(run_id)
    everywhere = await served.json("pending")
    [listed] = [call for call in everywhere["calls"] if call["run_id"] == run_id]
    assert listed["tool_call_id"] == call_id
    assert "args" not in listed, "the memo has no arguments"
    here = await served.json("pending", run_id)
    assert here["answered"] is True
    [call] = here["calls"]
    assert call["args"] == {"cents": 5, "to": "ada"}
    assert call["digest"] == listed["digest"]
    assert f"outlast approve {run_id} {call_id}" in await served.outlast("pending", run_id)
    assert run_id in await served.outlast("pending")


async def test_an_approval_names_the_digest_of_what_was_looked_at(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    text = await served.outlast("approve", run_id, call_id, "--by", "ada", "--reason", "fine")
    assert text == 'Approved, and running: pay(cents=5, to="ada")\n'
    assert await served.output(run_id) == "success: paid 5 cents to ada"
    history = await served.client.get_workflow_handle(run_id).fetch_history()
    [sent] = [
        json.loads(
            event.workflow_execution_update_accepted_event_attributes.accepted_request.input.args.payloads[0].data
        )
        for event in history.events
        if event.HasField("workflow_execution_update_accepted_event_attributes")
    ]
    assert len(sent.pop("digest")) == 64
    assert sent == {"tool_call_id": call_id, "by": "ada", "reason": "fine"}


async def test_an_approval_of_other_arguments_than_those_that_wait_is_refused(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    error = await served.json("approve", run_id, call_id, "--digest", "0" * 64, code=2)
    assert error["error"]["type"] == "DigestMismatch"
    await served.outlast("deny", run_id, call_id)


async def test_an_edit_changes_one_argument_and_keeps_the_others(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    error = await served.json("approve", run_id, call_id, "--edit", "cents=lots", code=2)
    assert error["error"]["type"] == "InvalidArguments"
    assert "cents" in error["error"]["message"]
    done = await served.json("approve", run_id, call_id, "--edit", "cents=3")
    assert done["state"] == "approved"
    assert done["args"] == {"cents": 3, "to": "ada"}
    assert await served.output(run_id) == "success: paid 3 cents to ada"


async def test_a_denied_call_tells_the_model(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    assert (await served.outlast("deny", run_id, call_id, "--message", "Too much.")).startswith("Denied")
    assert await served.output(run_id) == "denied: Too much."


async def test_resolve_gives_a_call_its_result_from_outside(served: Shell) -> None:
    run_id, call_id = await served.waiting("parcel")
    await served.outlast("approve", run_id, call_id, code=2)
    assert "error" in served.error
    await served.outlast("resolve", run_id, call_id, '{"sent": true}')
    assert await served.output(run_id) == "success: {'sent': True}"


async def test_retry_sends_a_call_back_to_the_model(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    done = await served.json("retry", run_id, call_id, "Pay less.")
    assert done["state"] == "retried"
    assert "Pay less." in await served.output(run_id)


async def test_a_decision_said_twice_is_no_mistake_and_another_one_is(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    await served.outlast("pause", run_id)
    await served.outlast("approve", run_id, call_id)
    again = await served.json("approve", run_id, call_id)
    assert again["state"] == "approved"
    assert again["repeated"] is True
    error = await served.json("deny", run_id, call_id, code=2)
    assert error["error"]["type"] == "AlreadyDecided"
    await served.outlast("resume", run_id)
    assert await served.output(run_id) == "success: paid 5 cents to ada"
    error = await served.json("approve", run_id, call_id, code=2)
    assert error["error"]["type"] == "UnknownRun"
    assert "has ended (completed)" in error["error"]["message"]


async def test_a_call_that_does_not_wait_is_told_with_those_that_do(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    error = await served.json("approve", run_id, "call-9", code=2)
    assert error["error"]["type"] == "UnknownCall"
    assert f"{call_id} (pay)" in error["error"]["message"]
    await served.outlast("deny", run_id, call_id)


async def test_steer_and_cancel(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 5")
    await served.outlast("steer", run_id, "hello instead")
    await served.outlast("deny", run_id, call_id)
    assert await served.output(run_id) == "hello hello instead"
    run_id, _ = await served.waiting("pay 5")
    await served.outlast("cancel", run_id)
    with anyio.fail_after(PATIENCE):
        while (await served.json("pending", run_id))["state"] != "cancelled":
            await anyio.sleep(0.1)
    error = await served.json("steer", run_id, "hello", code=2)
    assert error["error"]["type"] == "UnknownRun"


async def test_a_run_or_a_namespace_that_is_not_there_is_one_line(shell: Shell) -> None:
    for words in (["pending", "nope"], ["approve", "nope", "call"], ["steer", "nope", "hi"], ["cancel", "nope"]):
        await shell.outlast(*words, code=2)
        assert shell.error.startswith("error  There is no run 'nope'"), words
    await shell.outlast("pending", "--namespace", "nope", code=2)
    assert "has no namespace 'nope'" in shell.error
    assert len(shell.error.splitlines()) == 1


async def test_a_workflow_of_another_kind_is_no_run(shell: Shell) -> None:
    other = await shell.client.start_workflow("Other", id=f"other-{shell.task_queue}", task_queue=shell.task_queue)
    await shell.outlast("pending", other.id, code=2)
    assert "is no agent run, but a workflow of type 'Other'" in shell.error
    await other.terminate()


async def test_without_a_worker_what_waits_is_listed_and_decided_all_the_same(shell: Shell) -> None:
    """The person who approves at night need not know how to start a worker."""
    async with shell.worker():
        run_id, call_id = await shell.waiting("pay 5")
        other_id, other_call = await shell.waiting("pay 6")
        # While the worker is there: it may answer a query before it has written down what waits.
        await shell.listed(run_id)
        await shell.listed(other_id)
    assert run_id in await shell.outlast("pending")
    here = await shell.json("pending", run_id)
    assert here["answered"] is False
    [seen] = here["calls"]
    assert seen["sentence"] == 'cents=5, to="ada"'
    text = await shell.outlast("pending", run_id)
    assert f"outlast approve {run_id} {call_id}" in text
    assert "No worker" in shell.error
    await shell.outlast("approve", run_id, call_id, "--edit", "cents=1", code=2)
    assert "only a worker knows them" in shell.error
    sent = await shell.json("approve", run_id, call_id)
    assert sent["state"] == "sent"
    assert sent["digest"] == seen["digest"]
    assert (await shell.outlast("deny", other_id, other_call)).startswith("Sent, and applies once a worker is there")
    async with shell.worker():
        assert await shell.output(run_id) == "success: paid 5 cents to ada"
        assert (await shell.output(other_id)).startswith("denied")


async def test_where_nobody_ever_listened_the_server_says_so(shell: Shell) -> None:
    run_id = await shell.start("pay 5")
    assert await shell.outlast("pending", run_id) == "Nothing waits in this run.\n"
    assert f"No worker listens on the task queue '{shell.task_queue}'" in shell.error
    assert (await shell.json("pending", run_id))["workers"] == []
    await shell.client.get_workflow_handle(run_id).terminate()
    assert await shell.outlast("pending", run_id) == "This run has ended: terminated.\n"


APP = """
from outlast import Agent, OfflineModel

model = OfflineModel()
model.rule("hello")(lambda prompt: f"hello from {__name__}")
agent = Agent(model, name="shop")
other = Agent(model, name="other")
"""


async def test_a_worker_hosts_an_app_until_it_is_told_to_stop(shell: Shell) -> None:
    (shell.folder / "app.py").write_text(APP)
    async with AsyncExitStack() as stack:
        worker = await anyio.open_process(
            [sys.executable, "-m", "outlast", "worker", "app.py", "--json"],
            cwd=shell.folder,
            env=shell.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        stack.callback(lambda: worker.returncode is None and worker.kill())
        assert worker.stdout is not None
        assert worker.stderr is not None
        with anyio.fail_after(PATIENCE):
            ready = json.loads(await worker.stdout.receive())
            assert ready["agents"] == ["shop", "other"]
            assert ready["task_queue"] == shell.task_queue
            assert ready["pid"] == worker.pid
            assert (await shell.json("run", "shop", "hello"))["output"] == "hello from app"
            worker.send_signal(signal.SIGTERM)
            assert await worker.wait() == 0
            log = [json.loads(line) for line in (await read(worker.stderr.receive)).splitlines()]
    assert {line["logger"] for line in log} == {"outlast.worker"}
    assert "Draining" in log[0]["message"]


async def read(receive: Callable[[], Any]) -> str:
    text = b""
    try:
        while True:
            text += await receive()
    except anyio.EndOfStream:
        return text.decode()
