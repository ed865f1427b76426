"""Models by their names, and their settings."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import UserError
from outlast.models import (
    OfflineModel,
    OpenAIModel,
    TestModel,
    infer_model,
    load_settings,
    merge_settings,
)


@pytest.mark.parametrize(
    ("name", "kind", "model_name", "system"),
    [
        ("test", TestModel, "test", "test"),
        ("offline", OfflineModel, "offline", "offline"),
        ("openai:gpt-4o", OpenAIModel, "gpt-4o", "openai"),
        ("openai:ft:gpt-4o:team", OpenAIModel, "ft:gpt-4o:team", "openai"),
        ("deepseek:deepseek-chat", OpenAIModel, "deepseek-chat", "deepseek"),
    ],
)
def test_a_name_gives_a_model(name: str, kind: type, model_name: str, system: str) -> None:
    model = infer_model(name)
    assert type(model) is kind
    assert (model.model_name, model.system) == (model_name, system)


def test_a_model_stands_for_itself() -> None:
    model = TestModel()
    assert infer_model(model) is model


@pytest.mark.parametrize("name", ["gpt-4o", "openai:", "openai", "acme:large", "", ":x", "test:x", None, 3])
def test_an_unknown_name_lists_the_known_ones(name: Any) -> None:
    with pytest.raises(UserError, match="'openai:") as caught:
        infer_model(name)
    assert repr(name) in caught.value.message


def test_settings_from_json_are_checked_all_at_once() -> None:
    assert load_settings({"temperature": 0.5, "stop_sequences": ["x"]}) == {
        "temperature": 0.5,
        "stop_sequences": ["x"],
    }
    assert load_settings(None) == {}
    with pytest.raises(UserError) as caught:
        load_settings({"temprature": 1, "max_tokens": "many"})
    assert "temprature" in caught.value.message
    assert "max_tokens" in caught.value.message
    assert "temperature" in caught.value.message


def test_later_settings_win_and_extras_are_merged() -> None:
    base = load_settings({"seed": 1, "temperature": 0, "extra_body": {"a": 1, "b": 1}})
    merged = merge_settings(base, None, load_settings({"seed": 2, "extra_body": {"b": 2}}))
    assert merged == {"seed": 2, "temperature": 0, "extra_body": {"a": 1, "b": 2}}
    assert base == {"seed": 1, "temperature": 0, "extra_body": {"a": 1, "b": 1}}
