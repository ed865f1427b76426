"""A model of plain rules: for demonstrations without a key or a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from typing_extensions import override

from outlast.errors import UserError
from outlast.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from outlast.models.answer import to_response
from outlast.models.model import Model, ModelRequestParameters, ModelSettings

__all__ = ("OfflineModel", "Prompt", "Result", "Rule", "call")


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What the user said, as a rule sees it.

    Attributes:
        text: The whole prompt.
        groups: The named groups of the rule's pattern, without those that took no part in the match.
    """

    text: str
    groups: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.groups[name]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a call, as a rule sees it.

    Attributes:
        content: The result, or what the model is told instead.
        outcome: `success`, `failed`, `denied`, or `retry` where the model is asked to try again.
    """

    content: Any
    outcome: str

    @property
    def ok(self) -> bool:
        """The call did what it was asked to do."""
        return self.outcome == "success"


def call(tool_name: str, /, **args: Any) -> ToolCallPart:
    """A call of a tool, to be yielded by a rule."""
    return ToolCallPart(tool_name=tool_name, args=args)


Step: TypeAlias = ToolCallPart | list[ToolCallPart]
Conversation: TypeAlias = Generator[Step, Any, str]
RuleFunction: TypeAlias = Callable[[Prompt], "str | Conversation"]


@dataclass(frozen=True)
class Rule:
    """What to do when the user says something.

    Args:
        pattern: Regular expression to be found in the prompt, whatever the case of its letters; or a function of
            the prompt that says whether the rule applies.
        function: Gets the `Prompt`. It returns the answer; or, as a generator function, yields calls, is sent the
            `Result` of each (a list where it yielded a list), and returns the answer.
    """

    pattern: str | re.Pattern[str] | Callable[[str], bool]
    function: RuleFunction

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def match(self, text: str) -> Prompt | None:
        """The prompt, where the rule applies to this text."""
        if callable(self.pattern):
            return Prompt(text=text, groups={}) if self.pattern(text) else None
        found = re.search(self.pattern, text, re.IGNORECASE if isinstance(self.pattern, str) else 0)
        if found is None:
            return None
        return Prompt(text=text, groups={name: value for name, value in found.groupdict().items() if value is not None})


class OfflineModel(Model):
    r"""Answers by rules; the first one that fits the prompt counts. It understands nothing, and says so.

    ```python
    model = OfflineModel()


    @model.rule(r"refund order (?P<order_id>\d+) for (?P<customer>\w+)")
    def refund(prompt):
        found = yield call("find_orders", customer=prompt["customer"])
        order = next(order for order in found.content if order["order_id"] == int(prompt["order_id"]))
        done = yield call("refund", order_id=order["order_id"], cents=order["cents"])
        return f"Refunded {order['cents']} cents." if done.ok else f"No refund: {done.content}"
    ```

    A rule is run from its start for each step, and is given the results that the conversation already holds. So it
    must decide by the prompt and by these results alone; then any worker can go on with it.

    Args:
        rules: The rules, in the order in which they are tried; `rule` adds to them.
        otherwise: The answer where no rule fits; by default one that lists the patterns.
        model_name: Name of the model.
    """

    def __init__(
        self, rules: Sequence[Rule] = (), *, otherwise: str | None = None, model_name: str = "offline"
    ) -> None:
        self.rules = list(rules)
        self.otherwise = otherwise
        self._model_name = model_name

    @property
    @override
    def model_name(self) -> str:
        return self._model_name

    @property
    @override
    def system(self) -> str:
        return "offline"

    def rule(self, pattern: str | re.Pattern[str] | Callable[[str], bool]) -> Callable[[RuleFunction], RuleFunction]:
        """Adds the decorated function as a `Rule`."""

        def add(function: RuleFunction) -> RuleFunction:
            self.rules.append(Rule(pattern, function))
            return function

        return add

    @override
    async def request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        turn = _turn(messages, self.rules)
        answer = self._no_rule() if turn is None else _run(*turn)
        return to_response(answer, model_name=self._model_name, where=f"a rule of {self!r}")

    def _no_rule(self) -> str:
        if self.otherwise is not None:
            return self.otherwise
        patterns = [
            rule.pattern
            if isinstance(rule.pattern, str)
            else getattr(rule.pattern, "pattern", None) or getattr(rule.pattern, "__name__", "a function")
            for rule in self.rules
        ]
        known = f"It knows: {'; '.join(patterns)}" if patterns else "It has no rules yet; OfflineModel.rule adds some"
        return f"This is the offline model, which follows fixed rules, and none fits what you said. {known}."


def _turn(messages: list[ModelMessage], rules: list[Rule]) -> tuple[Rule, Prompt, list[ModelMessage]] | None:
    """The rule that is being followed, what it was given, and what happened since."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, ModelRequest):
            continue
        texts = [text for part in message.parts if isinstance(part, UserPromptPart) for text in _texts(part)]
        text = "\n".join(texts)
        for rule in rules if texts else ():
            if (prompt := rule.match(text)) is not None:
                return rule, prompt, messages[index + 1 :]
        # A tool may add to the user's side what no rule was meant for; the user's own words end the search.
        beside_results = any(isinstance(part, ToolReturnPart | RetryPromptPart) for part in message.parts)
        if texts and not beside_results:
            return None
    return None


def _texts(part: UserPromptPart) -> list[str]:
    return [part.content] if isinstance(part.content, str) else [item for item in part.content if isinstance(item, str)]


def _run(rule: Rule, prompt: Prompt, since: list[ModelMessage]) -> str | Step:
    """Runs the rule from its start, over the steps that were already taken, to the next one."""
    conversation = rule.function(prompt)
    if not isinstance(conversation, Generator):
        return _answer(conversation, rule)
    results = _results(since)
    try:
        step = _checked(next(conversation), rule)
        for response in (message for message in since if isinstance(message, ModelResponse)):
            if not response.tool_calls:
                continue
            answers = [
                results.get(called.tool_call_id) or Result(content=None, outcome="failed")
                for called in response.tool_calls
            ]
            step = _checked(conversation.send(answers if isinstance(step, list) else answers[0]), rule)
        return step
    except StopIteration as stop:
        return _answer(stop.value, rule)
    finally:
        conversation.close()


def _checked(step: object, rule: Rule) -> Step:
    calls = cast("list[object]", step) if isinstance(step, list) else [step]
    if calls and all(isinstance(each, ToolCallPart) for each in calls):
        return cast(Step, step)
    raise UserError(f"The rule {rule.name!r} must yield call(…) or a list of calls, got {step!r}.")


def _answer(value: object, rule: Rule) -> str:
    if isinstance(value, str):
        return value
    raise UserError(
        f"The rule {rule.name!r} must yield its calls and return its answer, a string; it returned {value!r}."
    )


def _results(since: list[ModelMessage]) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for message in since:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                results[part.tool_call_id] = Result(content=part.content, outcome=part.outcome)
            elif isinstance(part, RetryPromptPart):
                results[part.tool_call_id] = Result(content=part.model_response_str(), outcome="retry")
    return results
