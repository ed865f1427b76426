"""Tests agents the way they run: on a real Temporal server, with a worker that forgets the run after every task.

Enable the fixtures in the top `conftest.py`; nothing else of outlast imports pytest:

```python title="conftest.py"
import pytest

pytest_plugins = ["outlast.testing.fixtures"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # for anyio's plugin alone: Temporal's SDK knows no other; with pytest-asyncio leave this out
```

The fixture `durable` hosts agents. Each run gets a task queue of its own, each workflow task replays the whole history,
and when the block ends, the history of every run is checked: no workflow task failed, and all of it replays.

```python title="test_support.py"
from datetime import timedelta

import pytest

from outlast import Agent, TransientToolError
from outlast.testing import Durable, ScriptedModel, approve_all, call

pytestmark = pytest.mark.anyio

support = Agent("openai:gpt-4o-mini", name="support")


@support.tool_plain(requires_approval=True)
def refund(order_id: int) -> str:
    return f"Refunded order {order_id}."


async def test_a_refund_is_made_once_a_person_agrees(durable: Durable) -> None:
    model = ScriptedModel([call("refund", order_id=1042), "Refunded."])
    finished = await durable.run(support, "Refund order 1042.", model=model, decide=approve_all)
    assert finished.output == "Refunded."


async def test_a_denied_refund_is_never_made(durable: Durable) -> None:
    model = ScriptedModel([call("refund", order_id=1042), "It was denied."])
    async with durable(support, model=model) as host:
        run = await host.start(support, "Refund order 1042.")
        [waiting] = await run.pending()
        assert waiting.args == {"order_id": 1042}
        await run.fast_forward(timedelta(days=3))
        await run.deny(waiting.tool_call_id, message="Not today.", by="ada")
        assert (await run.result()).output == "It was denied."
        assert await run.scheduled("tool:refund") == []


async def test_a_back_off_of_minutes_passes_at_once(durable: Durable) -> None:
    attempts: list[int] = []
    agent = Agent(ScriptedModel([call("look"), "Found."]), name="patient")

    @agent.tool_plain
    def look() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise TransientToolError("The shop is closed.", retry_after=timedelta(minutes=10))
        return "There it is."

    assert (await durable.run(agent, "Look.", skip_time=True)).output == "Found."
    assert len(attempts) == 3
```

Without pytest, `Durable()` does the same, with a server of its own for each block.
"""

from __future__ import annotations

from outlast.models import FunctionModel, ScriptedModel, TestModel
from outlast.server import EmbeddedServer
from outlast.testing.calls import call
from outlast.testing.deciding import Decide, approve_all, deny_all
from outlast.testing.durable import Durable, Finished
from outlast.testing.histories import NotDurable, check_history
from outlast.testing.host import Host
from outlast.testing.hosted_run import HostedRun
from outlast.testing.progress import NothingCame

__all__ = (
    "Decide",
    "Durable",
    "EmbeddedServer",
    "Finished",
    "FunctionModel",
    "Host",
    "HostedRun",
    "NotDurable",
    "NothingCame",
    "ScriptedModel",
    "TestModel",
    "approve_all",
    "call",
    "check_history",
    "deny_all",
)
