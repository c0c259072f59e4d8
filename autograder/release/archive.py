"""The zip: the same files give the same bytes, whenever and wherever it is made.

So members are in order, all have one date and no owner, and are stored as they are: what a
compressor makes of them depends on its version.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

NAME = "distributed-training"
TOP = f"{NAME}/"  # the folder that it unpacks to
# No date is earlier than 1980-01-01 in a zip. It is local time, so a day is left for other zones.
_DATE = (1980, 1, 2, 0, 0, 0)


def pack(files: Mapping[str, bytes]) -> bytes:
    """The archive of `{path below the top folder: content}`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(TOP + name, date_time=_DATE)
            member.create_system = 3  # Unix: the permissions mean something
            member.external_attr = 0o100644 << 16
            archive.writestr(member, content)
    return packed.getvalue()


def unpacked(archive: bytes) -> dict[str, bytes]:
    """What `pack` was given. Raises ValueError where something lies beside the top folder."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        names = opened.namelist()
        if strays := [name for name in names if not name.startswith(TOP)]:
            raise ValueError(f"{strays[0]} lies outside {TOP}")
        return {name.removeprefix(TOP): opened.read(name) for name in names}
