"""Nodes of OpenVINO's compiled model by their layer type, as JSON: `python openvino_nodes.py MODEL.onnx`.

Runs in the environment that has OpenVINO (`experiments/peers/environments.py`), so it imports nothing of autofuse.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import openvino


def main(path: str) -> int:
    """Print how many nodes of each type run on this CPU in float32."""
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    kinds: Counter[str] = Counter()
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = {key: value.astype(str) for key, value in node.get_rt_info().items() if key == "layerType"}
        kinds[info.get("layerType", node.get_type_name())] += 1
    print(json.dumps(kinds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
