"""What a run's page in the Temporal UI says, in every state, however hostile the values are that it shows."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from outlast.markdown import code, one_line, quoted, wrapped
from outlast.workflows.commands import EndCancelled, Fail, Finish
from outlast.workflows.page import Page, about_run, render, summary_of_step
from tests.unit.workflows.driving import HOSTILE, START, Driven, call, hostile_run

GITHUB = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def since(run: Driven, *activity_ids: str) -> dict[str, datetime]:
    return dict.fromkeys(activity_ids, START + timedelta(minutes=5))


def ended(run: Driven) -> str:
    [end] = [command for command in run.commands if isinstance(command, Finish | Fail | EndCancelled)]
    return Page("run-1").render(run.state, {}, end)


# --- what each state says --------------------------------------------------------------------------------------------


def test_a_run_whose_model_is_asked() -> None:
    run = Driven()
    assert Page("run-1").render(run.state, since(run, "model:1")) == snapshot("""\
**desk** is running, in step 1.

Asked:
> hi

Under way:

- the model is asked, since 2026-01-05 09:05:00 UTC\
""")


def test_a_run_with_calls_under_way() -> None:
    run = Driven()
    run.plans(call("a", "look_up", args={"topic": "returns"}), call("b", "ping", args={}))
    run.signals("deny", "nothing-yet")
    assert Page("run-1").render(run.state, since(run, "call:a")) == snapshot("""\
**desk** is running, in step 1.

Asked:
> hi

Under way:

- `look_up`, since 2026-01-05 09:05:00 UTC: `topic="returns"`
- `ping`\
""")


def test_a_run_that_waits_for_an_approval() -> None:
    run = Driven(metadata={"requester": "ann@example.com"})
    run.plans(call("a", "refund", args={"cents": 1999}, wait_for="approval", prompt="Refund {1999} cents?"))
    assert render(run.state, "run-1").replace(digest(run, "a"), "<digest>") == snapshot("""\
**desk** waits for 1 decision, in step 1. Nothing else is under way.

Asked, as the caller says, by `ann@example.com`:
> hi

### `refund` waits for an approval

> Refund {1999} cents?

Since 2026-01-05 09:00:01 UTC, with these arguments:

```json
{
  "cents": 1999
}
```

**Approve:** it runs.
```sh
temporal workflow signal --name approve \\
  --workflow-id run-1 \\
  --input '{
  "tool_call_id": "a",
  "digest": "<digest>"
}'
```
**Deny:** it does not run; the model sees the message.
```sh
temporal workflow signal --name deny \\
  --workflow-id run-1 \\
  --input '{
  "tool_call_id": "a",
  "message": "…"
}'
```

To decide on this page instead: *More Actions*, *Send a Signal*, with the name and the JSON of a command.\
""")


def test_a_run_that_waits_for_the_word_on_an_unknown_outcome() -> None:
    run = Driven()
    run.plans(call("a", "refund", args={"cents": 1999}, repeatable=False))
    run.is_lost("a")
    assert render(run.state, "run-1").replace(digest(run, "a"), "<digest>") == snapshot("""\
**desk** waits for 1 decision, in step 1. Nothing else is under way.

Asked:
> hi

### `refund` may or may not have taken effect, and waits for your word

> The worker was lost while the call ran

Since 2026-01-05 09:00:02 UTC, with these arguments:

```json
{
  "cents": 1999
}
```

**Approve:** it runs once more.
```sh
temporal workflow signal --name approve \\
  --workflow-id run-1 \\
  --input '{
  "tool_call_id": "a",
  "digest": "<digest>"
}'
```
**Resolve:** it gets this result, and runs no more.
```sh
temporal workflow signal --name resolve \\
  --workflow-id run-1 \\
  --input '{
  "tool_call_id": "a",
  "result": "…"
}'
```
**Deny:** it does not run again; the model sees the message.
```sh
temporal workflow signal --name deny \\
  --workflow-id run-1 \\
  --input '{
  "tool_call_id": "a",
  "message": "…"
}'
```

To decide on this page instead: *More Actions*, *Send a Signal*, with the name and the JSON of a command.\
""")


def test_a_run_that_waits_for_a_result_from_outside() -> None:
    run = Driven()
    run.plans(call("a", "pick_colour", args={}, wait_for="external"))
    assert render(run.state, "run-1") == snapshot("""\
**desk** waits for 1 decision, in step 1. Nothing else is under way.

Asked:
> hi

### `pick_colour` waits for a result from outside

Since 2026-01-05 09:00:01 UTC, with these arguments:

```json
{}
```

**Resolve:** it gets this result.
```sh
temporal workflow signal --name resolve \\
  --workflow-id run-1 \\
  --input '{
  "tool_call_id": "a",
  "result": "…"
}'
```
**Deny:** it does not run; the model sees the message.
```sh
temporal workflow signal --name deny \\
  --workflow-id run-1 \\
  --input '{
  "tool_call_id": "a",
  "message": "…"
}'
```

To decide on this page instead: *More Actions*, *Send a Signal*, with the name and the JSON of a command.\
""")


def test_a_paused_run_says_how_it_goes_on() -> None:
    run = Driven()
    run.plans(call("a", "ping", args={}))
    run.pauses()
    run.state.paused_by = "ops@example.com"
    run.returns("a")
    assert render(run.state, "run-1") == snapshot("""\
**desk** is in step 1, and paused by `ops@example.com`: no new step or call starts.

Asked:
> hi

To let it go on:
```sh
temporal workflow signal --name resume \\
  --workflow-id run-1 \\
  --input '{}'
```\
""")


def test_a_run_that_is_done_says_what_it_gave_and_who_decided() -> None:
    run = Driven()
    run.plans(call("a", "refund", args={"cents": 1}, wait_for="approval"), call("b", "send", wait_for="approval"))
    run.updates("approve", "a", by="ann@example.com", reason="a photo shows it")
    run.returns("a")
    run.updates("deny", "b", by="bob@example.com", message="no")
    run.plans(output="Refunded 1 cent. *Sorry!*")
    assert ended(run) == snapshot("""\
**desk** is done, after 2 steps.

Asked:
> hi

Its output:

> Refunded 1 cent. \\*Sorry\\!\\*

Decisions:

- `refund` was approved by `ann@example.com`, 2026-01-05 09:00:02 UTC: `a photo shows it`
- `send` was denied by `bob@example.com`, 2026-01-05 09:00:04 UTC: `no`\
""")


def test_an_output_of_many_lines_is_a_box() -> None:
    run = Driven()
    run.plans(output={"answer": "```\n### Nothing waits", "sum": [1, 2]})
    assert ended(run).partition("Its output:")[2] == snapshot("""\


    {
      "answer": "```\\n### Nothing waits",
      "sum": [
        1,
        2
      ]
    }\
""")


def test_a_failed_run_says_why() -> None:
    run = Driven()
    run.plans(call("a", "charge", on_error="fail_run", attempts=1))
    run.errs("a")
    assert ended(run) == snapshot("""\
**desk** failed in step 1.

Asked:
> hi

`ToolFailed`:
> The tool 'charge' failed, ValueError: card declined

Nothing of it runs again by itself.\
""")


def test_a_run_that_fails_while_a_call_is_under_way_says_that_it_waits_for_it() -> None:
    run = Driven()
    run.plans(call("a", "charge", on_error="fail_run"), call("b", "refund", repeatable=False))
    run.errs("a")
    assert render(run.state, "run-1") == snapshot("""\
**desk** fails in step 1, and ends once nothing of it is under way any more.

Asked:
> hi

`ToolFailed`:
> The tool 'charge' failed, ValueError: card declined

Under way:

- `refund`: `x=1`\
""")


def test_a_cancelled_run() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"))
    run.cancels()
    assert ended(run) == snapshot("""\
**desk** was cancelled in step 1.

Asked:
> hi\
""")


def test_a_signal_that_could_not_apply_is_on_the_page() -> None:
    """Whoever sends a signal from the page gets no answer: the page must say what came of it."""
    run = Driven()
    run.plans(call("a", "refund", wait_for="approval"))
    run.signals("approve", "a", digest="0000")
    [line] = [line for line in render(run.state, "run-1").splitlines() if line.startswith("- `approve`")]
    assert "`Call 'a' of 'refund' waits with the digest" in line
    assert line.endswith("Look at the call again, and decide on what waits now.`")


def test_the_newest_decisions_and_rejections_are_shown() -> None:
    run = Driven()
    run.plans(*(call(f"c{i}", wait_for="approval") for i in range(12)))
    for i in range(12):
        run.updates("deny", f"c{i}", by=f"p{i}")
    page = render(run.state, "run-1")
    assert "The newest of 12 decisions:" in page
    assert "`p6`" not in page
    assert "`p11`" in page


# --- what others wrote -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_the_page_stays_below_20_kb_and_every_box_is_closed(text: str) -> None:
    """A cut must not open the rest of the page to what a model wrote."""
    run = hostile_run(text)
    readable = text.encode(errors="replace").decode()
    for i in range(20):
        run.updates("deny", f"c{i}", by=readable[:200], message=readable)
        run.signals("approve", f"c{i}", by=readable[:200], reason=readable)
    page = render(run.state, text or "run")
    assert len(page.encode()) < 20_000
    fences = [line for line in page.splitlines() if line.startswith("```")]
    assert set(fences[::2]) <= {"```json", "```sh"}
    assert set(fences[1::2]) <= {"```"}
    assert len(fences) % 2 == 0


@pytest.mark.parametrize("text", [text for text in HOSTILE if len(text) < 700])
def test_what_others_wrote_is_no_markup(text: str) -> None:
    """A heading, a link, an image or bold words of a model's would pass for outlast's own."""
    harmless, hostile = hostile_run("x", calls=1), hostile_run(text, calls=1)
    expected = structure(render(harmless.state, "run"))
    assert structure(render(hostile.state, "run")) == expected


@given(text=st.text(st.sampled_from("`*_[]()<>!#&|~$\\-+=.:1 \n\tab中\u202e\"'"), min_size=1, max_size=40))
@example("&lt;b&gt;")
@example("a  \nb\\")
@example("<b>")
@settings(max_examples=300, deadline=None)
def test_a_quote_and_a_name_read_as_what_was_written(text: str) -> None:
    plain = one_line(text)
    [quote] = [block for block in GITHUB.parse(quoted(text)) if block.type == "inline"]
    assert shown(quote) == (plain or "(nothing)")
    [name] = [block for block in GITHUB.parse(f"It is {code(text)}.") if block.type == "inline"]
    kinds = [child.type for child in name.children or []]
    assert kinds == ["text", "code_inline", "text"]
    if "`" * 4 not in plain:
        assert shown(name) == f"It is {plain or '?'}."


def test_what_cannot_be_seen_is_written_out() -> None:
    """A character that turns the order of the text around lets a person approve what they did not read."""
    run = Driven()
    run.plans(call("a", args={"to": "ann\u202e\u200b\U000e0041"}, prompt="Pay \u202eann?", wait_for="approval"))
    page = render(run.state, "run")
    assert r'"to": "ann\u202e\u200b\U000e0041"' in page
    assert r"> Pay \\u202eann?" in page


def test_long_lines_are_broken_since_the_page_would_cut_them_off() -> None:
    text = f'{{\n  "text": "{"word " * 30}",\n  "zh": "{"退款" * 30}"\n}}'
    assert wrapped(text) == snapshot("""\
{
  "text": "word word word word word word word word word wo ↩
    rd word word word word word word word word word word w ↩
    ord word word word word word word word word word ",
  "zh": "退款退款退款退款退款退款退款退款退款退款退款退款 ↩
    退款退款退款退款退款退款退款退款退款退款退款退款退款退 ↩
    款退款退款退款退款"
}\
""")
    assert wrapped(text).replace(" ↩\n    ", "") == text


def test_the_page_says_how_many_more_wait() -> None:
    page = render(hostile_run("x" * 5_000).state, "run")
    assert page.split("\n\n")[-2] == snapshot("48 more wait: the query `pending` shows them all.")


def test_arguments_that_are_cut_say_so() -> None:
    run = Driven()
    run.plans(call("a", args={"text": "x" * 5_000}, wait_for="approval"))
    assert "**These arguments are cut.** The query `pending` shows them in full." in render(run.state, "run")


@pytest.mark.parametrize("workflow_id", ["run-1", "it's", "a b", "$(id)", "`id`", "a;b"])
def test_the_commands_on_the_page_are_quoted_for_a_shell(workflow_id: str) -> None:
    run = Driven()
    run.plans(call("it's $(id)", args={"x": "'"}, wait_for="approval"))
    page = render(run.state, workflow_id)
    told = [shlex.split(box.partition("```")[0].replace("\\\n", "")) for box in page.split("```sh\n")[1:]]
    assert [words[:3] for words in told] == [["temporal", "workflow", "signal"]] * 2
    assert [words[5:7] for words in told] == [["--workflow-id", workflow_id]] * 2
    assert [(words[4], json.loads(words[8])) for words in told] == [
        ("approve", {"tool_call_id": "it's $(id)", "digest": digest(run, "it's $(id)")}),
        ("deny", {"tool_call_id": "it's $(id)", "message": "…"}),
    ]


# --- summaries -------------------------------------------------------------------------------------------------------


def test_a_step_says_what_the_model_is_told() -> None:
    run = Driven()
    assert summary_of_step(1, run.state.messages) == snapshot("Step 1: hi")
    run.plans(
        *(call(f"c{i}", "look_up") for i in range(3)), call("a", "refund", wait_for="approval"), call("b", "ping")
    )
    for i in range(3):
        run.returns(f"c{i}")
    run.errs("b")
    run.updates("deny", "a")
    assert summary_of_step(2, run.state.messages) == snapshot("Step 2 after 3x look_up, refund (denied), ping (failed)")
    assert summary_of_step(3, []) == "Step 3"


def test_a_step_after_messages_of_any_shape_has_a_summary() -> None:
    """A caller may start a run from earlier messages: a summary that raised would hang the run."""
    odd: list[Any] = [{}, {"part_kind": "tool-return"}, {"part_kind": "user-prompt"}, {"part_kind": "new"}]
    odd.append({"part_kind": "user-prompt", "content": ["see", {"kind": "image-url", "url": "x"}, {"a": 1}]})
    assert summary_of_step(1, [{"kind": "request", "parts": odd}]) == snapshot(
        "Step 1 after None: see (image-url) (other content)"
    )


def test_what_a_run_is_about() -> None:
    assert about_run("desk", "Refund *this*.", {"requester": "`ann`"}) == snapshot("""\
Asked, as the caller says, by `` `ann` ``:
> Refund \\*this\\*.\
""")
    assert about_run("desk", ["See", {"kind": "image-url"}], {}) == snapshot("""\
Asked:
> See (image-url)\
""")
    assert about_run("desk", None, {}) == snapshot("A run of `desk` without a prompt.")


def test_the_page_of_large_arguments_is_made_once() -> None:
    """The page is made anew with everything that happens: megabytes must not be written each time."""
    run = Driven()
    args = Counted({"text": "x"})
    run.plans(call("a"), call("b"))
    run.call("a").args = args
    page = Page("run-1")
    for _ in range(5):
        page.render(run.state, {})
    assert args.read == 1


class Counted(dict[str, Any]):
    read = 0

    def items(self) -> Any:
        self.read += 1
        return super().items()


# --- how a page is read ----------------------------------------------------------------------------------------------


def digest(run: Driven, call_id: str) -> str:
    held = run.call(call_id).held
    assert held is not None
    return held.digest


def structure(page: str) -> list[str]:
    """What a page consists of besides its words."""
    kinds: list[str] = []
    for block in GITHUB.parse(page):
        children = [child.type for child in block.children or [] if child.type not in ("text", "text_special")]
        kinds += [block.type, *(kind for kind in children if kind != "softbreak")]
    return kinds


def shown(inline: Any) -> str:
    return "".join(child.content for child in inline.children or [])
