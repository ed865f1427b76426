"""What a tested run may be given besides its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from outlast.contracts import UsageLimits
from outlast.messages import JsonObject, ModelMessage

__all__ = ("RunOptions",)


class RunOptions(TypedDict, total=False):
    """The options of `outlast.Client.start`, but for the model: a test replaces that itself."""

    deps: Any
    id: str | None
    message_history: Sequence[ModelMessage]
    model_settings: Mapping[str, Any] | None
    usage_limits: UsageLimits | None
    metadata: JsonObject | None
