"""What a person types about a call that waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outlast.cli.asking import read_answer
from outlast.errors import UserError
from tests.unit.cli.test_edits import CALL

UNKNOWN = replace(CALL, kind="unknown_outcome")
EXTERNAL = replace(CALL, kind="external")


@pytest.mark.parametrize(
    ("call", "typed", "decision", "fields"),
    [
        (CALL, "y", "approve", {"digest": CALL.digest}),
        (CALL, "YES", "approve", {"digest": CALL.digest}),
        (CALL, "n", "deny", {"message": None}),
        (CALL, "n  too much ", "deny", {"message": "too much"}),
        (
            CALL,
            "e cents=500",
            "approve",
            {"digest": CALL.digest, "override_args": {"order_id": 1042, "cents": 500}},
        ),
        (UNKNOWN, "y", "approve", {"digest": CALL.digest}),
        (UNKNOWN, 'r {"paid": true}', "resolve", {"result": {"paid": True}}),
        (EXTERNAL, 'r "sent"', "resolve", {"result": "sent"}),
        (EXTERNAL, "n", "deny", {"message": None}),
    ],
)
def test_a_line_is_a_decision(call: Any, typed: str, decision: str, fields: dict[str, Any]) -> None:
    assert read_answer(typed, call) == (decision, fields)


@pytest.mark.parametrize(
    ("call", "typed", "said"),
    [
        (CALL, "perhaps", "Please type y, n or e NAME=VALUE."),
        (CALL, "y please", "Please type y, n or e NAME=VALUE."),
        (CALL, "e", "Please type y, n or e NAME=VALUE."),
        (CALL, 'r "done"', "Please type y, n or e NAME=VALUE."),
        (CALL, "e cents", "--edit takes NAME=VALUE"),
        (EXTERNAL, "y", "Please type r JSON or n."),
        (EXTERNAL, "r sent", "A text needs its quotes"),
        (UNKNOWN, "e cents=1", "Please type y, n or r JSON."),
    ],
)
def test_a_line_that_decides_nothing_is_asked_for_again(call: Any, typed: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_answer(typed, call)
