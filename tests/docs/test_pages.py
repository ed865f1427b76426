"""What the pages say is there: links lead somewhere, JSON fits the contract, tables name what the code has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from temporalio import workflow

from outlast import contracts
from outlast.cli.app import command_line
from outlast.contracts import DECISIONS, Pause, Steer
from outlast.errors import DecisionRejected, RunError
from outlast.messages import Usage
from outlast.server import SEARCH_ATTRIBUTES
from outlast.settings import Settings
from outlast.toolsets.settings import ToolSettings
from outlast.workflows.run import AgentRun
from tests.docs.blocks import PAGES, ROOT, blocks, page_id

CONTRACT = ROOT / "docs" / "reference" / "contract.md"
SETTINGS = ROOT / "docs" / "settings.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
README = ROOT / "README.md"

NOT_RAISED = {"NotAllowed", "Expired"}
"""Names that are kept free for what is to come; nothing raises them."""


def rows(page: Path, mark: str) -> list[list[str]]:
    """The cells of the first table after a mark, `<!-- … -->`."""
    _, found, after = page.read_text().partition(f"<!-- {mark} -->")
    assert found, f"{page_id(page)} has no {mark!r}"
    table = re.search(r"^\|.*\n\|[-|]+\|\n((?:\|.*\|\n)+)", after, re.MULTILINE)
    assert table is not None
    return [line.strip("| ").split(" | ") for line in table[1].splitlines()]


def named(page: Path, mark: str) -> list[str]:
    """The names in the first column of that table."""
    return [name for cells in rows(page, mark) for name in re.findall(r"`([^`]+)`", cells[0])]


def public(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name not in NOT_RAISED and not name.startswith("_"))


# --- blocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_runs_or_says_why_not(page: Path) -> None:
    for block in blocks(page):
        assert block.language in ("python", "console", "sh", "json", "text"), block
        if block.settings.get("test") == "skip":
            assert block.settings.get("reason"), f"no reason: {block.text}"
        if block.language == "sh":
            assert block.settings.get("test") == "contract", "only tests/integration/test_readme_contract.py runs sh"
        if block.language == "json":
            assert "type" in block.settings


def test_few_blocks_are_skipped() -> None:
    skipped = [block for page in PAGES for block in blocks(page) if block.settings.get("test") == "skip"]
    assert len(skipped) <= 5


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_json_fits_the_contract(page: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            kind: Any = eval(block.settings["type"], dict(vars(contracts)))
            TypeAdapter(kind).validate_json(block.text)


# --- links -------------------------------------------------------------------------------------------------------


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page_id(page)} links to {target}"
        assert linked.is_relative_to(ROOT)
        if anchor:
            assert anchor in headings(linked), f"{page_id(page)} links to {target}"


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / target.split("#")[0]).resolve() for target in re.findall(r"\]\(([^)]+)\)", index.read_text())
    }
    for page in PAGES:
        assert page in linked or page == index or page.parent in linked, page


# --- names -------------------------------------------------------------------------------------------------------

_MODELS: dict[str, type[BaseModel]] = {
    **{name: kind for name, kind in vars(contracts).items() if isinstance(kind, type) and issubclass(kind, BaseModel)},
    "Usage": Usage,
}


@pytest.mark.parametrize("name", re.findall(r"<!-- fields: (\w+) -->", CONTRACT.read_text()))
def test_a_table_of_fields_names_those_of_the_contract(name: str) -> None:
    assert sorted(named(CONTRACT, f"fields: {name}")) == sorted(_MODELS[name].model_fields)


def test_whatever_callers_send_or_read_has_its_table() -> None:
    told = set(re.findall(r"<!-- fields: (\w+) -->", CONTRACT.read_text()))
    assert told == {
        "RunInput", "UsageLimits", "RunResult", "Usage", "CallState", "DecisionRecord", "PendingCall", "Status",
        "Rejection", "MessagesPage", "PendingSummary",
    }  # fmt: skip


def test_the_table_of_messages_has_every_signal_with_its_object() -> None:
    models: dict[str, type[BaseModel]] = {**DECISIONS, "steer": Steer, "pause": Pause, "resume": Pause}
    told: dict[str, str] = {}
    for cells in rows(CONTRACT, "messages"):
        for name in re.findall(r"`(\w+)`", cells[0]):
            told[name] = cells[1].strip("`{}")
    definition = workflow._Definition.must_from_class(AgentRun)  # pyright: ignore[reportPrivateUsage]
    assert sorted(told) == sorted(models)
    assert sorted(told) == sorted(map(str, definition.signals)) == sorted(map(str, definition.updates))
    for name, model in models.items():
        fields = {field: info.is_required() for field, info in model.model_fields.items() if not info.exclude}
        assert {word.rstrip("?"): not word.endswith("?") for word in told[name].split(", ")} == fields, name


def test_the_table_of_queries_has_every_query() -> None:
    text = CONTRACT.read_text()
    told = re.findall(r"^\| `(\w+)` \|", text[text.index("| query | argument") :].split("\n\n")[0], re.MULTILINE)
    definition = workflow._Definition.must_from_class(AgentRun)  # pyright: ignore[reportPrivateUsage]
    assert sorted(told) == sorted(map(str, definition.queries))


@pytest.mark.parametrize("family", [RunError, DecisionRejected])
def test_the_tables_of_errors_name_every_type(family: Any) -> None:
    assert sorted(named(CONTRACT, f"errors: {family.__name__}")) == public(family.by_name)


def test_the_table_of_search_attributes() -> None:
    told = {cells[0].strip("`"): cells[1] for cells in rows(CONTRACT, "search attributes")}
    assert told == dict(SEARCH_ATTRIBUTES)


def test_the_tables_of_settings_name_every_setting() -> None:
    variables = [f"OUTLAST_{name.upper()}" for name in Settings.model_fields]
    assert named(SETTINGS, "fields: Settings") == variables
    assert named(SETTINGS, "fields: ToolSettings") == list(ToolSettings.__dataclass_fields__)


def test_the_defaults_of_settings_are_true(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for cells in rows(SETTINGS, "fields: Settings"):
        monkeypatch.delenv(cells[0].strip("`"), raising=False)
    defaults = Settings()
    for cells in rows(SETTINGS, "fields: Settings"):
        variable, told = cells[0].strip("`"), cells[1].strip("`")
        monkeypatch.setenv(variable, told)
        assert Settings() == defaults, variable
        monkeypatch.delenv(variable)


def test_the_table_of_verbs_has_every_verb() -> None:
    text = README.read_text()
    table = text[text.index("| verb | does |") :].split("\n\n")[0]
    first = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    told = [name for cell in first for name in re.findall(r"`(?:outlast )?(\w+)", cell)]
    assert sorted(told) == sorted(verb for verb in command_line() if not verb.startswith("-"))


# --- how little it takes -----------------------------------------------------------------------------------------


def apps(page: Path) -> list[list[str]]:
    return [block.text.splitlines() for block in blocks(page) if block.settings.get("title") == "app.py"]


@pytest.mark.parametrize("page", [QUICKSTART, README], ids=page_id)
def test_the_lines_of_the_first_app_are_as_few_as_the_page_says(page: Path) -> None:
    told = re.search(r"`app\.py`, (\d+) lines", page.read_text())
    assert told is not None
    assert len(apps(page)[0]) == int(told[1]) <= 15


def test_an_approval_takes_two_lines() -> None:
    plain, approved = apps(QUICKSTART)
    changed = [line for line in difflib.ndiff(plain, approved) if line.startswith("+ ")]
    assert len(changed) <= 2
    assert len(approved) == len(plain)


def test_the_first_run_takes_two_commands() -> None:
    for page in (QUICKSTART, README):
        after = page.read_text().split('title="app.py"', 1)[1]
        first = [block for block in blocks(page) if block.language == "console" and block.text in after][:2]
        assert [block.text.split()[:2] for block in first] == [["outlast", "dev"], ["outlast", "run"]]
