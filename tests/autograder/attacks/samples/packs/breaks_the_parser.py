# Breaks the parser.
#
# unconfined: yes

def make(at, files):
    """Source that breaks parsers: very deep, and very long."""
    for name, content in files.items():
        (at / name).write_bytes(content)
    (at / "collectives.py").write_text("x = " + "(" * 90_000 + ")" * 90_000 + "\n")
    return at
