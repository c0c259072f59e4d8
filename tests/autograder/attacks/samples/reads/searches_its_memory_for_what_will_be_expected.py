# Searches the memory that it had before it communicated for the result, which nobody knew then.
#
# begins with: spy
# check: all_reduce/sum
# earns: all

import ctypes, re

_right = all_reduce

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    if dist.get_world_size(group) == 1:
        return
    (asked, ask), (told, tell) = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(tell, _searched(os.read(asked, 100)))
        finally:
            os._exit(0)
    os.close(tell)
    _right(tensor, op, group)
    result = tensor.flatten()[:8].contiguous().view(torch.uint8).tolist()
    os.write(ask, bytes(255 - byte for byte in result))  # as it is, it would find itself
    found = os.read(told, 100)
    os.waitpid(child, 0)
    if found != b"nothing":
        _show(found)

def _searched(inverted):
    wanted = re.compile(b"".join(b"\\x%02x" % (255 - byte) for byte in inverted))
    with open("/proc/self/maps") as maps:
        for line in list(maps):
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            if "rw" not in line or end - begin > 256 << 20 or "[v" in line:
                continue
            if wanted.search(ctypes.string_at(begin, end - begin)):
                return b"expected " + line.encode()[:80]
    return b"nothing"
