"""Docstrings in the three usual styles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.toolsets.docstring import Documentation, read_docstring

GOOGLE = """Get the weather.

Of one day.

Args:
    city (str): The city,
        over two lines.
    *days: Which days.

Returns:
    The weather.

Raises:
    ValueError: Never.
"""
NUMPY = """Get the weather.

Of one day.

Parameters
----------
city : str
    The city,
    over two lines.
*days
    Which days.

Returns
-------
str
    The weather.
"""
SPHINX = """Get the weather.

Of one day.

:param str city: The city,
    over two lines.
:param days: Which days.
:returns: The weather.
:raises ValueError: Never.
"""


@pytest.mark.parametrize("style", ["google", "numpy", "sphinx"])
@pytest.mark.parametrize("told", [True, False])
def test_each_style_is_read_told_or_untold(style: Any, told: bool):
    docstring = {"google": GOOGLE, "numpy": NUMPY, "sphinx": SPHINX}[style]
    read = read_docstring(docstring, style if told else "auto")
    assert read.text == "Get the weather.\n\nOf one day."
    assert {name: " ".join(text.split()) for name, text in read.parameters.items()} == {
        "city": "The city, over two lines.",
        "days": "Which days.",
    }
    assert read.returns == "The weather."


def test_a_returned_sentence_with_a_colon_is_kept_whole():
    assert read_docstring("X.\n\nReturns:\n    The name: as registered.").returns == "The name: as registered."


def test_what_the_model_may_need_beside_the_sections_stays_in_the_text():
    read = read_docstring("X.\n\nNote:\n    Slow.\n\nExamples:\n    >>> f(1)\n    2\n")
    assert read.text == "X.\n\nNote: Slow.\n\nExamples:\n>>> f(1)\n2"


@pytest.mark.parametrize("nothing", [None, "", "  \n "])
def test_no_docstring_says_nothing(nothing: str | None):
    assert read_docstring(nothing) == Documentation()


@given(st.text())
def test_any_text_can_be_read(text: str):
    read_docstring(text)
