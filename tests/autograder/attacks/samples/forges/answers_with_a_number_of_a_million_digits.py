# Answers with a number of a million digits.
#
# unconfined: yes
# says: more than 64 bits

ANSWER = b'{"result": {"outputs": {"entered": ["list", ["int", "0x' + b"f" * 1_000_000 + b'"]]}, "replaced": ["list"]}}'

import os
import stat
import time


def barrier(group=None):
    for descriptor in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.set_blocking(descriptor, True)
                os.write(descriptor, len(ANSWER).to_bytes(8, "big") + ANSWER)
                break
        except OSError:
            pass
    time.sleep(1)
    os._exit(0)
