"""`outlast demo`: a refund that a person approves, by a worker that dies while it waits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client as TemporalClient

import outlast
from outlast.cli.asking import ask_about, waiting_text
from outlast.cli.deciding import decide
from outlast.cli.following import Follower
from outlast.cli.looking import look_at
from outlast.cli.options import Json
from outlast.cli.program import program, short
from outlast.cli.rendering import call_line
from outlast.cli.screen import Labelled, Screen, whole
from outlast.cli.telling import Teller
from outlast.cli.timeline import Message
from outlast.cli.worker_process import WorkerProcess, worker_environment
from outlast.client import WORKFLOW_TYPE, Client, Run
from outlast.errors import OutlastError, UserError
from outlast.logs import logging_runtime
from outlast.server import EmbeddedServer
from outlast.settings import Settings

__all__ = ("demo",)

# Resolved: in a checkout this is `examples/refunds.py` at its top.
APP = (Path(outlast.__file__).parent / "examples" / "refunds.py").resolve()
PROMPT = "Ada wants a refund of order 1042: the headphones are broken."
PORT = 7233
PATIENCE_SECONDS = 300


async def demo(
    *,
    ui: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    json: Json = False,
) -> None:
    """See it work: a refund waits for a person, and its worker dies meanwhile.

    Starts a Temporal server, a worker and a run of the example agent; kills the worker with SIGKILL while the run
    waits for an approval, starts another, and goes on. Needs no key. Asks for the approval on a terminal; elsewhere it
    approves by itself. Nothing is left running.

    Args:
        ui: Only serve the Temporal UI, with the runs of earlier demos, until Enter or Ctrl-C.
        json: Write one JSON value on standard output; words go to standard error.
    """
    screen = Screen(as_json=json)
    folder = (Settings.load().state_dir / "demo").resolve()
    server = await _start_server(folder)
    try:
        temporal = await TemporalClient.connect(server.address, runtime=logging_runtime())
        if ui:
            await _serve_ui(screen, server, temporal)
        else:
            await _Demo(screen=screen, server=server, temporal=temporal, folder=folder).play()
    finally:
        await server.stop()


async def _start_server(folder: Path) -> EmbeddedServer:
    server = EmbeddedServer(data_dir=folder, port=PORT)
    try:
        await server.start()
    except UserError:
        # Something listens on Temporal's own ports. Whatever else is wrong, is so with free ports, too.
        server = EmbeddedServer(data_dir=folder)
        await server.start()
    return server


async def _serve_ui(screen: Screen, server: EmbeddedServer, temporal: TemporalClient) -> None:
    query = f"WorkflowType = '{WORKFLOW_TYPE}'"
    runs = [execution.id async for execution in temporal.list_workflows(query, limit=5)]
    links = [server.run_url(run_id) or "" for run_id in runs] or ["There are no runs yet: `outlast demo` makes one."]
    screen.answer(
        {"ui": server.ui_url, "address": server.address, "runs": runs},
        Labelled("UI", server.ui_url or "", style="bold cyan"),
        Labelled("runs", *links),
    )
    await _until_told(screen, "Press Enter or Ctrl-C to stop it.")


@dataclass(kw_only=True)
class _Demo:
    screen: Screen
    server: EmbeddedServer
    temporal: TemporalClient
    folder: Path
    killed: list[int] = field(default_factory=list[int])
    decided: str | None = None

    async def play(self) -> None:
        database = self.folder / "refunds.db"
        for file in self.folder.glob("refunds.db*"):
            file.unlink()
        os.environ["REFUNDS_DB"] = str(database)
        before = _orders()
        await self._introduce()
        worker = WorkerProcess(APP, env=self._environment(), folder=self.folder, log=self.folder / "worker.log")
        async with worker:
            self._say("worker", f"process {worker.pid} hosts the agent 'support' of {APP.name}")
            run = await Client(self.temporal).start("support", PROMPT)
            self._say("run", Text(run.id, style="bold"), PROMPT)
            limit = None if self.screen.asks else PATIENCE_SECONDS
            try:
                async with asyncio.timeout(limit):
                    await _while_it_lives(worker, self._follow(run, worker))
            except TimeoutError:
                raise DemoStuck(
                    f"The run did not end within {PATIENCE_SECONDS} seconds. The logs are in {self.folder}."
                ) from None
            result = await run.result()
        after = _orders()
        link = self.server.run_url(run.id)
        self._say("answer", Text(str(result.output), style="bold green"))
        self.screen.say("", _table(before, after), "")
        self._conclude(link)
        if self.screen.as_json:
            self.screen.answer(
                {
                    "run_id": run.id,
                    "output": result.output,
                    "decision": self.decided,
                    "workers_killed": self.killed,
                    "before": before,
                    "after": after,
                    "ui": link,
                }
            )
        if self.screen.asks:
            await _until_told(self.screen, "The server runs until you press Enter.")

    def _say(self, label: str, *words: str | Text, style: str = "bold") -> None:
        self.screen.say(Labelled(label, *words, style=style))

    async def _introduce(self) -> None:
        about = await self.temporal.workflow_service.get_system_info(GetSystemInfoRequest())
        self.screen.say(
            Text("A refund waits for a person, and the worker dies meanwhile.", style="bold"),
            Text("The agent follows fixed rules, so this needs no key. All else is real.", style="dim"),
            "",
        )
        self._say("server", f"Temporal {about.server_version} at {self.server.address}, state in {short(self.folder)}")

    def _environment(self) -> dict[str, str]:
        # No key: the rules answer.
        return worker_environment(self.server, without=("OUTLAST_", "OPENAI_", "DEEPSEEK_"))

    async def _follow(self, run: Run, worker: WorkerProcess) -> None:
        follower, teller = Follower(self.temporal, run.id), Teller()
        async for changes in follower.changes():
            for change in changes:
                if not isinstance(change, Message):  # what is decided here is told here
                    self.screen.say(*teller.tell(change))
            if follower.timeline in changes and follower.timeline.count:
                await self._gate(run, worker)

    async def _gate(self, run: Run, worker: WorkerProcess) -> None:
        client = Client(self.temporal)
        seen = await look_at(client, run.id)
        [call] = seen.calls
        self._say("waits", waiting_text(call), call_line(call.tool_name, call.args or {}), style="bold yellow")
        self.killed.append(worker.pid)
        await worker.kill()
        self._say(
            "kill -9",
            f"process {self.killed[-1]}. No process has the run in its memory now: it waits on the server, "
            "and could do so for weeks.",
            style="bold red",
        )
        await worker.start()
        self._say("worker", f"process {worker.pid} starts, and learns of the run from the server")
        seen = await look_at(client, run.id)
        if self.screen.asks:
            self.decided = await ask_about(client, self.screen, seen, call)
        else:
            self._say("approve", "Nobody is at a terminal to ask, so this demo approves by itself.")
            state = await decide(client, seen, "approve", call.tool_call_id, digest=call.digest, by="outlast demo")
            self.decided = state.state

    def _conclude(self, link: str | None) -> None:
        look = [whole(link or "")]
        if not self.screen.asks:
            look += [
                Text("The server is stopped now. This serves the page again:"),
                whole(f"{program('outlast')} demo --ui"),
            ]
        self._say("look", *look)
        example = short(APP)
        steps = [
            whole(f"{program('outlast')} {'worker' if self.screen.asks else 'dev'} {example}"),
            whole(f'{program("outlast")} run support "{PROMPT}"'),
            whole(f"{program('outlast')} pending"),
        ]
        where = "While this server runs, in other terminals:" if self.screen.asks else "Each in a terminal of its own:"
        steps.insert(0, Text(where))
        self._say("next", f"Read {example}. Then run it yourself:", *steps)


class DemoStuck(OutlastError):
    """The demo did not come to its end."""


async def _while_it_lives(worker: WorkerProcess, work: Coroutine[Any, Any, None]) -> None:
    """Do something that needs the worker, and fail as soon as that has ended by itself."""
    tasks = {asyncio.create_task(work), asyncio.create_task(worker.watch())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _orders() -> list[dict[str, Any]]:
    """What the shop's database says, which it makes when it is not there."""
    from outlast.examples import refunds

    with refunds.database() as db:
        return [dict(order) for order in db.execute(refunds.ORDERS)]


def _table(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("order", "customer", "item"):
        table.add_column(name)
    for name in ("paid", "refunded before", "refunded after"):
        table.add_column(name, justify="right")
    for old, new in zip(before, after, strict=True):
        changed = "bold green" if old != new else ""
        cells = [str(new[name]) for name in ("order_id", "customer", "item", "cents")]
        table.add_row(*cells, str(old["refunded"]), str(new["refunded"]), style=changed)
    return table


async def _until_told(screen: Screen, words: str) -> None:
    try:
        if screen.asks:
            await screen.ask(Labelled("", words))
        else:
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        # Ctrl-C is as good an end as Enter: all is done.
        pass
