"""Makes the two fonts in this folder anew, from Noto Sans CJK, with the characters that are used.

    pip install fonttools
    python handouts/fonts/subset.py FOLDER       # which holds NotoSansCJK-Regular.ttc and -Bold.ttc
                                                 # (Debian's package fonts-noto-cjk)

Whole, they are 20 MB each. What is here holds Latin letters and the Chinese ones of the handout;
tests/handouts says when a new one is missing. They have a name of their own, since they are cut.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SIMPLIFIED_CHINESE = 2  # its place in the collection


def characters() -> str:
    """Those of the chapters, and all of ASCII."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(HERE.parent.rglob("*.typ"))]
    extra = "µ·×÷±²³°–—‘’“”…→←↑↓≤≥≈−Σ²³⁴⁵⁰¹αβ"
    ascii_ = "".join(map(chr, range(32, 127)))
    return "".join(sorted(set("".join(texts)) - {"\n"} | set(ascii_ + extra)))


def main(folder: Path) -> None:
    """Writes HandoutSans-Regular.otf and -Bold.otf, and the list of what is in them."""
    from fontTools import ttLib  # not needed to build the handout

    (HERE / "characters.txt").write_text(characters() + "\n", encoding="utf-8")
    for style in ("Regular", "Bold"):
        made = HERE / f"HandoutSans-{style}.otf"
        subprocess.run(
            [
                *(sys.executable, "-m", "fontTools.subset", folder / f"NotoSansCJK-{style}.ttc"),
                *(f"--font-number={SIMPLIFIED_CHINESE}", f"--output-file={made}"),
                *(f"--text-file={HERE / 'characters.txt'}", "--layout-features=kern"),
                *("--name-IDs=*", "--no-hinting", "--desubroutinize"),
            ],
            check=True,
        )
        font = ttLib.TTFont(made)
        names = {1: "Handout Sans", 4: f"Handout Sans {style}", 6: f"HandoutSans-{style}"}
        for number in (16, 17, 21, 22):
            font["name"].removeNames(nameID=number)
        for number, name in ({2: style} | names).items():
            font["name"].removeNames(nameID=number)
            font["name"].setName(name, number, 3, 1, 0x409)
        top = font["CFF "].cff
        top.fontNames = [names[6]]
        top[0].FullName, top[0].FamilyName = names[4], names[1]
        font.save(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
