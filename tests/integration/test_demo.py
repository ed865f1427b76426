"""`outlast demo`, as the first thing that a user types: from start to end, and whatever stops it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

PATIENCE = 240
DEMO = [sys.executable, "-m", "outlast", "demo"]

pytestmark = [
    pytest.mark.timeout(2 * PATIENCE),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


class Marked:
    """Environment of a demo, by which all processes are found that come from it."""

    def __init__(self) -> None:
        self.mark = f"DEMO_MARK={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        self.env = {**os.environ, name: value, "COLUMNS": "80", "OPENAI_API_KEY": "sk-never-used"}

    def processes(self) -> list[str]:
        found: list[str] = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it ended, or is none of ours
        return found

    def wait_until_gone(self) -> None:
        wait_for(lambda: not self.processes(), lambda: f"left running: {self.processes()}")


@pytest.fixture
def marked() -> Iterator[Marked]:
    marked = Marked()
    yield marked
    marked.wait_until_gone()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # What would lead a worker elsewhere, if the demo let it.
    Path(".env").write_text("TEMPORAL_ADDRESS=127.0.0.1:1\nTEMPORAL_NAMESPACE=nope\nTEMPORAL_TLS=true\n")
    return tmp_path


def wait_for(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.05)


def refunds() -> list[tuple[int, int]]:
    with sqlite3.connect(".outlast/demo/refunds.db") as db:
        return db.execute("SELECT order_id, cents FROM refunds").fetchall()


def test_without_a_terminal_it_approves_by_itself_and_leaves_nothing_running(marked: Marked) -> None:
    done = subprocess.run(DEMO, env=marked.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    text = done.stdout.decode()
    assert done.returncode == 0, text + done.stderr.decode()
    assert done.stderr == b""
    labels = [line.split()[0] for line in text.splitlines() if line and not line[0].isspace()]
    story = ["server", "worker", "run", "call", "waits", "kill", "worker", "approve", "call", "answer"]
    assert [label for label in labels if label in story] == story
    assert "Refund 1999 cents of order 1042?" in text
    assert "Nobody is at a terminal to ask, so this demo approves by itself." in text
    assert "answer     Sorry about the headphones, Ada. Refunded 1999 cents of order 1042." in text
    assert re.search(r"1042 +Ada +headphones +1999 +0 +1999", text)
    assert re.search(r"look +http://127\.0\.0\.1:\d+/namespaces/default/workflows/support-\w+\n", text)
    assert "The server is stopped now." in text
    assert refunds() == [(1042, 1999)]
    assert marked.processes() == []


def test_it_can_be_run_again_and_with_json(marked: Marked) -> None:
    for _ in range(2):
        done = subprocess.run([*DEMO, "--json"], env=marked.env, capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr.decode()
        told = json.loads(done.stdout)
        assert told["decision"] == "approved"
        assert len(told["workers_killed"]) == 1
        assert [order["refunded"] for order in told["before"]] == [0, 0, 0]
        assert [order["refunded"] for order in told["after"]] == [0, 1999, 0]
        assert refunds() == [(1042, 1999)]
    assert marked.processes() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_in_the_middle_it_leaves_nothing_running(marked: Marked, number: signal.Signals) -> None:
    demo = subprocess.Popen(DEMO, env=marked.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            if line.startswith(b"run "):
                break
        assert len(marked.processes()) >= 3, "the demo, its server and its worker"
        demo.send_signal(number)
        assert demo.wait(PATIENCE) != 0
    finally:
        demo.kill()
        demo.stdout.close()
    marked.wait_until_gone()


class Terminal:
    """A program on a terminal of 80 columns."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.text = ""

    def read_until(self, words: str | None) -> None:
        """Read until these words are on the screen; None: until the program ends."""
        end = time.monotonic() + PATIENCE
        while words is None or words not in self.text:
            assert time.monotonic() < end, self.text
            if not select.select([self._master], [], [], 1)[0]:
                continue
            try:
                read = os.read(self._master, 65536)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                read = b""
            if not read:
                assert words is None, f"{words!r} never came:\n{self.text}"
                return
            self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read.decode(errors="replace")).replace("\r\n", "\n")

    def type(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(marked: Marked) -> Iterator[Terminal]:
    terminal = Terminal(DEMO, marked.env)
    yield terminal
    terminal.close()


def end(terminal: Terminal) -> None:
    """The server stays, and its link works, until Enter."""
    terminal.read_until("press Enter")
    [link] = re.findall(r"look +(http\S+)", terminal.text)
    with urlopen(link, timeout=60) as page:
        assert page.status == 200
    terminal.type("")
    terminal.read_until(None)
    assert terminal.process.wait(PATIENCE) == 0


def test_on_a_terminal_it_asks_and_runs_what_is_approved(terminal: Terminal) -> None:
    terminal.read_until("Approve?")
    assert refunds() == []
    terminal.type("perhaps")
    terminal.read_until("Please type y, n or e NAME=VALUE.")
    terminal.type("y")
    terminal.read_until("answer")
    end(terminal)
    assert "Refunded 1999 cents of order 1042." in terminal.text
    assert refunds() == [(1042, 1999)]


def test_on_a_terminal_it_asks_and_never_runs_what_is_denied(terminal: Terminal) -> None:
    terminal.read_until("Approve?")
    terminal.type("n")
    end(terminal)
    assert "The headphones cannot be refunded" in terminal.text
    assert refunds() == []


def test_ctrl_c_at_the_question_ends_it_at_once(terminal: Terminal) -> None:
    terminal.read_until("Approve?")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(PATIENCE) == 130
    assert "Traceback" not in terminal.text


def test_the_ui_of_earlier_demos_is_served_again(marked: Marked) -> None:
    subprocess.run(DEMO, env=marked.env, check=True, capture_output=True, timeout=PATIENCE)
    terminal = Terminal([*DEMO, "--ui"], marked.env)
    try:
        terminal.read_until("Press Enter")
        [link] = re.findall(r"(http\S+/workflows/support-\w+)", terminal.text.replace("\n", ""))
        with urlopen(link, timeout=60) as page:
            assert page.status == 200
        terminal.type("")
        assert terminal.process.wait(PATIENCE) == 0
    finally:
        terminal.close()
