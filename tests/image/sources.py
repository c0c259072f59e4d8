"""Where this machine's pip finds packages, for a build in a container: `... FOLDER`.

Lays a pip configuration into the folder, with whatever of this machine it names mounted beside it.
The folder is for one build alone, which sees it as /mnt; nothing of it stays in the image.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

INSIDE = Path("/mnt")  # which every system has
_SETTING = re.compile(r"^(:env:|global)\.([\w-]+)=(['\"])(.*)\3$")
_PATH = re.compile(r"(?<![\w:/.])(?:file://)?(/[^\s,]+)")


def settings() -> dict[str, str]:
    """pip's own answer; what the environment says holds over files."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found = [match for line in told.splitlines() if (match := _SETTING.match(line))]
    found.sort(key=lambda match: match[1] == ":env:")
    return {match[2]: match[4].replace("\\n", " ") for match in found}


def paths(settings: dict[str, str]) -> list[Path]:
    """Files and folders of this machine that the settings name."""
    named = {match[1] for text in settings.values() for match in _PATH.finditer(text)}
    return sorted(Path(name) for name in named if Path(name).exists())


def lay(folder: Path) -> None:
    """Writes the configuration, and mounts what it names."""
    found = settings()
    for place, path in enumerate(paths(found)):
        # An index made of files points to files beside it.
        shown = path.parent if path.name == "simple" else path
        here = folder / str(place)
        if shown.is_dir():
            here.mkdir()
            subprocess.run(["mount", "--bind", "-o", "ro", str(shown), str(here)], check=True)
        else:
            here.write_bytes(shown.read_bytes())
        inside = INSIDE / str(place) / path.relative_to(shown)
        whole_path = re.compile(rf"{re.escape(str(path))}(?=[\s,]|$)")
        found = {name: whole_path.sub(str(inside), text) for name, text in found.items()}
    parser = configparser.ConfigParser(interpolation=None)
    parser["global"] = found
    with (folder / "pip.conf").open("w") as file:
        parser.write(file)


if __name__ == "__main__":
    lay(Path(sys.argv[1]))
