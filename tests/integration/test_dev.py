"""`outlast dev APP` as a developer uses it: a process of its own, whose files change under it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import anyio.abc
import pytest
from temporalio.client import Client as TemporalClient

from outlast.client import Client
from outlast.server import EmbeddedServer
from tests.asking import PATIENCE
from tests.histories import assert_healthy

APP = """
    from outlast import Agent, OfflineModel
    from outlast.models.offline import call

    model = OfflineModel()
    shop = Agent(model, name="shop")


    @model.rule("pay")
    def pay_rule(_):
        done = yield call("pay", cents=5)
        return f"{done.outcome}: {done.content}"


    @shop.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        '''Pay somebody.'''
        return f"VERSION paid {cents}"
"""

LOOK = """

    @shop.tool_plain
    def look() -> None:
        '''Look.'''
"""


class Dev:
    """`outlast dev app.py --json` on free ports, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""
        self.ready: dict[str, Any] = {}
        self._out = b""

    def write(self, source: str) -> None:
        """Save the app, as an editor does: all at once."""
        (self.folder / "new").write_text(dedent(source))
        (self.folder / "new").replace(self.folder / "app.py")

    async def start(self, group: anyio.abc.TaskGroup, *words: str, **variables: str) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "OUTLAST_"))}
        self.process = await anyio.open_process(
            [sys.executable, "-m", "outlast", "dev", "app.py", "--json", *(words or ("--port", "0"))],
            cwd=self.folder,
            env={**env, "COLUMNS": "100", "OUTLAST_SHUTDOWN_GRACE": "60", **variables},
        )
        group.start_soon(self._read_words)
        group.start_soon(self._read_answer)

    async def _read_words(self) -> None:
        assert self.process.stderr is not None
        async for chunk in self.process.stderr:
            self.said += chunk.decode()

    async def _read_answer(self) -> None:
        assert self.process.stdout is not None
        async for chunk in self.process.stdout:
            self._out += chunk
            if self._out.endswith(b"\n"):
                self.ready = json.loads(self._out)

    async def until(self, condition: Callable[[], Any]) -> None:
        with anyio.move_on_after(PATIENCE):
            while not condition():
                await anyio.sleep(0.02)
            return
        pytest.fail(f"It never came to that. It said:\n{self.said}")

    async def client(self) -> Client:
        return Client(await TemporalClient.connect(self.ready["address"]))

    async def ends(self) -> int:
        with anyio.fail_after(PATIENCE):
            return await self.process.wait()

    @asynccontextmanager
    async def running(self, *words: str, **variables: str) -> AsyncGenerator[None]:
        """From its start to its end, at the latest that of the block."""
        async with anyio.create_task_group() as group:
            await self.start(group, *words, **variables)
            try:
                yield
            finally:
                if self.process.returncode is None:
                    self.process.kill()
                await self.process.wait()


@pytest.fixture
async def dev(tmp_path: Path) -> AsyncIterator[Dev]:
    dev = Dev(tmp_path)
    dev.write(APP.replace("VERSION", "one"))
    async with dev.running():
        yield dev


async def outlast_dev(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """`outlast dev` where it ends by itself."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "OUTLAST_"))}
    with anyio.fail_after(PATIENCE):
        return await anyio.run_process(
            [sys.executable, "-m", "outlast", "dev", *words], cwd=folder, env=env, check=False
        )


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_run_goes_on_over_a_reload_with_the_new_code(dev: Dev) -> None:
    await dev.until(lambda: dev.ready)
    client = await dev.client()
    run = await client.start("shop", "pay", id="over-a-reload")
    while not await client.list_pending():
        await anyio.sleep(0.05)
    dev.write(
        APP.replace("VERSION", "two") + "\n\n    @shop.tool_plain\n    def look() -> None:\n        '''Look.'''\n"
    )
    await dev.until(lambda: "shop: + look" in dev.said)
    await dev.until(lambda: gone(dev.ready["worker"]["pid"]))
    [call] = await run.pending()
    await run.approve(call.tool_call_id)
    with anyio.fail_after(PATIENCE):
        assert (await run.result()).output == "success: two paid 5"
    await assert_healthy(client.temporal.get_workflow_handle(run.id))


async def test_code_that_cannot_be_loaded_is_told_and_runs_wait_for_the_change_that_mends_it(dev: Dev) -> None:
    """The worker of before would run code that is no longer there, and nobody would know."""
    await dev.until(lambda: dev.ready)
    client = await dev.client()
    dev.write("def broken(\n")
    await dev.until(lambda: "tried again" in dev.said)
    assert "app.py, line 1: '(' was never closed" in dev.said
    assert "Traceback" not in dev.said
    await dev.until(lambda: gone(dev.ready["worker"]["pid"]))
    run = await client.start("shop", "pay")
    dev.write(APP.replace("VERSION", "three"))
    await dev.until(lambda: "has taken over" in dev.said)
    while not (calls := await client.list_pending()):
        await anyio.sleep(0.05)
    await run.approve(calls[0].tool_call_id)
    with anyio.fail_after(PATIENCE):
        assert (await run.result()).output == "success: three paid 5"


async def test_an_app_that_is_broken_from_the_start_is_served_once_it_is_mended(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    dev.write("import nowhere\n")
    async with dev.running():
        await dev.until(lambda: "tried again" in dev.said)
        assert "app.py, line 1 imports 'nowhere'" in dev.said
        assert "runs wait, and lose nothing" in " ".join(dev.said.split())
        dev.write(APP)
        await dev.until(lambda: dev.ready)
        dev.process.send_signal(signal.SIGINT)
        assert await dev.ends() == 0


async def test_a_worker_and_a_server_that_die_are_started_again_and_the_run_ends(dev: Dev) -> None:
    await dev.until(lambda: dev.ready)
    client = await dev.client()
    run = await client.start("shop", "pay")
    while not (calls := await client.list_pending()):
        await anyio.sleep(0.05)
    os.kill(dev.ready["worker"]["pid"], signal.SIGKILL)
    await dev.until(lambda: "has taken over" in dev.said)
    os.kill(dev.ready["server_pid"], signal.SIGKILL)
    await dev.until(lambda: "answers again" in dev.said)
    client = await dev.client()
    await client.get(run.id).approve(calls[0].tool_call_id)
    with anyio.fail_after(PATIENCE):
        assert (await client.get(run.id).result()).output == "success: one paid 5"


async def test_ctrl_c_stops_all_and_a_waiting_run_is_there_at_the_next_start(dev: Dev) -> None:
    await dev.until(lambda: dev.ready)
    client = await dev.client()
    run = await client.start("shop", "pay")
    while not await client.list_pending():
        await anyio.sleep(0.05)
    pids = dev.ready["worker"]["pid"], dev.ready["server_pid"]
    dev.process.send_signal(signal.SIGINT)
    assert await dev.ends() == 0
    assert all(gone(pid) for pid in pids)
    async with EmbeddedServer(data_dir=dev.folder / ".outlast") as server:
        again = Client(await TemporalClient.connect(server.address))
        [call] = await again.list_pending()
        assert call.run_id == run.id


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a watching process needs up to a second")
async def test_kill_9_leaves_no_server_and_no_worker_behind(dev: Dev) -> None:
    await dev.until(lambda: dev.ready)
    pids = dev.ready["worker"]["pid"], dev.ready["server_pid"]
    dev.process.kill()
    await dev.until(lambda: all(gone(pid) for pid in pids))


async def test_a_port_that_is_taken_by_a_temporal_server_says_what_to_do(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    port = int(server.address.rpartition(":")[2])
    (tmp_path / "app.py").write_text(dedent(APP))
    done = await outlast_dev(tmp_path, "app.py", "--port", str(port))
    assert done.returncode == 2
    first, use, beside = done.stderr.decode().splitlines()
    assert first.startswith("error  A Temporal server (1.")
    assert first.endswith(f") runs at localhost:{port} already.")
    assert use == f"To use that one: outlast dev --address localhost:{port} app.py"
    assert beside.startswith("To start one beside it: outlast dev --port ")


SLOW = """
    import os, time
    from outlast import Agent, OfflineModel
    from outlast.models.offline import call

    model = OfflineModel()
    shop = Agent(model, name="shop")
    print("loading, and saying so")


    @model.rule("work")
    def work_rule(_):
        done = yield call("work")
        return f"{done.outcome}: {done.content}"


    @shop.tool_plain(repeatable=False)
    def work() -> str:
        '''Work until a file says that it is enough.'''
        print("word " * 100_000, flush=True)
        os.system("echo a child speaks")
        open("began", "w").close()
        while not os.path.exists("enough"):
            time.sleep(0.02)
        return "worked"
"""


async def test_ctrl_c_lets_a_running_call_finish_and_says_how_long_that_may_take(tmp_path: Path) -> None:
    """The call prints more than a pipe holds, as does its child: nobody's words may hold it up, or be lost."""
    dev = Dev(tmp_path)
    dev.write(SLOW)
    async with dev.running():
        await dev.until(lambda: dev.ready)
        assert "loading, and saying so" in dev.said
        client = await dev.client()
        run = await client.start("shop", "work")
        await dev.until(lambda: (tmp_path / "began").exists())
        dev.process.send_signal(signal.SIGINT)
        await dev.until(lambda: "at most 60 s to finish. Ctrl-C again ends at once" in dev.said)
        (tmp_path / "enough").touch()
        assert await dev.ends() == 0
    assert "a child speaks" in dev.said
    async with EmbeddedServer(data_dir=tmp_path / ".outlast", ui=False) as server:
        history = await (await TemporalClient.connect(server.address)).get_workflow_handle(run.id).fetch_history()
    done = [event.HasField("activity_task_completed_event_attributes") for event in history.events]
    assert sum(done) == 2, "the model's answer, and the call"


async def test_a_second_ctrl_c_ends_at_once_and_nothing_is_left(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    dev.write(SLOW)
    async with dev.running():
        await dev.until(lambda: dev.ready)
        await (await dev.client()).start("shop", "work")
        await dev.until(lambda: (tmp_path / "began").exists())
        pids = dev.ready["worker"]["pid"], dev.ready["server_pid"]
        dev.process.send_signal(signal.SIGINT)
        await dev.until(lambda: "Draining" in dev.said)
        dev.process.send_signal(signal.SIGINT)
        assert await dev.ends() == 130
        assert all(gone(pid) for pid in pids)


HANGS = """
    import os, time
    open("loading", "w").write(str(os.getpid()))
    time.sleep(10_000)
"""


async def test_an_app_that_hangs_while_it_loads_is_ended_by_a_change_and_by_ctrl_c(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    loading = tmp_path / "loading"
    dev.write(HANGS)
    async with dev.running():
        await dev.until(lambda: loading.exists() and loading.read_text())
        first = int(loading.read_text())
        dev.write(APP)
        await dev.until(lambda: dev.ready)
        assert gone(first)
        loading.unlink()
        dev.write(HANGS)
        await dev.until(lambda: loading.exists() and loading.read_text())
        dev.process.send_signal(signal.SIGINT)
        assert await dev.ends() == 0
        assert gone(int(loading.read_text()))


async def test_a_change_of_a_module_beside_or_of_env_reaches_the_worker(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "names.py").write_text("NAME = 'one'\n")
    dev.write("from outlast import Agent\nfrom parts.names import NAME\nshop = Agent('test', name=NAME)\n")
    async with dev.running():
        await dev.until(lambda: dev.ready)
        (tmp_path / "parts" / "names.py").write_text("NAME = 'two'\n")
        await dev.until(lambda: "+ agent two" in dev.said)
        assert "changed    parts/names.py" in dev.said
        assert "- agent one" in dev.said
        (tmp_path / "notes.txt").write_text("nothing that an app is made of")
        (tmp_path / ".env").write_text("OUTLAST_TASK_QUEUE=elsewhere\n")
        await dev.until(lambda: "queue outlast → elsewhere" in dev.said)
        dev.process.send_signal(signal.SIGINT)
        assert await dev.ends() == 0
    assert "notes.txt" not in dev.said


async def test_a_server_that_runs_is_used_and_left_running(server: EmbeddedServer, tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    dev.write(APP.replace("VERSION", "one"))
    queue = f"dev-{uuid.uuid4().hex[:8]}"
    async with dev.running("--address", server.address, OUTLAST_TASK_QUEUE=queue):
        await dev.until(lambda: dev.ready)
        assert (dev.ready["address"], dev.ready["server_pid"]) == (server.address, None)
        client = Client(await TemporalClient.connect(server.address), task_queue=queue)
        run = await client.start("shop", "pay")
        with anyio.fail_after(PATIENCE):
            while not (calls := [call for call in await client.list_pending() if call.run_id == run.id]):
                await anyio.sleep(0.05)
            await run.approve(calls[0].tool_call_id)
            assert (await run.result()).output == "success: one paid 5"
        dev.process.send_signal(signal.SIGTERM)
        assert await dev.ends() == 0
    assert not (tmp_path / ".outlast").exists()
    await TemporalClient.connect(server.address)


async def test_a_second_dev_in_the_same_folder_says_how_to_go_on(dev: Dev) -> None:
    await dev.until(lambda: dev.ready)
    done = await outlast_dev(dev.folder, "app.py", "--port", "0")
    assert done.returncode == 2
    first, add, beside = done.stderr.decode().splitlines()
    assert f"process {dev.ready['server_pid']} keeps its state in '{dev.folder}/.outlast'" in first
    assert add == (
        f"To add agents to it: OUTLAST_TASK_QUEUE=outlast-2 outlast dev --address {dev.ready['address']} app.py"
    )
    assert beside.startswith("To start one beside it: OUTLAST_STATE_DIR=.outlast-2 outlast dev --port ")
