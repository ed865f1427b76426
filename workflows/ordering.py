"""The order in which a run takes in what arrives together: results first, one at a time, then what callers say.

Temporal hands a worker everything that is new as one batch, but where a batch ends may differ between the first time
and a replay. A worker that does not know a run, as after a crash, and is asked a query before it is given the workflow
task, takes in a finished activity early; the update of somebody who acts on the answer comes in a batch of its own. A
replay finds both in one batch, and the SDK runs updates first. The commands then come in another order than in the
history, and the run could never be replayed: it would be stuck for good.

With this order the batches make no difference. An update is always younger than every result of its batch, and a
decision by signal nearly always, since it follows from what the results made of the run.
"""

from __future__ import annotations

from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

_MESSAGES = ("signal_workflow", "do_update")
_ALONE = ("initialize_workflow", "query_workflow", "remove_from_cache")


class ResultsFirstRunner(WorkflowRunner):
    """Runs one workflow class in this order, and all others as they were.

    Workaround: the kind of https://github.com/temporalio/sdk-python/issues/673. Remove it when the SDK replays updates
    where they were; histories written with it need it.

    Args:
        workflow_class: The class, with its subclasses.
        runner: Runs all of them.
    """

    def __init__(self, workflow_class: type, runner: WorkflowRunner | None = None) -> None:
        self._workflow_class = workflow_class
        self._runner = runner or UnsandboxedWorkflowRunner()

    def prepare_workflow(self, defn: Any) -> None:
        """As the runner that this one stands for."""
        self._runner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """As the runner that this one stands for, in this order where the class is the one."""
        instance = self._runner.create_instance(det)
        return _ResultsFirst(instance) if issubclass(det.defn.cls, self._workflow_class) else instance


class _ResultsFirst(WorkflowInstance):
    def __init__(self, instance: WorkflowInstance) -> None:
        self._instance = instance

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        if len(act.jobs) < 2 or any(job.WhichOneof("variant") in _ALONE for job in act.jobs):
            return self._instance.activate(act)
        # Stable: results stay in the order of the history, and messages in the order in which they came.
        jobs = sorted(act.jobs, key=lambda job: job.WhichOneof("variant") in _MESSAGES)
        whole = WorkflowActivationCompletion()
        whole.successful.SetInParent()
        for job in jobs:
            completion = self._instance.activate(_with_only(act, job))
            if completion.HasField("failed"):
                return completion
            whole.successful.MergeFrom(completion.successful)
        return whole

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._instance.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._instance.get_external_store_context(command_info)

    def get_info(self) -> Any:
        return self._instance.get_info()


def _with_only(act: WorkflowActivation, job: WorkflowActivationJob) -> WorkflowActivation:
    alone = WorkflowActivation()
    alone.CopyFrom(act)
    del alone.jobs[:]
    alone.jobs.append(job)
    return alone
