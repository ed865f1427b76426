"""`outlast doctor`: is everything there that runs need, and how to fix what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict

from rich.text import Text

from outlast.cli.app_checks import app_findings, sandbox_finding
from outlast.cli.exit_code import ExitCode
from outlast.cli.finding import Finding
from outlast.cli.machine_checks import machine_findings
from outlast.cli.options import Options
from outlast.cli.screen import Labelled, printable
from outlast.cli.server_checks import server_findings
from outlast.errors import UserError
from outlast.settings import load_env_file

__all__ = ("doctor",)

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failure": ("✗", "bold red")}


async def doctor(app: str | None = None, /, *, options: Options | None = None) -> ExitCode:
    """Check the surroundings of runs: versions, settings, server, namespace, search attributes, workers, and APP.

    Each line says what is there; below it, where something is wrong, how to fix it. Ends with 0 where nothing is wrong
    but for warnings, 4 where no server answers, else 1.

    Args:
        app: A file (app.py) or a module (shop.agents), to check that its agents can be hosted.
    """
    options = options or Options()
    findings: list[Finding] = []
    async for finding in _findings(app, options):
        findings.append(finding)
        if not options.json:
            options.screen.say(*_lines(finding))
    count = {state: sum(finding.state == state for finding in findings) for state in _MARKS}
    options.screen.answer(
        {"ok": not count["failure"], "findings": [asdict(finding) for finding in findings]}, _conclusion(count)
    )
    unreachable = any(finding.check == "server" and finding.state == "failure" for finding in findings)
    if unreachable:
        return ExitCode.UNREACHABLE
    return ExitCode.RUN_FAILED if count["failure"] else ExitCode.DONE


async def _findings(app: str | None, options: Options) -> AsyncIterator[Finding]:
    """From what is nearest to what is furthest, so that a cause comes before what follows from it."""
    for finding in machine_findings():
        yield finding
    try:
        load_env_file()
    except UserError:
        pass  # which is among the findings
    else:
        if app is not None:
            for finding in await app_findings(app):
                yield finding
    yield sandbox_finding()
    async for finding in server_findings(options):
        yield finding


def _lines(finding: Finding) -> Iterator[Labelled]:
    mark, style = _MARKS[finding.state]
    yield Labelled(f"{mark} {finding.check}", Text(printable(finding.message)), style=style, indent=14)
    if finding.fix:
        yield Labelled("", Text(printable(finding.fix), style="cyan", no_wrap=True), indent=14)


def _conclusion(count: dict[str, int]) -> Text:
    if count["failure"]:
        return Text("Something has to be done: see ✗ above.", style="bold red")
    if count["warning"]:
        return Text("Runs have all they need. What ! tells would make life easier.", style="bold")
    return Text("Runs have all they need.", style="bold")
