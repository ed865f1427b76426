"""Where a batch ends must make no difference: a replay finds other batches than the worker that was first."""

from __future__ import annotations

from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from outlast.workflows.ordering import ResultsFirstRunner
from outlast.workflows.run import AgentRun


class Recording(WorkflowInstance):
    """Answers each batch with a command that names its jobs."""

    def __init__(self, failing: str = "") -> None:
        self.batches: list[list[str]] = []
        self.failing = failing

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        kinds = [job.WhichOneof("variant") or "" for job in act.jobs]
        self.batches.append(kinds)
        completion = WorkflowActivationCompletion()
        completion.successful.SetInParent()
        if self.failing in kinds:
            completion.failed.failure.message = "broken"
        else:
            completion.successful.commands.add().start_timer.seq = len(self.batches)
        return completion

    def get_serialization_context(self, command_info: Any) -> Any:
        return None

    def get_external_store_context(self, command_info: Any) -> Any:
        raise NotImplementedError

    def get_info(self) -> Any:
        return None


class Runner(WorkflowRunner):
    def __init__(self, instance: Recording) -> None:
        self.instance = instance

    def prepare_workflow(self, defn: Any) -> None: ...

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return self.instance


class Details:
    """All that a runner asks of them."""

    def __init__(self, workflow_class: type) -> None:
        self.defn = type("Definition", (), {"cls": workflow_class})


def batch(*kinds: str) -> WorkflowActivation:
    act = WorkflowActivation()
    for kind in kinds:
        job = WorkflowActivationJob()
        getattr(job, kind).SetInParent()
        act.jobs.append(job)
    return act


def activate(*kinds: str, workflow_class: type = AgentRun, failing: str = "") -> tuple[Recording, Any]:
    recording = Recording(failing)
    details: Any = Details(workflow_class)
    instance = ResultsFirstRunner(AgentRun, Runner(recording)).create_instance(details)
    return recording, instance.activate(batch(*kinds))


def test_results_are_taken_in_before_messages_and_one_at_a_time() -> None:
    recording, completion = activate("signal_workflow", "do_update", "resolve_activity", "fire_timer")
    assert recording.batches == [["resolve_activity"], ["fire_timer"], ["signal_workflow"], ["do_update"]]
    assert [command.start_timer.seq for command in completion.successful.commands] == [1, 2, 3, 4]


def test_the_first_batch_of_a_run_and_what_is_no_news_stay_whole() -> None:
    for kinds in (("initialize_workflow", "signal_workflow"), ("query_workflow", "query_workflow"), ("do_update",)):
        recording, _ = activate(*kinds)
        assert recording.batches == [list(kinds)]


def test_a_failure_ends_the_batch() -> None:
    recording, completion = activate("do_update", "resolve_activity", failing="resolve_activity")
    assert recording.batches == [["resolve_activity"]]
    assert completion.failed.failure.message == "broken"


def test_other_workflows_stay_as_they_were() -> None:
    recording, _ = activate("do_update", "resolve_activity", workflow_class=Details)
    assert recording.batches == [["do_update", "resolve_activity"]]
