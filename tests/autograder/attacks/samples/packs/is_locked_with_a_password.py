# Is a zip that a password protects.
#
# unconfined: yes
# says: password

def make(at, files):
    packed = at / "locked.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    raw = bytearray(packed.read_bytes())
    place = -1
    while (place := raw.find(b"PK\x01\x02", place + 1)) >= 0:
        raw[place + 8] |= 1
    packed.write_bytes(raw)
    return packed
