"""An extension of griffe: reads our `Example:` sections as the examples that they are."""

from __future__ import annotations

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Griffe knows `Examples:` only, and would take the prompts of an `Example:` for quotations."""

    def on_object(self, *, obj: griffe.Object, **others: Any) -> None:
        """Rename the section of one object."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
