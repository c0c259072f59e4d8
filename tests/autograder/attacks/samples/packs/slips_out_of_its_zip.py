# Slips out of its zip.
#
# earns: all
# unconfined: yes

def make(at, files):
    """A zip whose members lead out of it, and a link in it."""
    packed = at / "slip.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr("../../../tmp/hostile-slip", "out")
        archive.writestr("/tmp/hostile-slip", "out")
        link = zipfile.ZipInfo("more.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return packed
