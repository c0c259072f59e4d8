# Begins like an archive, and goes on as noise.
#
# unconfined: yes

import random

def make(at, files):
    packed = at / "noise.tar.gz"
    packed.write_bytes(b"\x1f\x8b\x08" + random.Random(1).randbytes(1 << 20))
    return packed
