"""The controls of the profitability experiment, each on choices whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from autofuse.database.records import Setting
from autofuse.device.target import Target
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
from autofuse.learning.dataset import Dataset
from experiments.profitability import tables
from experiments.profitability.cases import Case, Where
from experiments.profitability.evaluate import Taken, auc_by_relation, contest, evaluate, summary
from experiments.profitability.judges import (
    BytesSaved,
    Chance,
    Constant,
    FixedPlan,
    Judge,
    Learned,
    Linear,
    fused_by_tvm,
    paper,
    ridge,
)
from experiments.profitability.plot import picture
from experiments.profitability.splits import splits
from experiments.profitability.tvm_rule import fused_by_tvm as asked_of_tvm

WHERE = Where(Setting("d", "t", 1, "v"), "laptop", Target("znver3", 8, 16, 2, 32768, 1 << 19), {})
CHAIN = ("cnn0", "cnn1", "attention0", "pointwise0")


def pointwise(kinds: tuple[str, ...], size: int) -> Workload:
    """A chain of one-to-one operators over so many floats."""
    inner = [Value("inner", (size,), "float32") for _ in kinds[1:]]
    values = (Value("input", (size,), "float32"), *inner, Value("output", (size,), "float32"))
    return Workload(values, tuple(WorkloadOperator(kind, (n,), (n + 1,)) for n, kind in enumerate(kinds)), 18)


def case_of(network: str = "cnn0") -> Case:
    """Apart (30 us), half fused (22 us), and all in one kernel (9 us)."""
    kernels = (pointwise(("Exp",), 4096), pointwise(("Exp", "Neg"), 4096), pointwise(("Exp", "Neg", "Exp"), 4096))
    uses = np.array([[3.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    return Case(network, WHERE, kernels, np.array([10.0, 12.0, 9.0]), uses, {"apart": 0, "default": 2, "tvm": 1})


def decisions_of(gains: list[float], **columns: object) -> pd.DataFrame:
    """One decision an entry of `gains` (log2); every other number is the same for all unless named."""
    count = len(gains)
    frame = pd.DataFrame(
        {
            "network": [CHAIN[n % 4] for n in range(count)],
            "networks": [CHAIN[n % 4] for n in range(count)],
            "device": "laptop",
            "family": "avx2",
            "threads": 1,
            "workload": [f"w{n}" for n in range(count)],
            "cut": "edge",
            "relation": "one-to-one > one-to-one",
            "colour": "through",
            "fused_us": 10.0,
            "apart_us": 10.0 * np.exp2(gains),
            "log_gain": gains,
            "fused_rel_ci": 0.01,
            "apart_rel_ci": 0.01,
            "trusted": True,
            "f_cut_bytes_share": 0.5,
        }
    )
    return frame.assign(**columns)  # type: ignore[arg-type]


def rows_of(count: int) -> pd.DataFrame:
    names = [CHAIN[n % 4] for n in range(count)]
    frame = {"workload": [f"w{n}" for n in range(count)], "network": names, "networks": names, "device": "laptop"}
    numbers = {"family": "avx2", "threads": 1, "median_us": 10.0, "trusted": True, "f_log_roofline_us": 3.0}
    return pd.DataFrame(frame).assign(**numbers)


def told(judge: Judge, decisions: pd.DataFrame) -> list[bool]:
    opinion = judge.decide(decisions)
    assert opinion is not None
    return [bool(fuse) for fuse in opinion.fuse]


def test_always_and_never_rank_plans_by_their_kernels() -> None:
    frame = decisions_of([1.0, -1.0])
    assert told(Constant("always fuse", True), frame) == [True, True]
    assert told(Constant("never fuse", False), frame) == [False, False]
    assert np.argmax(Constant("always fuse", True).rank(case_of())) == 2
    assert np.argmax(Constant("never fuse", False).rank(case_of())) == 0


def test_the_paper_fuses_all_but_red_and_prefers_green() -> None:
    frame = decisions_of([0.0] * 3, colour=["through", "depend", "break"])
    assert told(FixedPlan("paper's rule", "dnnfusion", paper), frame) == [True, True, False]
    assert list(paper(frame).score) == [2.0, 1.0, 0.0]


def test_a_rule_that_makes_one_plan_takes_it_and_says_nothing_where_it_has_no_time() -> None:
    ranked = FixedPlan("TVM's FuseOps", "tvm").rank(case_of())
    assert ranked is not None and list(ranked) == [0.0, 1.0, 0.0]
    assert FixedPlan("paper's rule", "dnnfusion").rank(case_of()) is None
    assert FixedPlan("autofuse's rule", "default").decide(decisions_of([1.0])) is None


def test_where_the_model_knows_nothing_of_the_device_autofuse_rules() -> None:
    class Silent:
        def refusal(self, place: object) -> str:
            return "it was trained on other targets"

    judge = Learned()
    judge.model = Silent()  # type: ignore[assignment]
    ranked = judge.rank(case_of())
    assert ranked is not None and list(ranked) == [0.0, 0.0, 1.0]
    assert judge.rank(replace(case_of(), named={"tvm": 1})) is None


def test_chance_fuses_half_and_prefers_nothing() -> None:
    assert 350 < sum(told(Chance(), decisions_of([0.0] * 800))) < 450
    assert set(Chance().rank(case_of())) == {0.0}


def test_bytes_saved_learns_the_threshold_that_loses_least() -> None:
    train = decisions_of([-2.0, -1.0, 0.1, -0.2, 1.0], f_cut_bytes_share=[0.1, 0.2, 0.3, 0.4, 0.5])
    judge = BytesSaved()
    judge.fit(Dataset(rows_of(5), train))
    assert judge.threshold == 0.5  # refusing 0.3 too costs 0.1 and saves 0.2
    assert told(judge, train) == [False, False, False, False, True]
    judge.fit(Dataset(rows_of(2), decisions_of([-1.0, -1.0], f_cut_bytes_share=[0.1, 0.2])))
    assert told(judge, train) == [False] * 5
    judge.fit(Dataset(rows_of(2), decisions_of([1.0, 1.0], f_cut_bytes_share=[0.1, 0.2])))
    assert told(judge, train) == [True] * 5


def test_bytes_saved_ranks_plans_by_what_they_move() -> None:
    # each kernel of the chain reads and writes 4096 floats, however many operators it holds
    assert list(BytesSaved().rank(case_of())) == [-3 * 32768.0, -2 * 32768.0, -32768.0]


def test_ridge_finds_a_line_and_stays_in_range() -> None:
    rows = np.column_stack([np.arange(200.0), np.full(200, 7.0)])
    line = ridge(rows, 3.0 * rows[:, 0] + 1.0)
    assert line(rows[[10, 100]]) == pytest.approx([31.0, 301.0], abs=2.0)
    assert line(np.array([[1e9, 7.0]]))[0] == pytest.approx(1.5 * 597 + 1.0)


def test_linear_decides_by_the_sign_of_the_predicted_gain() -> None:
    gains = list(np.linspace(-1.0, 1.0, 40))
    frame = decisions_of(gains, f_x=gains)
    judge = Linear()
    judge.fit(Dataset(rows_of(40), frame))
    assert told(judge, frame) == [gain > 0 for gain in gains]


def test_tvm_fuses_a_chain_and_not_two_products() -> None:
    values = (
        *(Value("input", (16, 16), "float32") for _ in range(3)),
        Value("inner", (16, 16), "float32"),
        Value("output", (16, 16), "float32"),
    )
    products = (WorkloadOperator("MatMul", (0, 1), (3,)), WorkloadOperator("MatMul", (3, 2), (4,)))
    chain, pair = pointwise(("Exp", "Neg"), 64), Workload(values, products, 18)
    answers = asked_of_tvm({chain.key: chain.text, pair.key: pair.text})
    assert answers == {chain.key: True, pair.key: False}
    frame = decisions_of([0.0, 0.0], workload=[pair.key, chain.key])
    assert list(fused_by_tvm(answers)(frame).fuse) == [False, True]


@pytest.mark.slow
def test_the_model_learns_what_no_line_can_say() -> None:
    dice = np.random.default_rng(0)
    x, y = dice.uniform(-1, 1, (2, 600))
    frame = decisions_of(list(np.sign(x * y) * 0.8), f_x=x, f_y=y)
    data = Dataset(rows_of(600).assign(f_x=x), frame)
    judges: list[Judge] = [Learned(), Linear(), Constant("always fuse", True)]
    _, decided = evaluate(judges, splits(data, [], "network", 2))
    found = {one.judge: summary("network", one.judge, [], one) for one in decided}
    assert found["model"].auc > 0.9 > 0.65 > found["linear"].auc
    assert found["model"].lost < 0.15 and found["model"].cost < found["always fuse"].cost
    assert found["always fuse"].lost == pytest.approx(float((x * y < 0).mean()))
    assert found["model"].coverage > 0.75
    assert set(auc_by_relation(decided, "network").columns) >= {"decisions", "pays", "model", "linear"}


def test_what_is_held_out_is_not_learned_from() -> None:
    case = case_of("cnn0")
    shared = case.workloads[0].key
    frame = decisions_of([1.0] * 8, workload=[f"w{n}" for n in range(7)] + [shared], device=["a", "b"] * 4)
    data = Dataset(rows_of(8), frame)
    found = {split.held: split for split in splits(data, [case], "network", 0)}
    assert list(found) == sorted(CHAIN)
    for held, split in found.items():
        assert set(split.test["network"]) == {held} and held not in set(split.train.decisions["network"])
        assert held not in set(split.train.rows["network"])
    assert shared not in set(found["cnn0"].train.decisions["workload"]) and found["cnn0"].cases == (case,)
    assert shared in set(found["cnn1"].train.decisions["workload"])
    families = {split.held: split for split in splits(data, [case], "family", 0)}
    assert set(families["convolutional"].test["network"]) == {"cnn0", "cnn1"}
    devices = {split.held: set(split.train.decisions["device"]) for split in splits(data.__class__(
        data.rows.assign(device=frame["device"]), frame), [], "device", 0)}  # fmt: skip
    assert devices == {"a": {"b"}, "b": {"a"}}
    assert list(splits(data, [], "threads", 0)) == []


def test_choices_are_summed_up_compared_and_drawn() -> None:
    judges: list[Judge] = [Constant("always fuse", True), Constant("never fuse", False), Chance()]
    data = Dataset(rows_of(8), decisions_of([1.0] * 8))
    cases = [case_of(name) for name in CHAIN]
    taken, _ = evaluate(judges, splits(data, cases, "network", 0))
    best, worst, chance = (summary("network", judge.name, taken, None) for judge in judges)
    assert (best.cases, best.regret1_mean, best.regret5_p90) == (4, 0.0, 0.0)
    assert worst.regret1_median == worst.regret1_max == pytest.approx(30 / 9 - 1)
    assert chance.regret1_mean == pytest.approx((30 + 22 + 9) / 27 - 1)
    better = contest(taken, "network", "always fuse", "never fuse")
    assert better is not None and better.verdict == "better"
    assert better.difference == better.lo == better.hi == pytest.approx(1 - 30 / 9)
    worse = contest(taken, "network", "never fuse", "always fuse")
    assert worse is not None and worse.verdict == "worse"
    assert contest(taken, "network", "always fuse", "nobody") is None
    text = tables.plans_table([worst, best])
    assert text.index("always fuse") < text.index("never fuse") and "| 233.3 % |" in text
    assert "better plans than every control" in tables.verdict([better], [])
    assert "always fuse takes better plans than the model" in tables.verdict([worse], [])
    assert picture(taken, "a & b").count("<title>cnn0") == 3


def test_one_lucky_network_is_no_difference() -> None:
    rows = [
        Taken("network", "x", judge, name, "laptop", 1, 9, regret, regret)
        for name, pair in zip(CHAIN, [(0.0, 0.4), (0.1, 0.0), (0.1, 0.0), (0.1, 0.1)], strict=True)
        for judge, regret in zip(("model", "rule"), pair, strict=True)
    ]
    found = contest(rows, "network", "model", "rule")
    assert found is not None and found.verdict == "no difference" and found.lo < 0 < found.hi
    assert "rule is as good as the model" in tables.verdict([found], [])


def test_bars_say_what_was_not_met() -> None:
    row = summary("network", "model", [Taken("network", "x", "model", "n", "d", 1, 9, 0.05, 0.0)], None)
    met = {bar.name: bar.met for bar in tables.bars(row)}
    assert met == {"median regret@1": False, "P90 of regret@1": True, "median regret@5": True, "harm rate": False}
