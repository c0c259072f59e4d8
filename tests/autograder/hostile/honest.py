"""Honest submissions that do unusual things, and must get full marks wherever they are graded."""

from __future__ import annotations

from tests.autograder.hostile.attacks import ALL, BARRIER, BROADCAST, Attack, replaced

HONEST = [
    Attack(
        "prints much, in many scripts",
        replaced(
            r"""
            for line in range(2000):
                print("línea", line, "進捗", "🙂" * 20)
            print("no newline at the end", end="", file=sys.stderr)
            _right(group)
            """
        ),
        BARRIER,
        ALL,
        quick=True,
    ),
    Attack(
        "works in threads, and joins them",
        replaced(
            """
            import threading
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(4) as pool:
                assert sum(pool.map(abs, range(100))) == 4950
            results = []
            worker = threading.Thread(target=lambda: results.append(_right(tensor, src, group)))
            worker.start()
            worker.join()
            """,
            "broadcast",
        ),
        BROADCAST,
        ALL,
    ),
    Attack(
        "computes with numpy and subclasses of its own",
        replaced(
            """
            import numpy as np
            class Named(torch.Tensor):
                pass
            named = tensor.detach().clone().as_subclass(Named)
            assert np.isfinite(named.double().numpy()).all()
            _right(tensor, src, group)
            """,
            "broadcast",
        ),
        BROADCAST,
        ALL,
    ),
    Attack(
        "logs, warns and measures",
        replaced(
            """
            logging.getLogger("mine").warning("in %s", os.getpid())
            warnings.warn("slow path", stacklevel=2)
            begin = time.perf_counter()
            _right(group)
            logging.info("took %.3f", time.perf_counter() - begin)
            """,
            before="import logging, warnings\nlogging.basicConfig(level=logging.DEBUG)",
        ),
        BARRIER,
        ALL,
    ),
    Attack(
        "caches in globals, files and environment",
        replaced(
            """
            import tempfile, functools, json, pathlib
            _cache.setdefault("calls", []).append(time.time())
            with tempfile.NamedTemporaryFile("w+") as file:
                json.dump(_cache, file)
                file.flush()
                assert json.loads(pathlib.Path(file.name).read_text())["calls"]
            os.environ["MY_CACHE"] = "warm"
            _right(group)
            """,
            before="_cache = {}",
        ),
        BARRIER,
        ALL,
    ),
    Attack(
        "imports rare modules late, and handles signals and exits",
        replaced(
            """
            import asyncio, ctypes, decimal, multiprocessing, platform, uuid, xml.dom
            import torch.onnx
            asyncio.run(asyncio.sleep(0))
            platform.platform(), uuid.uuid4()
            signal.raise_signal(signal.SIGUSR2)
            os.kill(os.getpid(), 0)
            _right(group)
            """,
            before="""
            import atexit
            signal.signal(signal.SIGUSR2, lambda *_: None)
            atexit.register(print, "bye")
            """,
        ),
        BARRIER,
        ALL,
    ),
    Attack(
        "forks a helper, and waits for it",
        replaced(
            """
            reading, writing = os.pipe()
            helper = os.fork()
            if helper == 0:
                os.write(writing, b"done")
                os._exit(0)
            assert os.read(reading, 4) == b"done"
            assert os.waitpid(helper, 0)[1] == 0
            _right(group)
            """
        ),
        BARRIER,
        ALL,
    ),
]
