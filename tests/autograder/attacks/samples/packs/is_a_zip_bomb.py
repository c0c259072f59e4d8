# Is a zip bomb.
#
# unconfined: yes

def make(at, files):
    """A zip of half a megabyte that holds half a gigabyte."""
    packed = at / "bomb.zip"
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("collectives.py", "w") as file,
    ):
        for _ in range(512):
            file.write(b"\0" * (1 << 20))
    return packed
