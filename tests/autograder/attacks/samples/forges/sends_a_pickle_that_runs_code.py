# Sends a pickle that runs code.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import pickle
    class Evil:
        def __reduce__(self):
            return (print, ("BREACH: unpickled",))
    payload = pickle.dumps(Evil())
    for descriptor in range(3, 256):
        try:
            os.write(descriptor, len(payload).to_bytes(8, "big") + payload)
        except OSError:
            pass
    time.sleep(1)
    os._exit(0)
