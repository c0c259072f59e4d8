# Has lines that end as on Windows, and a byte-order mark.
#
# check: broadcast/from_rank_0, broadcast/layouts

def make(at, files):
    for name, content in files.items():
        (at / name).write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    return at
