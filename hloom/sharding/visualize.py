"""Pictures of layouts: which device holds which part of an array of one or two dimensions."""

from __future__ import annotations

from hloom.errors import ArgumentError
from hloom.sharding.shardings import NamedSharding, Sharding

_COLOURS = (
    "#393b79",
    "#637939",
    "#8c6d31",
    "#843c39",
    "#7b4173",
    "#5254a3",
    "#8ca252",
    "#bd9e39",
    "#ad494a",
    "#a55194",
)


def visualize_sharding(
    shape, sharding: Sharding, *, use_color: bool = True, scale: float = 1.0, min_width: int = 9, max_width: int = 80,
    color_map=None,
) -> None:  # fmt: skip
    """Prints a box for each part of an array of this shape, with the devices that hold it.

    scale, min_width, max_width: of the boxes, in characters. color_map: a function of a number that returns a colour of
    rich's, by default hloom's. Raises ArgumentError for arrays of more than two dimensions.
    """
    # Saves start-up time: few programs draw, and rich takes 20 ms.
    from rich import console, style, table, text

    dims = tuple(shape)
    if not 0 < len(dims) <= 2:
        raise ArgumentError(
            "a picture of an array's parts", f"shape {dims}", "pass an array of one or two dimensions, such as x[0]"
        )
    rows = _boxes(dims, sharding)
    width = max(min_width, min(int(scale * 14), max_width // len(rows[0])), *(len(t) for row in rows for t in row))
    shown = table.Table(show_header=False, show_lines=True, padding=0, highlight=True, pad_edge=False)
    for _ in rows[0]:
        shown.add_column(justify="center", width=width)
    numbers = {name: k for k, name in enumerate(dict.fromkeys(t for row in rows for t in row))}
    for row in rows:
        cells = []
        for name in row:
            number, look = numbers[name], style.Style()
            if use_color:
                colour = _COLOURS[number % len(_COLOURS)] if color_map is None else color_map(number / len(numbers))
                look = style.Style(color="white", bgcolor=colour) if isinstance(colour, str) else colour
            cells.append(text.Text(name.center(width), style=look))
        shown.add_row(*cells)
    console.Console(no_color=not use_color).print(shown)


def _boxes(dims: tuple[int, ...], sharding: Sharding) -> list[list[str]]:
    """The devices of each part, in rows and columns; an array of one dimension is a row."""
    if not isinstance(sharding, NamedSharding):
        return [[_named(list(sharding.device_set))]]
    parts: dict[tuple[int, ...], list] = {}
    for device, index in zip(sharding.devices, sharding.indices(dims), strict=True):
        parts.setdefault(tuple(s.start or 0 for s in index), []).append(device)
    tops = sorted({place[0] for place in parts})
    if len(dims) == 1:
        return [[_named(parts[top,]) for top in tops]]
    lefts = sorted({place[1] for place in parts})
    return [[_named(parts[top, left]) for left in lefts] for top in tops]


def _named(devices: list) -> str:
    return f"{devices[0].kind.upper()} {','.join(str(d.id) for d in devices)}"


__all__ = ["visualize_sharding"]
