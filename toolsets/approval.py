"""What a person who decides about a call is shown."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from string import Formatter
from typing import Any

from outlast.messages import JsonObject

__all__ = ("Approval",)


@dataclass(frozen=True, kw_only=True)
class Approval:
    """How a call of a tool is approved.

    Attributes:
        prompt: A sentence for the person, with arguments by name: `"Refund {cents} cents of {order[id]}?"`.
    """

    prompt: str | None = None

    def problems(self, names: Collection[str] | None) -> list[str]:
        """What is wrong with the prompt.

        Args:
            names: The arguments that the tool takes; None where it takes any.
        """
        if self.prompt is None:
            return []
        try:
            used = [(name, spec or "") for _, name, spec, _ in Formatter().parse(self.prompt) if name is not None]
        except ValueError as error:
            return [
                f"the approval prompt {self.prompt!r} is no format string: {error}. Write a literal brace as '{{{{'."
            ]
        found: list[str] = []
        for name, spec in used:
            argument = name.split("[")[0]
            if "{" in spec:
                # The model would choose the width, and a billion spaces end the worker.
                found.append(f"the approval prompt formats {{{name}}} by another argument: write the format itself.")
            elif "." in argument:
                left, _, right = argument.partition(".")
                found.append(f"the approval prompt reads {{{name}}}; arguments are JSON, so write {{{left}[{right}]}}.")
            elif not argument or argument.isdigit():
                found.append(
                    f"the approval prompt {self.prompt!r} names no argument in {{{name}}}: write {{argument}}."
                )
            elif names is not None and argument not in names:
                known = ", ".join(names) or "none"
                found.append(f"the approval prompt names {{{name}}}, but the tool's arguments are: {known}.")
        return found

    def render(self, args: JsonObject) -> str | None:
        """The prompt with the arguments in place; an argument that is missing is shown by its name."""
        if self.prompt is None:
            return None
        try:
            return _Prompt().vformat(self.prompt, (), args)
        except ValueError:  # A number of more than 4300 digits has no text.
            return self.prompt


class _Prompt(Formatter):
    # A person must be shown something even where a format does not fit the value: never raises for checked prompts.
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (LookupError, TypeError, AttributeError, ValueError):
            return f"{{{field_name}}}", field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            return format(value, format_spec)
        except (TypeError, ValueError, OverflowError):
            return str(value)
