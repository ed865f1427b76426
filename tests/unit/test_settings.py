"""outlast's own settings."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from outlast.errors import UserError
from outlast.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder without `.env`, and an environment without settings: a developer's own must not decide a test."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"OUTLAST_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_defaults_need_no_settings_at_all() -> None:
    assert Settings.load().model_dump() == {
        "task_queue": "outlast",
        "state_dir": Path(".outlast"),
        "heartbeat_timeout": timedelta(seconds=10),
        "shutdown_grace": timedelta(seconds=30),
        "conversation_cache_mb": 256,
        "log_format": "auto",
        "log_level": "info",
    }


def test_an_argument_wins_over_the_environment_and_that_over_the_file(
    monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> None:
    (empty_folder / ".env").write_text(
        "OUTLAST_TASK_QUEUE=file\nOUTLAST_STATE_DIR=file\nOUTLAST_LOG_LEVEL=debug\nANOTHER_PROGRAM=1\n"
    )
    monkeypatch.setenv("OUTLAST_TASK_QUEUE", "environment")
    monkeypatch.setenv("OUTLAST_STATE_DIR", "environment")
    settings = Settings.load(task_queue="argument", state_dir=None)
    assert (settings.task_queue, settings.state_dir, settings.log_level) == ("argument", Path("environment"), "debug")


@pytest.mark.parametrize("text", ["1.5", "PT1.5S", "00:00:01.5"])
def test_a_duration_is_plain_seconds_or_iso_8601(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OUTLAST_HEARTBEAT_TIMEOUT", text)
    assert Settings.load().heartbeat_timeout == timedelta(seconds=1.5)
    assert Settings.load(heartbeat_timeout=2).heartbeat_timeout == timedelta(seconds=2)


def test_every_mistake_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_HEARTBEAT_TIMEOUT", "0")
    monkeypatch.setenv("OUTLAST_SHUTDOWN_GRACE", "soon")
    monkeypatch.setenv("OUTLAST_LOG_LEVEL", "loud")
    monkeypatch.setenv("OUTLAST_TASK_QUEUE", "")
    with pytest.raises(UserError) as caught:
        Settings.load()
    assert str(caught.value) == snapshot("""\
These settings cannot be used:
  OUTLAST_TASK_QUEUE=: String should have at least 1 character
  OUTLAST_HEARTBEAT_TIMEOUT=0: must be longer than 0 seconds
  OUTLAST_SHUTDOWN_GRACE=soon: expected seconds, such as 10, or ISO 8601, such as PT10S
  OUTLAST_LOG_LEVEL=loud: expected 'debug', 'info', 'warning' or 'error'\
""")


def test_the_example_file_shows_every_setting_with_its_default(
    monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> None:
    example = (ROOT / ".env.example").read_text()
    shown = re.findall(r"^# (OUTLAST_(\w+)=.*)$", example, flags=re.MULTILINE)
    assert [name.lower() for _, name in shown] == list(Settings.model_fields)
    (empty_folder / ".env").write_text("\n".join(line for line, _ in shown))
    from_file = Settings.load()
    (empty_folder / ".env").unlink()
    assert from_file == Settings.load()
