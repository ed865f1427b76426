"""Arguments, exit codes and errors of the command line."""

# ruff: noqa: E501 -- a message is one line

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from outlast.cli.app import command_line, main
from outlast.cli.exit_code import ExitCode
from outlast.contracts import DECISIONS

VERBS = ["demo", "worker", "run", "pending", *DECISIONS, "steer", "pause", "resume", "cancel"]


@pytest.fixture
def nowhere() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_the_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.DONE
    text = stripped(capsys.readouterr().out)
    assert text == snapshot("""\
Usage: outlast COMMAND

Agent runs that outlast crashes, deploys and slow humans.

╭─ Commands ───────────────────────────────────────────────────────────────────╮
│ --help (-h)  Display this message and exit.                                  │
│ --version    Display application version.                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Run agents ─────────────────────────────────────────────────────────────────╮
│ demo    See it work: a refund waits for a person, and its worker dies        │
│         meanwhile.                                                           │
│ dev     Serve APP for development: a Temporal server with its UI, and a      │
│         worker that reloads when the code changes.                           │
│ worker  Host the agents of APP until SIGTERM or Ctrl-C, then let running     │
│         calls finish.                                                        │
│ run     Start a run, show what it does, and print its output.                │
│ tools   List the tools of APP, as the model sees them, and what applies to a │
│         call of each.                                                        │
│ doctor  Check the surroundings of runs: versions, settings, server,          │
│         namespace, search attributes, workers, and APP.                      │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ See runs ───────────────────────────────────────────────────────────────────╮
│ runs   List runs, the newest first.                                          │
│ show   Show what a run did, step by step, what it waits for, and how it      │
│        ended.                                                                │
│ watch  Show what a run has done and does, until it ends; on a terminal, ask  │
│        when a call waits for somebody.                                       │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Decide ─────────────────────────────────────────────────────────────────────╮
│ pending  List the calls that wait for a decision, over all runs or in one.   │
│ approve  Run a call that waits for an approval.                              │
│ deny     Refuse a waiting call: it never runs, and the model is told.        │
│ resolve  Give a waiting call its result, instead of running it.              │
│ retry    Tell the model to try a waiting call again.                         │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Control a run ──────────────────────────────────────────────────────────────╮
│ steer   Say something to a run: the model reads it before its next step.     │
│ pause   Let what runs finish, and start nothing new until outlast resume.    │
│ resume  Let a paused run go on.                                              │
│ cancel  Cancel a run and the calls that it is running.                       │
╰──────────────────────────────────────────────────────────────────────────────╯

Exit codes: 0 done, 1 the run failed, 2 usage, 3 waiting for a decision, 4
server unreachable.
""")
    assert all(f"│ {verb} " in text for verb in VERBS)


def test_the_help_of_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approve", "--help"]) == ExitCode.DONE
    assert stripped(capsys.readouterr().out) == snapshot("""\
Usage: outlast approve [OPTIONS] RUN CALL

Run a call that waits for an approval.

What is approved is what was looked at: the decision carries the digest of the
call's arguments, and is refused where these have changed.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  RUN   The run's ID. [required]                                            │
│ *  CALL  The call's ID, as outlast pending lists it. [required]              │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --edit NAME=VALUE  Run with this argument instead; VALUE is JSON where it    │
│                    can be read as JSON, else text. May be repeated.          │
│ --by WHO           Who decides.                                              │
│ --reason TEXT      Kept in the run's record.                                 │
│ --digest DIGEST    The digest of what you looked at, where that was not      │
│                    here.                                                     │
│ --json             Write one JSON value on standard output.                  │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Connection ─────────────────────────────────────────────────────────────────╮
│ --address HOST:PORT  host:port of the Temporal server; by default            │
│                      TEMPORAL_ADDRESS.                                       │
│ --namespace NAME     Temporal namespace; by default TEMPORAL_NAMESPACE.      │
╰──────────────────────────────────────────────────────────────────────────────╯

Exit codes: 0 done, 1 the run failed, 2 usage, 3 waiting for a decision, 4
server unreachable.
""")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_json_and_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == ExitCode.DONE
    text = capsys.readouterr().out
    assert "--json" in text
    assert "--options" not in text, "an implementation detail in the help"


def test_the_version_names_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.DONE
    assert capsys.readouterr().out.startswith("outlast 0.1.0 (temporalio 1.")


def test_a_missing_argument_is_one_line_and_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approve", "run-1"]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == snapshot(
        'error  Command "approve" parameter CALL requires an argument. See `outlast approve --help`.\n'
    )


def test_a_misspelt_verb_is_a_usage_error_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["aprove"]) == ExitCode.USAGE
    assert capsys.readouterr().err == snapshot(
        'error  Unknown command "aprove". Did you mean "approve"? Available commands: demo, dev, worker, run, tools, doctor, runs, show, ... See `outlast --help`.\n'
    )


def test_a_misspelt_option_is_a_usage_error_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approve", "run", "call", "--edits", "a=1"]) == ExitCode.USAGE
    assert capsys.readouterr().err == snapshot(
        "error  Unknown option: --edits. Did you mean --edit? See `outlast approve --help`.\n"
    )


def test_with_json_an_error_is_one_json_value_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approve", "--json"]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["type"] == "Usage"
    assert captured.err == ""


def test_a_worker_without_a_server_says_so_once_its_app_is_known_to_be_good(nowhere: str) -> None:
    """In a process of its own: a worker configures the logs of its process."""
    Path("app.py").write_text("from outlast import Agent\na = Agent(name='a')\n")
    done = outlast("worker", "app.py", "--address", nowhere)
    assert done.returncode == ExitCode.UNREACHABLE
    assert done.stderr.startswith(f"error  No Temporal server answers at {nowhere}.")
    Path("app.py").write_text("a = 1/0\n")
    done = outlast("worker", "app.py", "--address", nowhere)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == "error  app.py, line 1: ZeroDivisionError: division by zero\n"
    assert done.stdout == ""


def test_deps_and_results_that_are_no_json_are_a_usage_error(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resolve", "run-1", "call-1", "shipped", "--address", nowhere]) == ExitCode.USAGE
    assert main(["run", "support", "hi", "--deps", "{", "--address", nowhere]) == ExitCode.USAGE
    assert capsys.readouterr().err == snapshot("""\
error  The result must be JSON, got 'shipped' (expected value at line 1 column 1). A text needs its quotes: '"shipped"'
error  --deps must be JSON, got '{' (EOF while parsing an object at line 1 column 1). A text needs its quotes: '"{"'
""")


def test_a_mistake_of_ours_is_told_apart_from_the_users(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise LookupError("nobody thought of this")

    monkeypatch.setattr("outlast.cli.options.connect", broken)
    assert main(["pending"]) == ExitCode.BUG
    assert capsys.readouterr().err == snapshot(
        "error  Something that outlast did not expect, which is a mistake in outlast: nobody thought of this. With OUTLAST_LOG_LEVEL=debug it says where.\n"
    )


def test_the_program_ends_with_the_verbs_exit_code() -> None:
    assert outlast("--version").returncode == 0
    assert outlast("nonsense").returncode == 2


def test_a_verbs_help_needs_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_LOG_LEVEL", "loud")
    assert main(["pending", "--help"]) == ExitCode.DONE


def test_the_command_line_is_made_anew_for_each_call() -> None:
    assert command_line() is not command_line()


def stripped(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def outlast(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "outlast", *words], capture_output=True, text=True, timeout=100)
