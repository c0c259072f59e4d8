# Holds devices, pipes and links in a tar.
#
# earns: all
# unconfined: yes

def make(at, files):
    """A tar with a device, a pipe and links among the modules."""
    packed = at / "devices.tar"
    with tarfile.open(packed, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, kind in (
            ("pipe.py", tarfile.FIFOTYPE),
            ("disk.py", tarfile.BLKTYPE),
            ("hard.py", tarfile.LNKTYPE),
            ("soft.py", tarfile.SYMTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/shadow"
            archive.addfile(member)
    return packed
