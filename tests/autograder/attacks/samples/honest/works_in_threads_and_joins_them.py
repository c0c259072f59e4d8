# Works in threads, and joins them.
#
# check: broadcast/from_rank_0

import os, sys, time, signal
_right = broadcast

def broadcast(tensor, src, group=None):
    import threading
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(abs, range(100))) == 4950
    results = []
    worker = threading.Thread(target=lambda: results.append(_right(tensor, src, group)))
    worker.start()
    worker.join()
