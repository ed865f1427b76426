"""`outlast doctor` against the real server in several states: what it finds, and that what it says to type mends it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.client import Client

from outlast import Agent
from outlast.server import EmbeddedServer, PortTaken, choose_ports, find_temporal
from outlast.settings import Settings
from outlast.worker import build_worker
from tests.asking import PATIENCE

APP = "from outlast import Agent\nshop = Agent('test', name='shop')\n"


class Doctor:
    """Types `outlast doctor` in a folder of the test's own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "OUTLAST_"))},
            "TEMPORAL_ADDRESS": address,
            "COLUMNS": "200",
            "PATH": f"{find_temporal().parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.env.pop("OPENAI_API_KEY", None)
        (folder / "app.py").write_text(APP)

    async def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(
                [sys.executable, "-m", "outlast", "doctor", *words],
                cwd=self.folder,
                env={**self.env, **variables},
                check=False,
            )
        assert b"Traceback" not in done.stderr
        return done

    async def finds(self, *words: str, code: int = 0, **variables: str) -> dict[str, dict[str, Any]]:
        """Its last finding of each check."""
        done = await self.run(*words, "--json", **variables)
        assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
        answer = json.loads(done.stdout)
        assert answer["ok"] == (code == 0)
        return {finding["check"]: finding for finding in answer["findings"]}

    async def types(self, fix: str) -> None:
        """Do what a finding says, as a shell would."""
        with anyio.fail_after(PATIENCE):
            for command in fix.split(" && "):
                await anyio.run_process(shlex.split(command), env=self.env)


@asynccontextmanager
async def fresh_server(**options: Any) -> AsyncGenerator[EmbeddedServer]:
    """As `temporal server start-dev` makes it, with the HTTP API where `outlast dev` has it."""
    async with EmbeddedServer(ui=False, search_attributes={}, **options) as server:
        yield server


async def test_a_fresh_server_gets_all_that_runs_need_by_the_commands_that_doctor_says(tmp_path: Path) -> None:
    async with fresh_server() as server:
        doctor = Doctor(tmp_path, server.address)
        found = await doctor.finds("app.py")
        states = {check: finding["state"] for check, finding in found.items()}
        for check in ("versions", "python", "extras", ".env", "settings", "state", "app", "model", "sandbox", "server"):
            assert states[check] == "ok", found[check]
        assert states["limits"] == "ok"
        assert "2 MiB" in found["limits"]["message"]
        for check in ("namespace", "search", "workers"):
            assert states[check] == "warning", found[check]
        await doctor.types(found["namespace"]["fix"])
        await doctor.types(found["search"]["fix"])
        worker = build_worker(
            await Client.connect(server.address), [Agent("test", name="shop")], settings=Settings(task_queue="here")
        )
        async with worker:
            mended = await doctor.finds("app.py", OUTLAST_TASK_QUEUE="here")
        assert {mended[check]["state"] for check in ("namespace", "search", "workers")} == {"ok"}
        assert "30 days" in mended["namespace"]["message"]
        assert "OUTLAST_TASK_QUEUE (environment)" in mended["settings"]["message"]


async def test_a_search_attribute_of_another_type_is_told_with_what_mends_it(tmp_path: Path) -> None:
    async with EmbeddedServer(ui=False, search_attributes={"OutlastAgent": "Int"}) as server:
        doctor = Doctor(tmp_path, server.address)
        done = json.loads((await doctor.run("--json")).stdout)
        wrong, missing = (finding for finding in done["findings"] if finding["check"] == "search")
        assert "OutlastAgent is registered as Int and not as Keyword" in wrong["message"]
        await doctor.types(wrong["fix"])
        await doctor.types(missing["fix"])
        assert (await doctor.finds())["search"]["state"] == "ok"


async def test_a_namespace_that_there_is_not_is_made_by_the_command(server: EmbeddedServer, tmp_path: Path) -> None:
    doctor = Doctor(tmp_path, server.address)
    name = f"doctor-{os.getpid()}"
    found = await doctor.finds(code=1, TEMPORAL_NAMESPACE=name)
    assert found["namespace"]["message"] == f"the server has no namespace {name!r}"
    await doctor.types(found["namespace"]["fix"])
    assert (await doctor.finds(TEMPORAL_NAMESPACE=name))["namespace"]["state"] == "ok"


def free_family() -> int:
    """A port that is free, as are those of its HTTP API and metrics."""
    for port in range(21_000, 30_000, 50):
        with suppress(PortTaken):
            choose_ports({"gRPC": port, "HTTP API": port + 10, "metrics": port + 20})
            return port
    pytest.fail("no port is free")


async def test_the_http_api_is_found_where_dev_has_it_if_it_is_that_of_this_very_server(tmp_path: Path) -> None:
    port = free_family()
    async with fresh_server(port=port) as server:
        found = await Doctor(tmp_path, server.address).finds()
        assert found["HTTP API"]["message"] == f"http://127.0.0.1:{port + 10}/api/v1/namespaces/default"
    other = free_family()
    async with fresh_server(port=other, http_port=other + 11), fresh_server(http_port=other + 10):
        found = await Doctor(tmp_path, f"127.0.0.1:{other}").finds()
        assert found["HTTP API"]["state"] == "warning", "another server's"


async def test_no_server_is_told_last_with_all_else_that_was_found(tmp_path: Path) -> None:
    doctor = Doctor(tmp_path, "localhost:1")
    found = await doctor.finds("app.py", code=4)
    assert found["app"]["state"] == "ok"
    assert list(found)[-1] == "server"
    assert found["server"]["message"].startswith("No Temporal server answers at localhost:1.")
    assert (await doctor.run("--nonsense")).returncode == 2
    assert (await doctor.run("nowhere.py")).returncode == 4, "an unreachable server is told, whatever else is wrong"


@pytest.mark.parametrize(
    ("source", "check", "words"),
    [
        ("def broken(\n", "app", "app.py, line 1: '(' was never closed"),
        (
            "from outlast import Agent\na = Agent(name='a', deps_type=object)\nb = Agent(name='a')\n",
            "app",
            "Two agents have the name 'a'",
        ),
        ("from outlast import Agent\na = Agent('openai:gpt-4o-mini', name='a')\n", "model", "OPENAI_API_KEY"),
    ],
    ids=["syntax", "agents", "key"],
)
async def test_what_is_wrong_with_an_app_is_a_failure(
    server: EmbeddedServer, tmp_path: Path, source: str, check: str, words: str
) -> None:
    doctor = Doctor(tmp_path, server.address)
    (tmp_path / "app.py").write_text(source)
    finding = (await doctor.finds("app.py", code=1))[check]
    assert finding["state"] == "failure"
    assert words in finding["message"]


async def test_a_key_in_env_is_enough_and_a_misspelt_setting_is_told(server: EmbeddedServer, tmp_path: Path) -> None:
    doctor = Doctor(tmp_path, server.address)
    (tmp_path / "app.py").write_text("from outlast import Agent\na = Agent('openai:gpt-4o-mini', name='a')\n")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=secret\nOUTLAST_TASKQUEUE=mine\n")
    done = await doctor.run("app.py")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert "! settings    OUTLAST_TASKQUEUE (.env) is no setting of outlast, and does nothing" in text
    assert "OUTLAST_TASK_QUEUE is meant?" in text
    assert "'a' asks the model gpt-4o-mini" in text
    assert "secret" not in text


async def test_an_env_file_that_cannot_be_read_is_a_failure(server: EmbeddedServer, tmp_path: Path) -> None:
    doctor = Doctor(tmp_path, server.address)
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe\n")
    found = await doctor.finds("app.py", code=1)
    assert found[".env"]["state"] == "failure"
    assert "it is not UTF-8" in found[".env"]["message"]
