"""What a function's docstring says about it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import griffe

__all__ = ("DocstringFormat", "Documentation", "read_docstring")

DocstringFormat: TypeAlias = Literal["google", "numpy", "sphinx", "auto"]

_SPHINX = re.compile(r"^[ \t]*:(param|parameter|arg|argument|type|returns?|rtype|raises?)\b[^:\n]*:", re.MULTILINE)
_NUMPY = re.compile(
    r"^[ \t]*(Parameters|Other Parameters|Returns|Yields|Raises)[ \t]*\n[ \t]*-{3,}[ \t]*$", re.MULTILINE
)


@dataclass(frozen=True)
class Documentation:
    """A docstring, taken apart.

    Attributes:
        text: Everything but the sections, or None.
        parameters: Descriptions by the parameter's name, without the stars of `*args` and `**kwargs`.
        returns: What the function returns, in words, or None.
    """

    text: str | None = None
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    returns: str | None = None

    @property
    def description(self) -> str | None:
        """What a model should read: the text, and what comes back."""
        if self.returns is None:
            return self.text
        returns = f"Returns: {self.returns}"
        return f"{self.text}\n\n{returns}" if self.text else returns


def read_docstring(docstring: str | None, style: DocstringFormat = "auto") -> Documentation:
    """Takes a docstring apart.

    Args:
        docstring: With its indentation already removed, as `inspect.getdoc` gives it.
        style: `auto` finds out by itself.
    """
    if not docstring or not docstring.strip():
        return Documentation()
    texts: list[str] = []
    parameters: dict[str, str] = {}
    returns: str | None = None
    for section in _sections(docstring, _style_of(docstring) if style == "auto" else style):
        value: Any = section.value
        match section.kind.value:
            case "text":
                texts.append(value)
            case "parameters" | "other parameters":
                for each in value:
                    parameters[each.name.lstrip("*")] = each.description.strip()
            case "returns":
                returns = " ".join(filter(None, map(_returned, value))) or None
            case "examples":
                texts.append(_examples(section))
            case "admonition":
                texts.append(f"{section.title}: {value.description}" if section.title else value.description)
            case _:
                pass  # What a function raises or yields is not the model's concern.
    text = "\n\n".join(part.strip() for part in texts if part.strip())
    return Documentation(text or None, {name: text for name, text in parameters.items() if text}, returns)


def _style_of(docstring: str) -> Literal["google", "numpy", "sphinx"]:
    # Telling the three apart by their section marks costs 2 µs; parsing with all of them costs 300.
    if _SPHINX.search(docstring):
        return "sphinx"
    return "numpy" if _NUMPY.search(docstring) else "google"


def _sections(docstring: str, style: Literal["google", "numpy", "sphinx"]) -> list[griffe.DocstringSection]:
    # Imported here: it is slow to import, and workflows import this room without ever reading a docstring.
    import griffe

    parsed = griffe.Docstring(docstring)
    match style:
        case "google":
            return griffe.parse_google(parsed, warnings=False, returns_named_value=False)
        case "numpy":
            return griffe.parse_numpy(parsed, warnings=False)
        case "sphinx":
            return griffe.parse_sphinx(parsed, warnings=False)


def _returned(value: Any) -> str:
    description: str = (value.description or "").strip()
    # "The name: as it is in the register." is a sentence, whose start Google's style takes for a type.
    if isinstance(value.annotation, str) and " " in value.annotation and "[" not in value.annotation:
        return f"{value.annotation}: {description}"
    return description


def _examples(section: griffe.DocstringSection) -> str:
    lines = [text for _, text in section.value]
    return "\n".join([f"{section.title or 'Examples'}:", *lines])
