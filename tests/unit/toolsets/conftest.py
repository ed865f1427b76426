"""What tests of the room share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from outlast.toolsets import AbstractToolset, RunContext, Valid, validate_args

# On a fresh checkout the first strategy with text builds a table of all characters, for seconds; on a busy machine
# any example may take longer than a deadline. Neither says anything about the code.
settings.register_profile("outlast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outlast")


class SomeModel:
    model_name = "some-model"


@pytest.fixture
def ctx() -> RunContext[Any]:
    return RunContext(deps=None, model=SomeModel())


@pytest.fixture
def call(ctx: RunContext[Any]) -> Callable[..., Any]:
    """Calls a tool as an engine does: list, validate, call."""

    async def call(toolset: AbstractToolset[Any], name: str, raw: Any = None, *, approved: bool = False) -> Any:
        ctx.tool_call_approved = approved
        tool = (await toolset.get_tools(ctx))[name]
        valid = await validate_args(tool, raw, ctx)
        assert isinstance(valid, Valid), valid
        return await toolset.call_tool(name, valid.args, ctx, tool)

    return call
