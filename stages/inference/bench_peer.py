"""ONNX Runtime from Python, to compare with: one process, the same model, threads and batch, the same number of runs.

    python bench_peer.py MODEL.onnx BATCH THREADS RUNS

Prints one JSON line: images, wall seconds and CPU seconds of the measured runs (all threads of the process).
"""

import json
import resource
import sys
import time

import numpy as np
import onnxruntime


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    path, batch, threads, runs = sys.argv[1], *map(int, sys.argv[2:5])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    declared = session.get_inputs()[0]
    shape = [batch] + [size if isinstance(size, int) else 224 for size in declared.shape[1:]]
    image = np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for _ in range(3):
        session.run(None, {declared.name: image})
    wall, cpu = time.perf_counter(), cpu_seconds()
    for _ in range(runs):
        session.run(None, {declared.name: image})
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    print(json.dumps({"images": runs * batch, "wall_seconds": wall, "cpu_seconds": cpu}))


if __name__ == "__main__":
    main()
