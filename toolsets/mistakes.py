"""One error for all mistakes of a definition."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.errors import UserError

__all__ = ("DefinitionError",)


class DefinitionError(UserError):
    """A definition has mistakes: all of them, so that nobody meets them one run at a time.

    Args:
        what: What is defined, and where: "Tool 'refund' (app.py:12)".
        problems: One sentence or more each; may span lines.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        self.what = what
        self.problems = list(problems)
        if len(problems) == 1:
            super().__init__(f"{what}: {problems[0]}")
            return
        lines = [f"{what}: {len(problems)} mistakes."]
        for number, problem in enumerate(problems, 1):
            lines.append(f"{number}. " + problem.replace("\n", "\n   "))
        super().__init__("\n".join(lines))
