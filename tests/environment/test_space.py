"""Search-space files: all shipped ones load, target classes override values, mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.environment.space import ISAS, load_space, shipped_spaces
from autofuse.errors import InputError
from autofuse.fusion.space import KINDS
from autofuse.kernels.schedule.knobs import declared_names

DECLARED = {"contraction": ["register_rows", "order"], "depthwise": ["rows"]}
GOOD = """\
schema = 1
description = "a test"

[fusion]
decide = ["depend"]
max_group_operators = 12

[schedule.contraction]
register_rows = [4, 7, 14]
order = ["rows", "columns"]

[schedule.contraction.avx2]
register_rows = [6, 4]

[schedule.depthwise.neon]
rows = [2]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", shipped_spaces())
def test_every_shipped_space_loads_for_every_target_class(name: str, isa: str) -> None:
    space = load_space(name, isa, declared_names())
    assert (space.name, space.isa) == (name, isa)
    assert space.fusion.decide


def test_no_name_means_the_default_space() -> None:
    space = load_space(None, "avx2")
    assert space.name == "default"
    assert set(space.fusion.decide) == set(KINDS)


def test_values_of_the_target_class_replace_the_common_ones(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    common = {"register_rows": (4, 7, 14), "order": ("rows", "columns")}
    assert load_space(path, "avx512", DECLARED).schedule == {"contraction": common, "depthwise": {}}
    avx2 = load_space(path, "avx2", DECLARED).schedule["contraction"]
    assert avx2 == {"register_rows": (6, 4), "order": ("rows", "columns")}
    assert load_space(path, "neon", DECLARED).schedule["depthwise"] == {"rows": (2,)}


ROWS = """\
schema = 1

[schedule.contraction]
register_rows = { avx2 = [6, 4], other = [4, 7, 14] }
order = { neon = ["rows"] }
"""


def test_a_row_may_name_values_by_target_class(tmp_path: Path) -> None:
    spaces = {isa: load_space(written(tmp_path, ROWS), isa, DECLARED).schedule["contraction"] for isa in ISAS}
    assert spaces["avx2"] == {"register_rows": (6, 4)}
    assert spaces["avx512"] == spaces["generic"] == {"register_rows": (4, 7, 14)}
    assert spaces["neon"] == {"register_rows": (4, 7, 14), "order": ("rows",)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "other =",
            "sse =",
            "key 'schedule.contraction.register_rows.sse' is unknown, allowed: avx512, avx2, neon, gen",
        ),
        ("[6, 4]", "[]", "key 'schedule.contraction.register_rows.avx2': got [], allowed: a list with at least one"),
        (
            "order =",
            "odor =",
            "key 'schedule.contraction.odor' is unknown, allowed: avx512, avx2, neon, generic, order",
        ),
    ],
)
def test_a_bad_row_by_target_class_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_space(written(tmp_path, ROWS.replace(old, new)), "avx512", DECLARED)
    assert message in str(caught.value)


FORMER = """\
schema = 1

[schedule.contraction]
parts = [1, 2]
rows_per_job = [4, 0]

[schedule.contraction.avx2]
passes = [1, 4]

[schedule.row]
rows = [2, 4]

[schedule.block]

[schedule.windowed]
pixels = [4]
"""


def test_a_space_of_an_earlier_version_is_read_under_the_names_of_today(tmp_path: Path) -> None:
    found = load_space(written(tmp_path, FORMER), "avx2", declared_names()).schedule
    assert found == {
        "contraction": {"split_k": (1, 2), "rows_per_task": (4, 0), "k_blocking": (1, 4)},
        "last_axis": {"rows": (2, 4)},
        "windowed": {"pixels": (4,)},
    }
    assert "k_blocking" not in load_space(written(tmp_path, FORMER), "neon", declared_names()).schedule["contraction"]


def test_a_knob_under_both_of_its_names_is_refused(tmp_path: Path) -> None:
    both = FORMER.replace("[1, 2]", "[1, 2]\nsplit_k = [1]")
    with pytest.raises(InputError, match=r"contraction\.parts' and 'schedule\.contraction\.split_k' are one knob"):
        load_space(written(tmp_path, both), "avx2", declared_names())


def test_the_fusion_part_is_read(tmp_path: Path) -> None:
    fusion = load_space(written(tmp_path, GOOD), "avx2", DECLARED).fusion
    assert (fusion.decide, fusion.max_group_operators) == (("depend",), 12)


def test_the_key_is_that_of_the_content(tmp_path: Path) -> None:
    first = load_space(written(tmp_path, GOOD), "avx2", DECLARED)
    renamed = tmp_path / "other.toml"
    renamed.write_text(GOOD.replace('"a test"', '"the same"'), encoding="utf-8")
    assert load_space(renamed, "avx2", DECLARED).key == first.key
    assert load_space(renamed, "neon", DECLARED).key != first.key


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 3", "key 'schema': got 3, allowed: 1"),
        ("schema = 1", "", "key 'schema': got None, allowed: 1"),
        ("schema = 1", "schema = 1\nfuse = 2", "key 'fuse' is unknown, allowed: schema, description, fusion, schedule"),
        ('"a test"', "7", "key 'description': got 7, allowed: a text"),
        ('["depend"]', '["guess"]', "key 'fusion.decide': got 'guess', allowed: fold, depend"),
        ('["depend"]', '"depend"', "key 'fusion.decide': got 'depend', allowed: a list of"),
        ('["depend"]', '["depend", "depend"]', "key 'fusion.decide': got 'depend', allowed: each kind once"),
        ('["depend"]', "[[1]]", "key 'fusion.decide': got [1], allowed: fold"),
        ("operators = 12", "operators = 0", "key 'fusion.max_group_operators': got 0, allowed: an integer from 1"),
        ("operators = 12", "operators = true", "key 'fusion.max_group_operators': got True"),
        ("max_group", "most", "key 'fusion.most_operators' is unknown, allowed: decide, max_group_operators"),
        ("[schedule.contraction]", "[schedule.tensor]", "key 'schedule.tensor' is unknown, allowed: contraction, dep"),
        ("\nrows = [2]", "\nrow = [2]", "key 'schedule.depthwise.neon.row' is unknown, allowed: rows"),
        ("depthwise.neon", "depthwise.riscv", "key 'schedule.depthwise.riscv' is unknown, allowed: avx512, avx2, neon"),
        ("[4, 7, 14]", "[]", "key 'schedule.contraction.register_rows': got [], allowed: a list with at least one"),
        ("[4, 7, 14]", "4", "key 'schedule.contraction.register_rows': got 4, allowed: a list"),
        ("[4, 7, 14]", "[4, 7, 4]", "key 'schedule.contraction.register_rows': got 4, allowed: each value once"),
        ("[4, 7, 14]", "[4, 0.5]", "key 'schedule.contraction.register_rows': got 0.5, allowed: integers or texts"),
        ("[4, 7, 14]", "[true]", "key 'schedule.contraction.register_rows': got True, allowed: integers or texts"),
        ("[4, 7, 14]", '[4, "7"]', "got '7', allowed: values of one type (the first is 4)"),
        ("schema = 1", 'schedule = "all"\nschema = 1', "not a TOML file"),
        ("schema = 1", "schema", "not a TOML file"),
    ],
)
def test_a_bad_space_names_file_key_value_and_what_is_allowed(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_space(path, "avx512", DECLARED)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_part_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="key 'schedule.contraction': got 4, allowed: a table"):
        load_space(written(tmp_path, "schema = 1\n[schedule]\ncontraction = 4\n"), "avx2", DECLARED)


def test_a_mistake_for_another_target_class_is_found_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="schedule.contraction.avx2.register_rows"):
        load_space(written(tmp_path, GOOD.replace("[6, 4]", "[]")), "neon", DECLARED)


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(InputError, match=r"--space: 'huge' is unknown; allowed: default, .*\.toml"):
        load_space("huge", "avx2")


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the search space"):
        load_space(tmp_path / "absent.toml", "avx2")
