"""The deps of a run: changed field by field, by calls that may overlap."""

from __future__ import annotations

from outlast.contracts import DepsVersion
from outlast.messages import JsonObject
from outlast.workflows.state import Call, RunState


def merge(state: RunState, call: Call, changed: JsonObject) -> str | None:
    """Take over what a call changed.

    Returns:
        Why not, where a call that overlapped has changed the same: which of the two is right, nobody can know.
    """
    conflicts = [name for name in changed if state.deps_changed.get(name, 0) > call.deps_version]
    if conflicts:
        return (
            f"The call {call.plan.tool_call_id!r} of {call.plan.tool_name!r} changed {', '.join(map(repr, conflicts))} "
            f"of deps while another call that overlapped changed the same. Mark the tools `sequential`."
        )
    version = state.deps.version + 1
    value = state.deps.value if isinstance(state.deps.value, dict) else {}
    state.deps = DepsVersion(version=version, value={**value, **changed})
    state.deps_changed.update(dict.fromkeys(changed, version))
    return None
