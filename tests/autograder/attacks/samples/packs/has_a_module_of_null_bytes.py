# Has null bytes, lone surrogates and no end of line.
#
# unconfined: yes

def make(at, files):
    for name, content in files.items():
        (at / name).write_bytes(content)
    (at / "collectives.py").write_bytes(files["collectives.py"] + b"\n\x00\xed\xa0\x80")
    return at
