"""What a user installs: the wheel, alone in an environment, in a folder with modules named as our rooms are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("workflows", "activities", "toolsets", "worker")

# Each would end the program, or be missed, if outlast took a bare name for one of its rooms.
USERS_OWN = "MINE = True\n"

APP = """
import activities, toolsets, worker, workflows
assert all(module.MINE for module in (activities, toolsets, worker, workflows))

from outlast import Agent
from outlast.models.test import TestModel

import outlast, outlast.activities, outlast.toolsets, outlast.worker, outlast.workflows
assert all(hasattr(module, "MINE") is False for module in (outlast.activities, outlast.toolsets, outlast.workflows))
print(outlast.__file__)
print(Agent(TestModel()).run_sync("hi").output)
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that is built from it, as an index would have them."""
    folder = tmp_path_factory.mktemp("dist")
    # Without isolation: hatchling is pinned in this environment, and an isolated build would download another.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [wheel] = built.glob("*.whl")
    return wheel


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def sources() -> set[str]:
    """Every module of the working tree as it must be named in a wheel."""
    expected = {"outlast/py.typed", "outlast/worker.py", "outlast/examples/refunds.py"}
    for room in ("outlast", *ROOMS[:3]):
        prefix = "" if room == "outlast" else "outlast/"
        expected |= {prefix + path.relative_to(ROOT).as_posix() for path in (ROOT / room).rglob("*.py")}
    return expected


def test_the_wheel_holds_every_module_inside_outlast_and_nothing_beside_it(wheel: Path) -> None:
    """Users of Temporal have `workflows`, `activities` and `worker` of their own: ours must never be at the top."""
    packed = names(wheel)
    assert {name.partition("/")[0] for name in packed} == {"outlast"}
    assert sources() <= packed
    assert {f"outlast/{room}/__init__.py" for room in ROOMS[:3]} <= packed


def test_the_wheel_is_the_same_from_the_source_distribution_and_from_the_repository(
    wheel: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    [direct] = tmp_path.glob("*.whl")
    assert names(direct) == names(wheel)


def test_the_source_distribution_holds_what_its_links_point_to(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        paths = {name.partition("/")[2] for name in archive.getnames()}
    assert {"worker.py", "workflows/__init__.py", "activities/__init__.py", "toolsets/__init__.py"} <= paths
    assert "examples/refunds.py" in paths
    assert {"LICENSE", "README.md", "pyproject.toml"} <= paths
    assert not any(path.startswith(("tests", ".venv", "benchmarks")) for path in paths)


@pytest.fixture
def installed(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The Python of an environment that holds the wheel, and a folder with a user's own modules."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment, project = tmp_path / "environment", tmp_path / "project"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)

    # The dependencies come from this environment, so that nothing is downloaded again. A folder named in a .pth file
    # is added to the path, and .pth files inside it are not read: the editable outlast stays out of reach.
    site_packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    )
    shared = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site_packages / "dependencies.pth").write_text("\n".join(shared))

    project.mkdir()
    for room in ROOMS:
        (project / f"{room}.py").write_text(USERS_OWN)
    return python, project


def test_an_agent_runs_from_the_wheel_beside_the_users_own_modules(installed: tuple[Path, Path]) -> None:
    python, project = installed
    (project / "app.py").write_text(APP)
    where, answer = run(python, "app.py", cwd=project).strip().splitlines()
    assert Path(where).is_relative_to(python.parents[1])
    assert answer


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_runs_from_the_wheel(installed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the example, which the wheel must hold, and starts workers of its own."""
    python, project = installed
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts"), prepend=os.pathsep)
    told = json.loads(run(python.parent / "outlast", "demo", "--json", cwd=project))
    assert told["output"] == "Sorry about the headphones, Ada. Refunded 1999 cents of order 1042."
    assert [order["refunded"] for order in told["after"]] == [0, 1999, 0]
