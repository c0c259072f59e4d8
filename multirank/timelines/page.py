"""Panels as one page: nothing to load, and readable without its script, which only stretches it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from .panel import PART, Panel
from .svg import CROWD, DOWN, INDENT, LETTER, MOST_ZOOM, NAMES, PLOT, Drawing

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>$title</title>
<style>
body { margin: 0; padding: 16px 20px; background: #fff; color: #000;
  font: 14px/1.45 Helvetica, Arial, "DejaVu Sans", sans-serif; }
.chart { display: flex; }
.chart svg { display: block; flex: none; }
.scroll { flex: 1; min-width: 0; overflow-x: auto; }
.scroll svg { width: 100%; min-width: ${plot_width}px; }
.bar { margin-left: ${names_width}px; display: flex; gap: 6px; align-items: center; color: #444; }
[hidden] { display: none !important; }
button { font: inherit; min-width: 34px; padding: 2px 8px; }
pre { margin: 10px 0 0; padding: 10px 12px; border: 1px solid #999; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 13px/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
h2 { font-size: 15px; margin: 18px 0 0; }
$style
@page { size: landscape; margin: 10mm; }
@media print {
  body { padding: 0; }
  .bar { display: none; }
  .chart { zoom: .85; }
  .scroll { overflow: visible; }
  .scroll svg { width: ${plot_width}px !important; }
  pre { break-inside: avoid; }
}
</style>
</head>
<body>
<div class="bar" hidden>
<button id="out" title="narrower">&minus;</button>
<button id="in" title="wider">+</button>
<button id="all">all</button>
<span>Point at anything to read more about it.</span>
</div>
<div class="chart" id="$key">
<svg width="$names_width" height="$height">
$names</svg>
<div class="scroll">
<svg height="$height" role="img" aria-label="$title">
$plot</svg>
</div>
</div>
$stories<script>
const scroll = document.querySelector(".scroll"), plot = scroll.querySelector("svg");
let zoom = 1;
function shortened(label) {
  const parts = label.split("$part");
  return parts.map((_, i) => parts.slice(0, parts.length - i).join("$part"))
    .concat(parts[0].replace(/^.* (?=[→←] )/, ""));
}
function letters(text) {
  return text.replace(/[\\u{2e80}-\\u{10ffff}]/gu, "xx").length;
}
function fit() {
  for (const panel of plot.querySelectorAll(".panel")) {
    const labels = panel.querySelector(".labels"), texts = [];
    for (const title of panel.querySelectorAll("rect > title")) {
      const thing = title.parentNode, x = thing.getAttribute("x");
      const room = parseFloat(thing.getAttribute("width")) / 100 * plot.clientWidth - $indent - 3;
      if (room < $letter) continue;
      const all = shortened(title.textContent.split("\\n")[0]);
      const label = all.find((label) => letters(label) * $letter <= room);
      if (!label) continue;
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("class", "t" + thing.getAttribute("class"));
      text.setAttribute("x", x);
      text.setAttribute("dx", $indent);
      text.setAttribute("y", +thing.getAttribute("y") + $down);
      text.textContent = label;
      texts.push(text);
    }
    labels.replaceChildren(...texts);
    const arrows = panel.querySelector(".a");
    if (arrows) arrows.classList.toggle("crowd", arrows.childElementCount / zoom > $crowd);
  }
}
function stretch(factor) {
  const middle = (scroll.scrollLeft + scroll.clientWidth / 2) / plot.clientWidth;
  zoom = Math.min(Math.max(zoom * factor, 1), $most_zoom);
  plot.style.width = zoom * 100 + "%";
  fit();
  scroll.scrollLeft = middle * plot.clientWidth - scroll.clientWidth / 2;
}
document.querySelector(".bar").hidden = false;
document.getElementById("in").onclick = () => stretch(2);
document.getElementById("out").onclick = () => stretch(1 / 2);
document.getElementById("all").onclick = () => stretch(1 / $most_zoom);
addEventListener("resize", fit);
addEventListener("beforeprint", () => { plot.style.width = "${plot_width}px"; fit(); });
addEventListener("afterprint", () => stretch(1));
fit();
</script>
</body>
</html>
""")


def page(panels: Sequence[Panel], drawing: Drawing) -> str:
    """The page of panels that are drawn already; below them, what failed runs say of themselves."""
    stories = [
        (f"<h2>{escape(panel.title)}</h2>\n" if len(panels) > 1 else "")
        + f"<pre>{escape(panel.story)}</pre>\n"
        for panel in panels
        if panel.story
    ]
    return _PAGE.substitute(
        title=escape(drawing.title),
        style=drawing.style,
        key=drawing.key,
        height=drawing.height,
        names=drawing.names,
        plot=drawing.plot,
        stories="".join(stories),
        names_width=NAMES,
        plot_width=PLOT,
        indent=INDENT,
        letter=LETTER,
        down=DOWN,
        crowd=CROWD,
        part=PART,
        most_zoom=MOST_ZOOM,
    )
