"""Models by their names."""

from __future__ import annotations

from outlast.errors import UserError
from outlast.models.model import Model
from outlast.models.offline import OfflineModel
from outlast.models.openai import BASE_URLS, OpenAIModel
from outlast.models.test import TestModel

__all__ = ("infer_model",)


def infer_model(model: Model | str) -> Model:
    """The model of a name.

    Neither a key nor the provider's package is needed yet: both are looked for at the first request.

    Args:
        model: `provider:model`, for example `openai:gpt-4o` or `deepseek:deepseek-chat`; `test`; `offline`; or a
            model, which is returned as it is.

    Raises:
        UserError: There is no such name.
    """
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"Expected a model or its name, like 'openai:gpt-4o', got {model!r}.")
    match model.partition(":"):
        case ("test", "", _):
            return TestModel()
        case ("offline", "", _):
            return OfflineModel()
        case (provider, ":", name) if name and provider in BASE_URLS:
            return OpenAIModel(name, provider_name=provider)
        case _:
            known = ", ".join(f"'{provider}:…'" for provider in BASE_URLS)
            raise UserError(
                f"Unknown model {model!r}: expected one of {known}, 'test' or 'offline'. "
                "For another server with OpenAI's API give "
                "OpenAIModel('its-model', provider_name='its-name', base_url='https://…/v1')."
            )
