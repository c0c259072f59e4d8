# Nests its answer deeper than any stack.
#
# unconfined: yes
# says: no answer | exit

import os
import stat
import time

def barrier(group=None):
    answer = b'{"result": ' + b'["list",' * 300_000 + b"1" + b"]" * 300_000 + b"}"
    for descriptor in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.set_blocking(descriptor, True)
                os.write(descriptor, len(answer).to_bytes(8, "big") + answer)
                break
        except OSError:
            pass
    time.sleep(1)
    os._exit(0)
