"""A process that only runs libraries does without TVM's compiler, and may import it later all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

import autofuse

NETWORK = """net (float[4,8] x, bool[4,8] m) => (float[4,8] y, bool[4,8] b, float[4,3] v, int64[4,3] i)
    { n = Not (m) z = Sin (x) y = Where (n, x, z) b = And (n, m2)
      v, i = TopK <axis=-1> (y, k) }"""
CHILD = """
import sys
import numpy as np
import autofuse
model = autofuse.load(sys.argv[1])
session = autofuse.Session(sys.argv[1])
feeds = dict(np.load(sys.argv[2]))
results = model(feeds)
again = session.run(None, feeds)
assert "tvm" not in sys.modules, "the compiler was loaded to run a library"
prepared = model.prepared(feeds)
prepared.run()
kernels = model.count_kernels(feeds)
import tvm
from tvm.script import tirx
later = model(feeds)
fresh = autofuse.load(sys.argv[1])(feeds)
for other in (again, prepared.outputs(), later, fresh):
    for left, right in zip(results, other, strict=True):
        assert left.dtype == right.dtype and left.tobytes() == right.tobytes()
assert kernels == model.metadata.kernels
np.savez(sys.argv[3], *results)
"""


def test_a_library_runs_without_the_compiler(tmp_path: Path) -> None:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {NETWORK}')
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3]), "k"))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(32).reshape(4, 8) % 3 == 0, "m2"))
    model, library = tmp_path / "net.onnx", tmp_path / "net.so"
    onnx.save(made, model)
    autofuse.compile(model, library, database=str(tmp_path / "profile.db"), threads=1)
    random = np.random.default_rng(0)
    feeds = {"x": random.standard_normal((4, 8)).astype("float32"), "m": random.random((4, 8)) > 0.5}
    np.savez(tmp_path / "feeds.npz", **feeds)  # type: ignore[arg-type]
    arguments = [str(tmp_path / name) for name in ("net.so", "feeds.npz", "results.npz")]
    done = subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "results.npz") as file:
        y, b, v, i = (file[f"arr_{number}"] for number in range(4))
    expected = np.where(~feeds["m"], feeds["x"], np.sin(feeds["x"]))
    np.testing.assert_allclose(y, expected, atol=1e-6)
    assert b.dtype == bool and np.array_equal(b, ~feeds["m"] & (np.arange(32).reshape(4, 8) % 3 == 0))
    order = np.argsort(-expected, axis=1)[:, :3]
    np.testing.assert_allclose(v, np.take_along_axis(expected, order, 1), atol=1e-6)
    assert i.dtype == np.int64 and np.array_equal(i, order)
