"""`outlast approve --edit NAME=VALUE`: the whole set of arguments, with some changed."""

# ruff: noqa: E501 -- a message is one line

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from inline_snapshot import snapshot

from outlast.cli.deciding import edited
from outlast.cli.looking import WaitingCall
from outlast.errors import UserError

CALL = WaitingCall(
    run_id="run-1",
    agent="support",
    tool_call_id="call_2_0",
    tool_name="refund",
    kind="approval",
    requested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    digest="d1",
    sentence="Refund 1999 cents of order 1042?",
    args={"order_id": 1042, "cents": 1999},
    json_schema={"properties": {"order_id": {}, "cents": {}, "note": {}}, "additionalProperties": False},
)


@pytest.mark.parametrize(
    ("edits", "changed"),
    [
        ([], {}),
        (["cents=500"], {"cents": 500}),
        (["cents=500", "cents=600"], {"cents": 600}),
        (["cents=1e3"], {"cents": 1000.0}),
        (["cents=null"], {"cents": None}),
        (["note=half broken"], {"note": "half broken"}),
        (["note=a=b"], {"note": "a=b"}),
        (["note="], {"note": ""}),
        (['note="500"'], {"note": "500"}),
        (['note={"a": [1]}'], {"note": {"a": [1]}}),
        (["note=NaN"], {"note": "NaN"}),
    ],
)
def test_a_value_is_json_where_it_can_be_read_as_json_else_text(edits: list[str], changed: dict[str, Any]) -> None:
    assert edited(CALL, edits) == {"order_id": 1042, "cents": 1999, **changed}


def test_the_call_that_was_looked_at_stays_as_it_was() -> None:
    edited(CALL, ["cents=1"])
    assert CALL.args == {"order_id": 1042, "cents": 1999}


def test_all_mistakes_in_edits_are_told_at_once() -> None:
    with pytest.raises(UserError) as caught:
        edited(CALL, ["cent=5", "500"])
    assert caught.value.message == snapshot("""\
refund has no argument 'cent'. It has: cents, note, order_id.
--edit takes NAME=VALUE, such as order_id=500, got '500'.\
""")


def test_edits_need_the_arguments_which_only_a_worker_knows() -> None:
    with pytest.raises(UserError) as caught:
        edited(replace(CALL, args=None), ["cents=5"])
    assert caught.value.message == snapshot(
        "To edit arguments, all of them must be known, and only a worker knows them: start one with `outlast worker APP`, then approve again. Without edits the approval can be sent now."
    )
