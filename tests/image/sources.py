"""Where this machine's pip finds packages, for a build in a container: `... PIP_CONF`.

Writes a configuration for the build, and prints the options that let buildah see it and what it
names, one a line. They hold for one build alone and leave nothing in the image.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

IN_THE_BUILD = "/etc/pip.conf"
_SETTING = re.compile(r"^(?:global|:env:)\.([\w-]+)=(['\"])(.*)\2$")


def settings() -> dict[str, str]:
    """pip's own answer; what the environment says holds over files."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found = [match for line in told.splitlines() if (match := _SETTING.match(line))]
    found.sort(key=lambda match: match[0].startswith(":env:"))
    return {match[1]: match[3].replace("\\n", " ") for match in found}


def paths(settings: dict[str, str]) -> list[str]:
    """Files and folders of this machine that the settings name."""
    words = [word.removeprefix("file://") for text in settings.values() for word in text.split()]
    there = [word for word in words if word.startswith("/") and Path(word).exists()]
    # An index made of files may point beside itself.
    return sorted(
        {str(Path(word).parent if Path(word).name == "simple" else word) for word in there}
    )


def main() -> None:
    config = Path(sys.argv[1])
    found = settings()
    parser = configparser.ConfigParser(interpolation=None)
    parser["global"] = {
        name: text for name, text in found.items() if name != "disable-pip-version-check"
    }
    with config.open("w") as file:
        parser.write(file)
    for path, inside in [(str(config), IN_THE_BUILD), *((path, path) for path in paths(found))]:
        print(f"--volume={path}:{inside}:ro")


if __name__ == "__main__":
    main()
