"""Text from a submission, made fit to show: cut, and rid of what terminals and browsers obey.

Whatever a submission prints, raises or names goes through `safe` before it reaches a terminal,
a report or Gradescope. HTML is escaped by the page's template, Markdown is fenced here.
"""

from __future__ import annotations

import re
import unicodedata

LEFT_OUT = "[… some lines left out …]"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Control sequences of terminals, 7-bit and 8-bit forms: colours and cursor moves (CSI), then the
# strings that set titles, links and the clipboard (OSC, DCS, SOS, PM, APC), then two-byte escapes.
# The possessive quantifiers and the excluded introducers keep this linear on hostile input.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])"
    r"[^\x07\n\r\x1b\x90\x98\x9b\x9c\x9d\x9e\x9f]*+(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*+[0-OQ-WYZ\\`-~]"
)
_LINE_ENDS = re.compile("\r\n|[\r\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}]")

# Invisible although Unicode calls them letters or marks (every other invisible one is category C).
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")


class _Shown(dict[int, str]):
    """What each character is shown as. Nothing is stored: a submission may print all of Unicode."""

    def __missing__(self, code: int) -> str:
        if 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            return ""  # variation selectors: part of many emoji, and a place to hide text
        character = chr(code)
        if unicodedata.category(character).startswith("C") or character in _INVISIBLE:
            return REPLACEMENT
        return character


_SHOWN = _Shown({ord("\n"): "\n", ord("\t"): "\t"})


def safe(text: str | bytes, lines: int = 200, width: int = 500) -> str:
    """`text` as at most `lines` lines of at most `width` characters, all of them visible.

    Bytes are read as UTF-8. Terminal sequences go; control, bidirectional, zero-width, private and
    unassigned characters become U+FFFD. Of a long text the beginning and the end stay, since a
    traceback's last line says the most. `safe(safe(x)) == safe(x)`.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    half = 2 * lines * width
    if len(text) > 2 * half:
        text = f"{text[:half]}\n{LEFT_OUT}\n{text[-half:]}"
    text = _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text)).translate(_SHOWN)
    shown = text.split("\n")
    if len(shown) > lines:
        head = lines // 2
        shown = [*shown[:head], LEFT_OUT, *shown[len(shown) - (lines - head - 1) :]]
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in shown)


def cell(text: str) -> str:
    """`text` for a table: spreadsheets take what begins like a formula for one."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def safe_line(text: str | bytes, width: int = 120) -> str:
    """`text` on one line: for names of files, titles and cells of tables."""
    line = " ".join(safe(text, lines=5, width=width).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def fenced_markdown(text: str | bytes) -> str:
    """`text`, made safe, as a Markdown code block that nothing within it can close."""
    shown = safe(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}\n"
