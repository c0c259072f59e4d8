"""Panels drawn as SVG, one below the other, on the same axis.

What stands for time is given in percent of the plot's width, so that a page can stretch it without
distorting anything. Kinds differ in lightness and pattern as well as in hue: they can be told apart
in grey, on a projector, and by the colour-blind. Labels are drawn where they fit; the title of
each thing has its label in the first line, and what else there is to say below.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from .layout import Lane, Layout, Shape, lay_out
from .panel import PART, Panel
from .words import duration, letters, nbytes_text, ticks

NAMES, PLOT = 132, 1000  # px: widths of the ranks' names, and of the plot
LETTER, INDENT = 6.8, 6  # px: of a label's letter, about, and before a label
CROWD = 150  # arrows; more of them are drawn faintly
DOWN = 13  # px, from the top of a thing to the foot of its label
_BAR, _GAP = 18, 8  # px: heights of a bar, and between lanes
_ROOM = 98.5  # percent of the plot that the longest panel takes
MOST_ZOOM = 64  # times that a page stretches the plot
_KEY = "\ue000"  # the drawing's key, while it is drawn: no text of a program holds this
_BRIEF = 0.25 / MOST_ZOOM  # px: what is shorter may be drawn together with its neighbours

# By kind: its class, and what the legend says.
_LEGEND = {
    "own": ("o", "the rank's own code"),
    "compute": ("c", "declared compute"),
    "wait": ("w", "waits"),
    "for ever": ("v", "waits, and was not seen to end"),
    "send": ("s", "send"),
    "receive": ("r", "receive"),
    "collective": ("l", "collective"),
    "several": ("m", "several, too short to tell apart"),
    "span": ("b", "block"),
    "message": ("a", "message"),
    "point": ("p", "mark"),
    "dropped": ("", "handle dropped, not seen complete"),
}

_RULES = """
text{font:12px Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#000}
.h{font-size:16px;font-weight:bold}
.n{font-size:14px;font-weight:bold}
.f{fill:#333}
.e{font-weight:bold;fill:#8f1000}
.g{stroke:#cfcfcf}
.z{fill:#f2f2f2}
.o{fill:#fff;stroke:#999}
.c{fill:#26303d;stroke:#26303d;stroke-width:.5}
.w{fill:url(#KEYw);stroke:#555;stroke-width:.5}
.v{fill:url(#KEYv);stroke:#8f1000}
.s{fill:#e8a317;stroke:#7a5200;stroke-width:.5}
.r{fill:#cfe6f5;stroke:#2a5f86;stroke-width:.7}
.l{fill:#1f6fb0;stroke:#123f66;stroke-width:.5}
.m{fill:#a8a8a8;stroke:#666;stroke-width:.5}
.b{fill:none;stroke:#444}
.p{fill:none;pointer-events:all}
.tc,#KEY .tl{fill:#fff}
.tw,#KEY .tv{paint-order:stroke;stroke:#fff;stroke-width:5px;stroke-linejoin:round}
.a line{stroke:#000;marker-end:url(#KEYa)}
.crowd line{stroke-width:.5;stroke-opacity:.3;marker-end:none}
"""

_DEFINITIONS = """<defs>
<pattern id="KEYw" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="5" height="5" fill="#fff"/><rect width="1.2" height="5" fill="#777"/></pattern>
<pattern id="KEYv" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="5" height="5" fill="#fff"/><path d="M0 0H5M0 0V5" stroke="#8f1000" stroke-width="2"/>
</pattern>
<marker id="KEYa" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"
 markerUnits="userSpaceOnUse" orient="auto"><path d="M0 .8L8 4L0 7.2z"/></marker>
<path id="KEYp" d="M0 0L5 4L0 8z"/>
<path id="KEYt" d="M1 -1l-5 5 5 5 -5 5 5 5" fill="none" stroke="#fff" stroke-width="4"/>
<path id="KEYx" d="M3 5l8 8M11 5l-8 8" stroke="#8f1000" stroke-width="2.5"/>
</defs>
"""


@dataclass(frozen=True)
class Drawing:
    """A picture in two parts, which stand side by side.

    Attributes:
        names, plot: SVG elements; of `NAMES` px width, and of any.
        height: px.
        key: the id of whatever holds both parts.
        title: what it shows, in words.
    """

    names: str
    plot: str
    height: int
    key: str
    title: str

    @property
    def style(self) -> str:
        """The rules that it is drawn by, for within what has the key as its id."""
        rules = _RULES.replace("KEY", self.key).strip().splitlines()
        return "\n".join(f"#{self.key} {rule}" for rule in rules)

    def svg(self) -> str:
        """Both parts as one document, which may stand in a page too."""
        width, height = NAMES + PLOT, self.height
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" id="{self.key}" role="img" '
            f'aria-label="{escape(self.title)}" '
            f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
            f"<style>\n{self.style}\n</style>\n"
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
            f'<svg width="{NAMES}" height="{height}">\n{self.names}</svg>\n'
            f'<svg x="{NAMES}" width="{PLOT}" height="{height}">\n{self.plot}</svg>\n</svg>\n'
        )


def draw(panels: Sequence[Panel], most: int) -> Drawing:
    """Draws panels, and at most `most` things in each."""
    pen = _Pen(max(panel.end for panel in panels) or 1e-9)
    for panel in panels:
        pen.panel(panel, most)
    pen.legend()
    names, plot = "".join(pen.names), "".join(pen.plot)
    key = f"t{zlib.crc32((names + plot).encode()):08x}"
    title = ", ".join(panel.title for panel in panels)
    defined = _DEFINITIONS.replace("KEY", key) + plot.replace(_KEY, key)
    return Drawing(names, defined, round(pen.y), key, title)


def shortened(label: str) -> Iterator[str]:
    """A label, and what is left of it where there is less and less room."""
    parts = label.split(PART)
    for count in range(len(parts), 0, -1):
        yield PART.join(parts[:count])
    name, arrow, partner = parts[0].partition(" → " if " → " in parts[0] else " ← ")
    if partner and name:
        yield f"{arrow.strip()} {partner}"


class _Pen:
    """Draws from top to bottom.

    Args:
        longest: seconds of the longest panel.
    """

    def __init__(self, longest: float) -> None:
        self.names: list[str] = []
        self.plot: list[str] = []
        self.y = 8.0
        self._scale = _ROOM / longest
        self._used: set[str] = set()
        self._labels: list[str] = []

    def panel(self, panel: Panel, most: int) -> None:
        """The next panel."""
        self.plot.append('<g class="panel">\n')
        self._head(panel)
        self._labels = []
        layout = lay_out(panel, _BRIEF / PLOT * 100 / self._scale, most)
        top, before = self.y, len(self.plot)
        rows = [self._lane(lane, panel) for lane in layout.lanes]
        self.plot[before:before] = [*self._bands(rows, top), *self._axis(panel, top)]
        self._arrows(layout, [tops for tops, _ in rows])
        self.plot += ['<g class="labels">\n', *self._labels, "</g>\n</g>\n"]
        self.y += 12

    def legend(self) -> None:
        """What the kinds look like that were drawn."""
        x = 1.0
        for kind in (kind for kind in _LEGEND if kind in self._used):
            style, told = _LEGEND[kind]
            width = 36 + len(told) * 6
            if x + width > PLOT:
                x, self.y = 1.0, self.y + 20
            y = f"{self.y + 7:g}"
            if kind == "message":
                sample = f'<g class="a"><line x1="{x:g}" y1="{y}" x2="{x + 24:g}" y2="{y}"/></g>'
            elif kind == "dropped":
                sample = f'<use href="#{_KEY}x" x="{x + 8:g}" y="{self.y - 2:g}"/>'
            elif kind == "point":
                sample = f'<use href="#{_KEY}p" x="{x + 20:g}" y="{self.y + 3:g}"/>'
            else:
                sample = f'<rect class="{style}" x="{x:g}" y="{self.y:g}" width="24" height="14"/>'
            self.plot.append(f'{sample}<text x="{x + 30:g}" y="{self.y + 11:g}">{told}</text>\n')
            x += width + 12
        self.y += 24

    def _percent(self, seconds: float) -> str:
        return f"{seconds * self._scale:.3f}".rstrip("0").rstrip(".") + "%"

    def _head(self, panel: Panel) -> None:
        count = panel.operations
        kind = "modelled time" if panel.modelled else "real time"
        facts = f"{panel.ranks} rank{'s' * (panel.ranks != 1)}, {count} operation"
        facts += f"{'s' * (count != 1)}, {duration(panel.end)} of {kind}"
        self.plot.append(f'<text class="h" y="{self.y + 15:g}">{escape(panel.title)}</text>\n')
        self.y += 34
        for line in (facts, *panel.notes):
            self.plot.append(f'<text class="f" y="{self.y:g}">{escape(line)}</text>\n')
            self.y += 16
        self.y -= 4

    def _bands(self, rows: Sequence[tuple[list[float], float]], top: float) -> Iterator[str]:
        """What the lanes lie on."""
        for _, bottom in rows:
            band = f'<rect class="z" y="{top:g}" width="100%" height="{bottom - top:g}"/>\n'
            self.names.insert(0, band)
            yield band
            top = bottom + _GAP

    def _axis(self, panel: Panel, top: float) -> Iterator[str]:
        """Lines at round moments, and below them their times."""
        y = self.y
        for moment, told in ticks(panel.end):
            x = self._percent(moment)
            yield f'<line class="g" x1="{x}" y1="{top:g}" x2="{x}" y2="{y + 2:g}"/>'
            anchor = ' text-anchor="middle"' if moment else ""
            yield f'<text class="f" x="{x}" y="{y + 15:g}"{anchor}>{told}</text>\n'
        self.y += 22

    def _lane(self, lane: Lane, panel: Panel) -> tuple[list[float], float]:
        """Draws a lane: where each of its rows of operations begins, and where the lane ends."""
        self.y += 3
        if lane.points:
            self._points(lane)
            self.y += _BAR - 2
        for row in lane.spans:
            for shape in row:
                self._shape(shape, panel.end)
            self.y += _BAR + 2
        own = self.y
        self._name(lane.rank, panel)
        self._used.add("own")
        end = self._percent(panel.end)
        self.plot.append(f'<rect class="o" y="{own:g}" width="{end}" height="{_BAR}"/>\n')
        tops = []
        for row in [lane.own, *lane.rows]:
            for shape in row:
                self._shape(shape, panel.end)
            tops.append(self.y)
            self.y += _BAR + 2
        if lane.rank in panel.endings:
            self.y = max(self.y, own + 2 * _BAR)
        bottom = self.y + 1
        self.y = bottom + _GAP
        return tops[1:], bottom

    def _name(self, rank: int, panel: Panel) -> None:
        self.names.append(f'<text class="n" x="6" y="{self.y + 14:g}">rank {rank}</text>\n')
        if told := panel.endings.get(rank):
            style = "f" if told == "finished" else "e"
            self.names.append(
                f'<text class="{style}" x="6" y="{self.y + 30:g}">{escape(told)}</text>\n'
            )

    def _points(self, lane: Lane) -> None:
        self._used.add("point")
        until = [point.time for point, _ in lane.points[1:]] + [100 / self._scale]
        for (point, count), end in zip(lane.points, until, strict=True):
            label = point.label if count == 1 else f"{count} marks{PART}{point.label}"
            x = self._percent(point.time)
            self.plot.append(f'<use href="#{_KEY}p" x="{x}" y="{self.y + 4:g}"/>')
            self._thing("p", point.time, end, label, f"at {duration(point.time)}")

    def _shape(self, shape: Shape, end: float) -> None:
        kind = "for ever" if shape.bar.open and shape.kind == "wait" else shape.kind
        self._used.add(kind)
        style, _ = _LEGEND[kind]
        told = (shape.bar.label, shape.bar.detail) if shape.count == 1 else _together(shape)
        self._thing(style, shape.start, shape.end, *told)
        if shape.bar.open:
            dropped = shape.bar.end < end
            if dropped:
                self._used.add("dropped")
            sign, x = "x" if dropped else "t", self._percent(shape.bar.end)
            self.plot.append(f'<use href="#{_KEY}{sign}" x="{x}" y="{self.y - (not dropped):g}"/>')

    def _thing(self, style: str, start: float, end: float, label: str, detail: str) -> None:
        """A rectangle, and as much of its label as there is room for."""
        x, width = self._percent(start), self._percent(end - start)
        self.plot.append(
            f'<rect class="{style}" x="{x}" y="{self.y:g}" width="{width}" height="{_BAR}">'
            f"<title>{escape(label)}\n{escape(detail)}</title></rect>\n"
        )
        room = (end - start) * self._scale / 100 * PLOT - INDENT - 3
        if fit := next((one for one in shortened(label) if letters(one) * LETTER <= room), None):
            self._labels.append(
                f'<text class="t{style}" x="{x}" dx="{INDENT}" y="{self.y + DOWN:g}">'
                f"{escape(fit)}</text>\n"
            )

    def _arrows(self, layout: Layout, tops: Sequence[Sequence[float]]) -> None:
        if not layout.arrows:
            return
        self._used.add("message")
        crowd = " crowd" if len(layout.arrows) > CROWD else ""
        self.plot.append(f'<g class="a{crowd}">\n')
        for arrow, sent, received, count in layout.arrows:
            start, end = tops[arrow.sent.rank][sent], tops[arrow.received.rank][received]
            down = end > start
            detail = arrow.detail if count == 1 else f"{count} messages"
            self.plot.append(
                f'<line x1="{self._percent(arrow.start)}" y1="{start + _BAR * down:g}" '
                f'x2="{self._percent(arrow.end)}" y2="{end + _BAR * (not down):g}">'
                f"<title>{escape(detail)}</title></line>\n"
            )
        self.plot.append("</g>\n")


def _together(shape: Shape) -> tuple[str, str]:
    """Label and detail of several bars."""
    kind = {"several": "thing", "span": "block"}.get(shape.kind, shape.kind)
    label = f"{shape.count} {kind}s"
    if shape.nbytes:
        label += f"{PART}{nbytes_text(shape.nbytes)} in all"
    return label, f"{duration(shape.end - shape.start)}, at {duration(shape.start)}"
