"""The comparison as one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rcil.core.files import write_file
from rcil.model.metadata import ClassInfo
from rcil.report.html import document
from rcil_serve.diff.findings import Findings, headline, percent
from rcil_serve.diff.tally import BadSecond, Shares
from rcil_serve.diff.transitions import KINDS, SAME
from rcil_serve.runtime.painter import BACKGROUND

MAX_STRENGTH = 60
"""Opacity in percent of a cell that holds its whole row; text on it stays readable in light and dark mode."""

MAX_TRANSITIONS = 12
OWN_STYLE = """
.headline { max-width: 60rem; margin: .6rem 0; font-size: 1.2rem; line-height: 1.4 }
.warning { border-left: 4px solid #d55e00; padding-left: .7rem }
.bar { display: flex; gap: 2px; height: 1.6rem; margin: .6rem 0 1rem; border-radius: 4px; overflow: hidden }
.bar > span { flex-basis: 0; min-width: 3px }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .45em; border-radius: 2px;
  outline: 1px solid var(--line) }
.key span.entry { display: inline-block; margin-right: 1.1rem; white-space: nowrap }
figure { margin: 1.1rem 0 }
figure img { width: 100% }
figcaption { margin-top: .3rem; font-variant-numeric: tabular-nums }
figcaption b { margin-right: .6rem }
.three { display: grid; grid-template-columns: repeat(3, 1fr); margin-bottom: .2rem; color: var(--dim);
  font-size: .85rem }
.matrix td { min-width: 2.4rem }
"""


def write_page(
    path: Path, found: Findings, classes: Sequence[ClassInfo], facts: Mapping[str, str], warnings: Sequence[str]
) -> None:
    """Write the page atomically.

    Args:
        path: The .html file.
        found: The results.
        classes: Classes of both models, for their colours.
        facts: What was compared, by title.
        warnings: Warnings at the top of the page.
    """
    write_file(path, as_html(found, classes, facts, warnings).encode(errors="replace"))


def as_html(found: Findings, classes: Sequence[ClassInfo], facts: Mapping[str, str], warnings: Sequence[str]) -> str:
    """The page as text."""
    body = [
        f'<p class="headline">{escape(headline(found))}</p>',
        *(f'<p class="warning">Warning: {escape(text)}.</p>' for text in warnings),
        *section(
            "What was compared", [table([], [(escape(name), escape(text)) for name, text in facts.items()], True)]
        ),
        *section("Kinds of change", [_bar(found), _kinds(found)]),
        *section("Worst seconds", _worst(found, classes)),
        *section("Over time", [_timeline(found)]),
        *section("From class to class", matrix_table(found)),
        *section("Largest changes", [_transitions(found)]),
    ]
    return document("What changed between two models", body, OWN_STYLE)


def section(title: str, parts: Sequence[str]) -> list[str]:
    """A section with a heading."""
    return ["<section>", f"<h2>{escape(title)}</h2>", *parts, "</section>"]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], prose: bool) -> str:
    """An HTML table. Cells are HTML; the first cell of a row is its header. `prose` aligns cells as text."""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table{" class=prose" if prose else ""}>'
        f"{f'<thead><tr>{head}</tr></thead>' if columns else ''}<tbody>{body}</tbody></table></div>"
    )


def image(data: bytes, form: str, alt: str) -> str:
    """An image that is embedded in the page."""
    return f'<img src="data:image/{form};base64,{base64.b64encode(data).decode("ascii")}" alt="{escape(alt)}">'


def swatch(colour: str) -> str:
    """A small square in this colour."""
    return f'<span class="swatch" style="background: {colour}"></span>'


def _bar(found: Findings) -> str:
    changed = max(1, found.by_kind[SAME + 1 :].sum())
    parts = [
        f'<span style="flex-grow: {100 * pixels / changed:.4f}; background: {kind.hex}" title="{kind.name}"></span>'
        for kind, pixels in zip(KINDS[SAME + 1 :], found.by_kind[SAME + 1 :], strict=True)
        if pixels
    ]
    return f'<div class="bar" role="img" aria-label="{escape(headline(found))}">{"".join(parts)}</div>' if parts else ""


def _kinds(found: Findings) -> str:
    rows = [
        (f"{swatch(kind.hex)}{kind.name}", percent(share), f"{pixels:,}".replace(",", "\u202f"), escape(kind.meaning))
        for kind, share, pixels in zip(KINDS, found.shares, found.by_kind.tolist(), strict=True)
    ]
    return table(("", "share", "pixels", "meaning"), [*rows[SAME + 1 :], rows[SAME]], True)


def _worst(found: Findings, classes: Sequence[ClassInfo]) -> list[str]:
    if not found.worst:
        return ["<p>No second in which a class of the old model became anything else.</p>"]
    seen = found.matrix.sum(axis=0) + found.matrix.sum(axis=1)
    shown = [c for row, c in enumerate(classes) if row != BACKGROUND and seen[row]]
    entries = [(c.name, "#{:02x}{:02x}{:02x}".format(*c.colour)) for c in shown]
    note = "Ranked by the share of forgotten pixels, then of swapped, lost and taken ones; shown is the worst frame."
    key = "".join(f'<span class="entry">{swatch(colour)}{escape(name)}</span>' for name, colour in entries)
    return [
        f'<p class="note">{note}</p>',
        f'<p class="key">{key}</p>',
        *(_figure(rank, bad) for rank, bad in enumerate(found.worst, 1)),
    ]


def _figure(rank: int, bad: BadSecond) -> str:
    where = f"frame {bad.frame} at {bad.time:.2f} s{f', {Path(bad.name).name}' if bad.name else ''}"
    text = f"{clock(bad.second)}: the old model, the new model and the changes in {where}"
    return (
        '<figure><div class="three"><span>old</span><span>new</span><span>changes</span></div>'
        f"{image(bad.picture, 'jpeg', text)}"
        f"<figcaption><b>{rank}. {clock(bad.second)}</b>{_listed(bad.shares)}"
        f'<br><span class="note">Worst: {escape(where)}: {_listed(bad.frame_shares)}</span></figcaption></figure>'
    )


def _listed(shares: Shares) -> str:
    changed = zip(KINDS[SAME + 1 :], shares[SAME + 1 :], strict=True)
    return ", ".join(f"{kind.name} {percent(share)}" for kind, share in changed if share > 0)


def _timeline(found: Findings) -> str:
    if not found.transitions:
        return "<p>No changes.</p>"
    return image(timeline_plot(found), "png", "Stacked shares of all kinds of change over time")


def _transitions(found: Findings) -> str:
    colours = {kind.name: kind.hex for kind in KINDS}
    rows = [
        (
            f"{escape(one.old)} → {escape(one.new)}",
            f"{swatch(colours[one.kind])}{one.kind}",
            percent(one.share),
            percent(one.share_of_old),
        )
        for one in found.transitions[:MAX_TRANSITIONS]
    ]
    return table(("", "kind", "of all pixels", "of the old class"), rows, True) if rows else "<p>No changes.</p>"


def clock(second: int) -> str:
    """Format 3725 as `1:02:05`."""
    hours, rest = divmod(second, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def matrix_table(found: Findings) -> list[str]:
    """A table with one row per class that the old model sees and one column per class of the new model, in percent."""
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
    strength = MAX_STRENGTH * share if found.kinds[row, column] == SAME else MAX_STRENGTH * share**0.5
    text = f"{100 * share:.1f}" if share >= 0.0005 else "<0.1"
    return (
        f'<td style="background: rgb({red} {green} {blue} / {strength:.0f}%)" '
        f'title="{kind.name}: {pixels} pixels">{escape(text)}</td>'
    )


def timeline_plot(found: Findings) -> bytes:
    """Plot the shares of all kinds of change, stacked over time, as a PNG. There must be at least one change."""
    from rcil.report.plots import as_png, make_figure

    times, shares = steps(found.times, found.curves, found.step_seconds)
    shown = [row for row in range(SAME + 1, len(KINDS)) if found.by_kind[row]]
    figure = make_figure((9.0, 3.4))
    axes = figure.add_subplot()
    axes.stackplot(
        times,
        100 * shares[:, shown].T,
        colors=[KINDS[row].hex for row in shown],
        labels=[KINDS[row].name for row in shown],
        step="post",
        linewidth=0,
    )
    axes.set(xlabel="seconds of the source", ylabel="share of the pixels, %", ylim=(0, None))
    axes.set_xlim(times[0], times[-1])
    axes.grid(color="#E3E6E9", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9)
    return as_png(figure)


def steps(
    times: NDArray[np.float64], shares: NDArray[np.float64], seconds: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of a curve that is constant within each time step, and zero where the source has no frames.

    Args:
        times: Start of each time step that has frames [steps].
        shares: Shares in each of them [steps, kinds].
        seconds: Length of a time step.
    """
    ends = times + seconds
    last = np.append(~np.isclose(ends[:-1], times[1:]), True)
    corners = np.concatenate([times, ends[last]])
    values = np.concatenate([shares, np.zeros((int(last.sum()), shares.shape[1]))])
    order = np.argsort(corners, kind="stable")
    return corners[order], values[order]
