"""One name for one thing; what earlier versions called it still works."""

from __future__ import annotations

from autofuse.values.arguments import parse_rivals
from autofuse.values.names import plan_name, rival_name, told_apart


def test_the_former_name_of_two_things_means_the_right_one_in_each_place() -> None:
    assert (plan_name("tvm"), rival_name("tvm")) == ("tvm-partition", "tvm-untuned")
    assert (plan_name("none"), rival_name("onnxruntime")) == ("none", "onnxruntime")
    assert parse_rivals("tvm,none") == ("tvm-untuned", "none")


def test_equal_labels_get_digits_of_their_keys_and_others_stay() -> None:
    labels = {"abcd1": "Conv 1x8", "abcd2": "Conv 1x8", "f0000": "Conv 1x4"}
    assert told_apart(labels) == {"abcd1": "Conv 1x8 #abcd1", "abcd2": "Conv 1x8 #abcd2", "f0000": "Conv 1x4"}
