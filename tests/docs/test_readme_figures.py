"""The README's figures are those of the experiments' own pages and records, and only trusted ones stand as results."""

from __future__ import annotations

import json
import re
from pathlib import Path

from experiments.peers.rivals import RIVALS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NETWORKS = (ROOT / "experiments/networks/README.md").read_text(encoding="utf-8")


def rows(text: str, head: str) -> list[list[str]]:
    """The cells of the table in `text` that begins with the line `head`."""
    lines = text.partition(f"{head}\n")[2].splitlines()[1:]
    end = next(index for index, line in enumerate(lines) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def told(cell: str) -> tuple[float, float, float, str]:
    """Ratio, its interval, and the rival: "1.12 (1.11–1.13) LiteRT"."""
    found = re.fullmatch(r"([\d.]+) \(([\d.]+)–([\d.]+)\) (.+)", cell)
    assert found is not None, cell
    return float(found[1]), float(found[2]), float(found[3]), found[4]


def test_the_first_table_holds_the_trusted_ratios_of_the_peers_and_all_of_them() -> None:
    records = json.loads((ROOT / "experiments/results/peers.json").read_text())
    record = next(one for one in records if one["machine"].startswith("znver5"))
    trusted = {
        (row["network"], row["threads"]): (against["ratio"], against["lo"], against["hi"], RIVALS[row["best"]].title)
        for row in record["rows"]
        if (against := row["against"])["trusted"]
    }
    shown = {
        (network, threads): told(text)
        for network, *texts in rows(README, "| network | one thread | two threads |")
        for threads, text in zip((1, 2), texts, strict=True)
        if text != "not trusted" and not network.startswith("geometric mean")
    }
    assert len(shown) > 20 and shown == trusted


def test_how_many_ratios_are_trusted_is_counted_and_not_remembered() -> None:
    records = json.loads((ROOT / "experiments/results/networks.json").read_text())
    record = next(one for one in records if one["machine"].startswith("znver3"))
    ratios = [row["rivals"]["onnxruntime"] for row in record["rows"]]
    trusted = [one["ratio"] for one in ratios if one["trusted"]]
    words = dict(zip(("six", "fourteen"), (6, 14), strict=True))
    said = re.search(r"of the (\w+) ratios to ONNX Runtime (\w+) are\s+trusted, from ([\d.]+) to ([\d.]+)\.", NETWORKS)
    assert said is not None
    assert (words[said[1]], words[said[2]]) == (len(ratios), len(trusted))
    assert (float(said[3]), float(said[4])) == (min(trusted), max(trusted))


def test_installing_stands_before_everything_else() -> None:
    first = README.partition("```sh\n")[2].partition("```")[0]
    assert first.startswith("pip install .") and "autofuse tune" in first
