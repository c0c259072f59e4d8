# Has a module of ten gigabytes that takes no room.
#
# unconfined: yes
# earns: all
# ci: yes

def make(at, files):
    for name, content in files.items():
        (at / name).write_bytes(content)
    with (at / "more.py").open("wb") as file:
        file.truncate(10 << 30)
    return at
