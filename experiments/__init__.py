"""Experiments: each a folder with its question, its command and its table.

Whatever is imported from here first switches telemetry off, also in the environments of rivals, which find autofuse on
their path. OpenVINO has telemetry in its converter, which nothing here uses; transformers in its downloads.
"""

import os

import autofuse  # noqa: F401  switches ONNX Runtime's telemetry off

os.environ.update({"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"})
