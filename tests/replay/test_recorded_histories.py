"""Histories that earlier releases wrote replay on this one: a run in flight survives an upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from outlast.plugin import OutlastPlugin
from outlast.workflows.run import AgentRun
from tests.replay.record import SCENARIOS
from tests.strict import assert_replays_in_sandbox

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*/*.json"))


def load(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    await Replayer(workflows=[AgentRun], plugins=[OutlastPlugin()]).replay_workflow(load(path))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_a_recorded_history_replays_in_the_strict_sandbox(path: Path) -> None:
    await assert_replays_in_sandbox(load(path))


def test_every_release_has_a_history_of_every_scenario() -> None:
    releases = {path.parent.name for path in HISTORIES}
    assert releases
    for release in releases:
        assert set(SCENARIOS) <= {path.stem for path in HISTORIES if path.parent.name == release}


async def test_a_history_that_does_not_fit_the_code_is_noticed() -> None:
    """The tests above can fail: a history whose first activity has another ID does not replay."""
    path = next(path for path in HISTORIES if path.stem == "plain")
    changed = path.read_text(encoding="utf-8").replace("model:1", "model:7")
    with pytest.raises(Exception, match=r"(?i)nondeterminism"):
        await Replayer(workflows=[AgentRun], plugins=[OutlastPlugin()]).replay_workflow(
            WorkflowHistory.from_json("changed", changed)
        )
