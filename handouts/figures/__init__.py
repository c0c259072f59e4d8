"""The handout's figures: each module draws some, from real runs or from the reference's own code.

Nothing depends on colour alone: what differs differs in lightness, pattern or shape as well.
measured/ holds what shows measured times, as `python -m handouts.build --measure` found it.
"""

from __future__ import annotations

from pathlib import Path

MEASURED = Path(__file__).parent / "measured"
