"""What `outlast worker APP` hosts, and what it says of an app that it cannot host."""

# ruff: noqa: E501 -- a message is one line

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from inline_snapshot import snapshot

from outlast.cli.loading import load_agents
from outlast.errors import UserError


def mistake(app: str) -> str:
    with pytest.raises(UserError) as caught:
        load_agents(app)
    return caught.value.message.replace(sys.executable, "PYTHON").replace(str(Path.cwd()), "FOLDER")


def write(source: str, name: str = "app.py") -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(dedent(source))
    return name


TWO_AGENTS = """
    from outlast import Agent
    import beside

    first = Agent(name="first")
    again = first
    second = Agent(name="second")
    helper = Agent()
"""


def test_a_file_is_loaded_with_what_lies_beside_it_and_each_agent_with_a_name_is_hosted_once() -> None:
    write("", "shop/beside.py")
    agents = load_agents(write(TWO_AGENTS, "shop/app.py"))
    assert [agent.name for agent in agents] == ["first", "second"]


def test_a_module_is_loaded_by_its_name() -> None:
    write("", "beside.py")
    write("", "shop/__init__.py")
    write(TWO_AGENTS, "shop/agents.py")
    assert [agent.name for agent in load_agents("shop.agents")] == ["first", "second"]


def test_a_file_may_have_the_name_of_a_module_that_is_loaded() -> None:
    """`json.py` is a bad name, and no reason to host the standard library."""
    app = write("from outlast import Agent\na = Agent(name='a')", "json.py")
    assert [agent.name for agent in load_agents(app)] == ["a"]
    assert hasattr(sys.modules["json"], "dumps")


def test_agents_may_be_dataclass_and_pydantic_deep() -> None:
    """Pydantic resolves the annotations of a class through the module that it names: that must be importable."""
    app = write("""
        from __future__ import annotations
        from dataclasses import dataclass
        from outlast import Agent, RunContext

        @dataclass
        class Deps:
            inner: Inner

        @dataclass
        class Inner:
            n: int

        a = Agent(name="a", deps_type=Deps)

        @a.tool
        def look(ctx: RunContext[Deps], at: Inner) -> int:
            return ctx.deps.inner.n
    """)
    assert [agent.name for agent in load_agents(app)] == ["a"]


def test_there_is_no_file() -> None:
    write("", "shop.py")
    assert mistake("app.py") == snapshot("There is no file 'app.py' (looked in 'FOLDER'). There is: shop.py.")


def test_there_is_no_module() -> None:
    assert mistake("shop.agents") == snapshot(
        "There is no module 'shop' here. An app is a file (app.py) or a module that can be imported from 'FOLDER'."
    )


def test_a_syntax_error_is_shown_with_its_line() -> None:
    assert mistake(write("x = 1\ndef f(:\n    pass\n")) == snapshot("""\
app.py, line 2: invalid syntax:

    def f(:\
""")


def test_a_missing_import_is_told_with_the_python_that_lacks_it() -> None:
    assert mistake(write("import no_such_thing")) == snapshot(
        "app.py, line 1 imports 'no_such_thing', which this Python does not have (PYTHON). Install it there, or start outlast from the environment that has it."
    )


def test_a_missing_import_of_a_module_beside_it_is_told_with_its_own_file() -> None:
    write("import no_such_thing", "beside.py")
    assert mistake(write("import beside")).startswith("beside.py, line 1 imports 'no_such_thing'")


def test_a_part_of_a_package_is_named_as_a_module() -> None:
    assert mistake(write("from .x import y")) == snapshot(
        "app.py, line 1: a file that is part of a package cannot be loaded by its path. Name it as a module instead: package.app"
    )


def test_an_error_is_told_with_the_users_line_that_led_to_it() -> None:
    app = write("""
        import json

        def read():
            return json.loads("{")

        read()
    """)
    assert mistake(app) == snapshot(
        "app.py, line 5: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )


def test_a_mistake_in_a_tool_is_told_with_its_line() -> None:
    app = write("""
        from outlast import Agent
        a = Agent(name="a")

        @a.tool_plain(timeout=-1, attempts=0)
        def f(x: int) -> int:
            return x
    """)
    message = mistake(app)
    assert message.startswith("app.py, line 5: Tool 'f' ")
    assert "`timeout`" in message
    assert "`attempts`" in message


def test_a_script_that_ends_the_program_says_so() -> None:
    assert mistake(write("import sys\nsys.exit(3)")) == snapshot(
        "app.py, line 2 ends the program while it is imported. Put what it does as a script under `if __name__ == '__main__':`."
    )


def test_an_app_without_an_agent_with_a_name_is_told_what_to_write() -> None:
    assert mistake(write("from outlast import Agent\nhelper = Agent()")) == snapshot("""\
app.py has no agent with a name, so there is nothing to host. It has `helper`, without a name. Write at module level:

    from outlast import Agent

    support = Agent("openai:gpt-4o", name="support")\
""")


def test_all_mistakes_of_all_agents_are_told_at_once() -> None:
    app = write("""
        import threading
        from outlast import Agent

        class Live:
            lock: threading.Lock

        a = Agent(name="a", deps_type=Live)
        b = Agent(name="b")
        c = Agent(name="b")
    """)
    message = mistake(app)
    assert "The deps of Agent(name='a') cannot live in a durable run" in message
    assert "Two agents have the name 'b': each needs one of its own." in message
