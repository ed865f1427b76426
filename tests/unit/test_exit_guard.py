"""The guard in conftest.py: how the test process leaves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CRASHES_AT_EXIT = """
import atexit, os

# What a thread that outlives the interpreter does to the process, after all exit handlers.
class Crash:
    def __del__(self, abort=os.abort):
        abort()

keep = Crash()

def test_it():
    assert {outcome}
"""


@pytest.mark.parametrize(("outcome", "status"), [(True, 0), (False, 1)])
def test_a_crash_after_the_last_test_hides_no_result(tmp_path: Path, outcome: bool, status: int) -> None:
    """Temporal's SDK sometimes crashes while the interpreter shuts down, after green tests.

    https://github.com/temporalio/sdk-python/issues/300
    """
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_crash.py").write_text(CRASHES_AT_EXIT.format(outcome=outcome))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("1 passed" if outcome else "1 failed") in done.stdout
