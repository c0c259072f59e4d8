# Logs, warns and measures.

import os, sys, time, signal
_right = barrier
import logging, warnings
logging.basicConfig(level=logging.DEBUG)
def barrier(group=None):
    logging.getLogger("mine").warning("in %s", os.getpid())
    warnings.warn("slow path", stacklevel=2)
    begin = time.perf_counter()
    _right(group)
    logging.info("took %.3f", time.perf_counter() - begin)
