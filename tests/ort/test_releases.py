"""The oldest ONNX Runtime that takes our provider, and the newest: what is compiled here runs there, too.

Each is installed into a folder of its own in the user's cache (some 20 MB, once), without what it depends on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import platformdirs
import pytest

from autofuse.ort.provider.register import OLDEST
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, inputs_at, write
from tests.ort.compiled import changed, compiled, image, network, plain
from tests.segments.bodies import loop
from tests.segments.models import normal, pooled, written

pytestmark = [pytest.mark.ort, pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")]

PROGRAM = """
import json, sys
import numpy as np, onnxruntime
from pathlib import Path
folder, name = Path(sys.argv[1]), "AutofuseExecutionProvider"
inputs = dict(np.load(folder / "inputs.npz"))
onnxruntime.register_execution_provider_library(name, str(folder / "libautofuse_ort.so"))
devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
def run(model, feeds, threads=1, **options):
    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level, chosen.intra_op_num_threads = 4, threads
    chosen.add_provider_for_devices(devices[:1], options)
    try:
        session = onnxruntime.InferenceSession(str(folder / model), chosen)
        return [session.run(None, feeds)[0] for _ in range(3)][-1].tolist()
    except Exception as error:
        return str(error)
x = {"x": inputs["x"]}
print(json.dumps({
    "version": onnxruntime.__version__,
    "whole": run("whole.onnx", x), "two": run("two.onnx", x, 2), "more": run("two.onnx", x, 3),
    "parts": run("parts.onnx", {"x": inputs["parts"]}),
    "bodies": run("bodies.onnx", {"x": inputs["body"], "n": np.array(3)}),
    "sized": run("sized.onnx", {"x": inputs["sized"]}, 2), "larger": run("sized.onnx", {"x": inputs["larger"]}),
    "shape": run("open.onnx", {"x": inputs["x"][:, :, 1:]}), "damaged": run("damaged.onnx", x),
    "untrusted": run("whole.onnx", x, sha256="0" * 64),
}))
onnxruntime.unregister_execution_provider_library(name)
"""


def installed(version: str) -> Path:
    """The folder of a release, which is installed where it is missing; "" is the newest."""
    folder = Path(platformdirs.user_cache_dir("autofuse")) / "onnxruntime" / (version or "newest")
    if version == "" or not (folder / "onnxruntime").is_dir():
        wanted = f"onnxruntime=={version}.*" if version else "onnxruntime"
        options = ["-q", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, wanted], check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled models, their inputs, and what ONNX Runtime makes of the originals."""
    made = tmp_path_factory.mktemp("releases")
    network(made / "net.onnx")
    compiled(made / "net.onnx", made / "whole.onnx")
    compiled(made / "net.onnx", made / "two.onnx", threads=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autofuse.segments.worth.LEAST_US", 0.0)
        compiled(written(pooled(), made), made / "parts.onnx")
        onnx.save(loop(), made / "loop.onnx")
        compiled(made / "loop.onnx", made / "bodies.onnx")
    write(made / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    compiled(made / "rows.onnx", made / "sized.onnx", threads=2, sizes={"batch": (1, 40)})

    def open_sizes(model: onnx.ModelProto) -> None:
        for size in model.graph.input[0].type.tensor_type.shape.dim:
            size.dim_param = "any"

    def damaged(model: onnx.ModelProto) -> None:
        code = next(found for found in model.graph.node[0].attribute if found.name == "ep_cache_context")
        code.s = code.s[:-1] + b"\1"

    changed(made / "whole.onnx", made / "open.onnx", open_sizes)
    changed(made / "whole.onnx", made / "damaged.onnx", damaged)
    sized, larger = (inputs_at(made / "rows.onnx", "batch", size)["x"] for size in (21, 41))
    inputs = {"x": image()["x"], "parts": normal(6, 1, 16), "body": normal(6, 24), "sized": sized, "larger": larger}
    np.savez(made / "inputs.npz", **inputs)
    return made


@pytest.mark.parametrize("version", [OLDEST, ""], ids=["oldest", "newest"])
def test_a_release_runs_and_refuses_what_the_installed_one_does(models: Path, version: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed(version))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, models],
        env=environment, capture_output=True, text=True, check=False, timeout=600, cwd=models,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["version"].startswith(version) and (version or said["version"].split(".") >= OLDEST.split("."))
    wanted = plain(models / "net.onnx").run(None, image())[0]
    for name in ("whole", "two", "more"):
        np.testing.assert_allclose(said[name], wanted, rtol=1e-4, atol=1e-5)
    parts = plain(models / "model.onnx").run(None, {"x": normal(6, 1, 16)})[0]
    np.testing.assert_allclose(said["parts"], parts, rtol=1e-4, atol=1e-5)
    bodies = plain(models / "loop.onnx").run(None, {"x": normal(6, 24), "n": np.array(3)})[0]
    np.testing.assert_allclose(said["bodies"], bodies, rtol=1e-4, atol=1e-5)
    sized = plain(models / "rows.onnx").run(None, inputs_at(models / "rows.onnx", "batch", 21))[0]
    np.testing.assert_allclose(said["sized"], sized, rtol=1e-3, atol=1e-3)
    assert "batch is 41, compiled for 1 to 40" in said["larger"]
    assert "input x has the shape (1, 3, 23, 24), compiled for (1, 3, 24, 24)" in said["shape"]
    assert "its code is damaged, or of another model" in said["damaged"]
    assert "which the option sha256 does not name" in said["untrusted"]
