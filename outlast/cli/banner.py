"""What `outlast dev` says once all is there: where everything is, what it serves, and what to type."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import __version__ as temporal_version

from outlast import __version__
from outlast.cli.program import program, short
from outlast.cli.screen import Labelled, whole
from outlast.cli.tools import agent_lines
from outlast.connection import DEFAULT_ADDRESS, connection_settings
from outlast.messages import JsonObject
from outlast.settings import Settings

__all__ = ("Place", "agents_lines", "head_lines", "start_lines")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a server answers; of one that somebody else started, neither UI nor HTTP API are known."""

    address: str
    namespace: str
    ui_url: str | None = None
    http_url: str | None = None

    @property
    def is_found(self) -> bool:
        """Other verbs look here without being told."""
        config = connection_settings()
        there = config.get("target_host", DEFAULT_ADDRESS)
        return _plain(there) == _plain(self.address) and config.get("namespace", "default") == self.namespace


def _plain(address: str) -> str:
    return address.replace("127.0.0.1", "localhost")


async def head_lines(temporal: TemporalClient, place: Place, settings: Settings, *, own: bool) -> list[RenderableType]:
    """Versions, and where the server is.

    Args:
        temporal: Connected to the server.
        place: Of the server.
        settings: Name its folder and the task queue.
        own: The server was started here.
    """
    about = await temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    kept = f", state in {short(settings.state_dir.resolve())}" if own else ", which ran already"
    lines: list[RenderableType] = [
        Labelled(
            "outlast",
            f"{__version__}, temporalio {temporal_version}, Temporal server {about.server_version}, "
            f"Python {platform.python_version()}",
        ),
        Labelled("server", f"{place.address}, namespace {place.namespace}{kept}"),
    ]
    if place.ui_url is not None:
        lines.append(Labelled("UI", whole(place.ui_url)))
    if place.http_url is not None:
        lines.append(Labelled("HTTP API", whole(place.http_url)))
    return [*lines, Labelled("queue", settings.task_queue)]


def agents_lines(inventory: list[JsonObject]) -> list[RenderableType]:
    """Each agent, its tools with what applies to a call, and what keeps it from working."""
    lines: list[RenderableType] = []
    for entry in inventory:
        lines += agent_lines(entry)
        if entry["problem"]:
            lines.append(Labelled("", Text(f"! {entry['problem']}", style="yellow")))
    return lines


def start_lines(inventory: list[JsonObject], place: Place, settings: Settings, *, own: bool) -> list[RenderableType]:
    """What to type to start a run, and to end the session."""
    agent = inventory[0]["name"]
    lines = [whole(f"{program('outlast')} run {agent} 'Hello'"), *_from_anywhere(agent, place, settings)]
    if not place.is_found:
        there = connection_settings()
        seen = f"{there.get('target_host', DEFAULT_ADDRESS)}, namespace {there.get('namespace', 'default')}"
        lines = [
            Text(f"Other terminals would look for a server at {seen}. So there, first:"),
            whole(f"export TEMPORAL_ADDRESS={place.address} TEMPORAL_NAMESPACE={place.namespace}"),
            *lines,
        ]
    stays = "What waits goes on at the next start." if own else "What waits goes on with the next worker."
    return [
        Labelled("start", *lines),
        Labelled("reload", "Save a Python file or .env, and a new worker takes over."),
        Labelled("stop", f"Ctrl-C lets running calls finish. {stays}"),
        "",
    ]


def _from_anywhere(agent: str, place: Place, settings: Settings) -> list[Text]:
    """The same without outlast: in lines that fit 80 columns, and that a shell takes as they are."""
    given = "" if _plain(place.address) == DEFAULT_ADDRESS else f" --address {place.address}"
    given += "" if place.namespace == "default" else f" --namespace {place.namespace}"
    run = json.dumps({"agent": agent, "prompt": "Hello"})
    return [
        whole(f"{program('temporal')} workflow start{given} \\"),
        whole(f"  --task-queue {settings.task_queue} --type AgentRun \\"),
        whole(f"  --input '{run}'"),
    ]
