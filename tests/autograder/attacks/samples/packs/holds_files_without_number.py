# Is a zip of thirty thousand files.
#
# unconfined: yes
# says: more than

def make(at, files):
    packed = at / "many.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for number in range(30_000):
            archive.writestr(f"{number}.txt", b"")
        for name, content in files.items():
            archive.writestr(name, content)
    return packed
