"""One error for all mistakes of a definition."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.errors import UserError

__all__ = ("definition_error",)


def definition_error(what: str, problems: Sequence[str]) -> UserError:
    """A `UserError` that lists every problem, so that nobody meets them one run at a time.

    Args:
        what: What is defined, and where: "Tool 'refund' (app.py:12)".
        problems: One sentence or more each; may span lines.
    """
    if len(problems) == 1:
        return UserError(f"{what}: {problems[0]}")
    lines = [f"{what} has {len(problems)} mistakes:"]
    for number, problem in enumerate(problems, 1):
        lines.append(f"{number}. " + problem.replace("\n", "\n   "))
    return UserError("\n".join(lines))
