"""A canvas for SVG: what all figures draw with. Lengths are pixels, of which a page has 640."""

from __future__ import annotations

from html import escape

FAMILY = "Handout Sans, Helvetica, Arial, sans-serif"
WIDTH = 640.0  # of a figure as wide as the text, so that 12 pixels are 8.8 points
DARK, MIDDLE, LIGHT, PALE, RULE = "#2b3a4a", "#7d93a8", "#c3d3e0", "#eef2f5", "#999999"


class Canvas:
    """Collects shapes; `svg` gives the picture."""

    def __init__(self, height: float, width: float = WIDTH) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, fill: str = "#fff", line: str = "#555"
    ) -> None:
        """A rectangle; fill may be "hatch"."""
        fill = "url(#hatch)" if fill == "hatch" else fill
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{fill}" '
            f'stroke="{line}" stroke-width="0.7"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 12,
        at: str = "start",
        bold: bool = False,
        color: str = "#222",
        over: bool = False,
    ) -> None:
        """Words whose foot is at y. at: "start", "middle" or "end"; over: lines lie under them."""
        weight = ' font-weight="bold"' if bold else ""
        halo = ' stroke="#fff" stroke-width="3" paint-order="stroke"' if over else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{at}" '
            f'fill="{color}"{weight}{halo}>{escape(words)}</text>'
        )

    def cell(self, x: float, y: float, w: float, h: float, words: str, fill: str = "#fff") -> None:
        """A box with words in the middle, light on dark."""
        self.box(x, y, w, h, fill)
        dark = fill in (DARK, MIDDLE)
        size = min(11.5, 1.75 * w / max(len(words), 1))
        color = "#fff" if dark else "#111"
        self.text(x + w / 2, y + h / 2 + 4, words, size=size, at="middle", color=color)

    def line(
        self,
        x: float,
        y: float,
        to_x: float,
        to_y: float,
        *,
        color: str = "#333",
        width: float = 1.0,
        dashes: str = "",
        arrow: bool = False,
    ) -> None:
        """A line, or an arrow."""
        more = f' stroke-dasharray="{dashes}"' if dashes else ""
        more += ' marker-end="url(#arrow)"' if arrow else ""
        self._parts.append(
            f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" fill="none" stroke="{color}" '
            f'stroke-width="{width:g}"{more}/>'
        )

    def path(self, points: list[tuple[float, float]], dashes: str = "", width: float = 1.6) -> None:
        """Lines from point to point."""
        more = f' stroke-dasharray="{dashes}"' if dashes else ""
        d = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._parts.append(
            f'<path d="M{d}" fill="none" stroke="#222" stroke-width="{width:g}"{more}/>'
        )

    def mark(self, x: float, y: float, shape: str, size: float = 4.0) -> None:
        """A small sign: one of "o", "x", "s" (square), "t" (triangle), "d" (diamond), "."."""
        r = size
        shapes = {
            "s": f"M{x - r} {y - r}h{2 * r}v{2 * r}h{-2 * r}z",
            "t": f"M{x} {y - r}L{x + r} {y + r}L{x - r} {y + r}z",
            "d": f"M{x} {y - r}L{x + r} {y}L{x} {y + r}L{x - r} {y}z",
            "x": f"M{x - r} {y - r}L{x + r} {y + r}M{x - r} {y + r}L{x + r} {y - r}",
        }
        if shape in shapes:
            self._parts.append(
                f'<path d="{shapes[shape]}" fill="#fff" stroke="#222" stroke-width="1.2"/>'
            )
        else:
            fill = "#222" if shape == "." else "#fff"
            self._parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" fill="{fill}" stroke="#222" '
                'stroke-width="1.2"/>'
            )

    def svg(self) -> str:
        """The picture."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            f'font-family="{FAMILY}">\n<defs>'
            '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="5" height="5" fill="#fff"/>'
            '<rect width="1.6" height="5" fill="#555"/></pattern>'
            '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
            'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
            '<path d="M0 .8L8 4L0 7.2z" fill="#333"/></marker></defs>\n'
            f'<rect width="{self.width:.0f}" height="{self.height:.0f}" fill="#fff"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )
