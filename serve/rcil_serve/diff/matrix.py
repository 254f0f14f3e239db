"""The matrix of transitions as an HTML table with shaded cells."""

from __future__ import annotations

from html import escape

import numpy as np

from rcil_serve.diff.findings import Findings, percent
from rcil_serve.diff.kinds import KINDS, SAME

DARKEST = 60
"""Percent of a kind's colour in a cell that holds its whole row, so that text on it can be read in light and dark."""


def matrix_table(found: Findings) -> list[str]:
    """A row for each class that the old model sees, in percent of the row; a column for each that the new one could."""
    of_old, of_new = found.matrix.sum(axis=1), found.matrix.sum(axis=0)
    seen = np.nonzero(of_old + of_new)[0].tolist()
    rows = [row for row in seen if of_old[row]]
    columns = [column for column in seen if found.names[column] not in found.removed]
    head = "".join(f'<th scope="col">{escape(found.names[column])}</th>' for column in columns)
    body = "".join(_row(found, row, columns) for row in rows)
    unseen = len(found.names) - len(seen)
    note = "Where the pixels of each class of the old model went, in percent; rows are the old model, columns the new."
    more = f" {unseen} classes that neither model sees are left out." if unseen else ""
    return [
        f'<p class="note">{note}{more}</p>',
        '<div class="scroll" tabindex="0"><table class="matrix">',
        f'<thead><tr><th scope="col">old ↓ new →</th>{head}<th scope="col">of all pixels</th></tr></thead>',
        f"<tbody>{body}</tbody></table></div>",
    ]


def _row(found: Findings, row: int, columns: list[int]) -> str:
    whole = int(found.matrix[row].sum())
    cells = "".join(_cell(found, row, column, whole) for column in columns)
    return f'<tr><th scope="row">{escape(found.names[row])}</th>{cells}<td>{percent(whole / found.pixels)}</td></tr>'


def _cell(found: Findings, row: int, column: int, whole: int) -> str:
    pixels = int(found.matrix[row, column])
    if not pixels:
        return "<td>–</td>"
    share, kind = pixels / whole, KINDS[found.kinds[row, column]]
    red, green, blue = kind.colour
    strength = DARKEST * share if found.kinds[row, column] == SAME else DARKEST * share**0.5
    text = f"{100 * share:.1f}" if share >= 0.0005 else "<0.1"
    return (
        f'<td style="background: rgb({red} {green} {blue} / {strength:.0f}%)" '
        f'title="{kind.name}: {pixels} pixels">{escape(text)}</td>'
    )
