"""The rows as `results.csv` (a line a rival) and `results.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.networks.row import title
from experiments.networks.table import environment_of, mean, three
from experiments.peers.rivals import BASE, OWN, RIVALS
from experiments.peers.row import Entry, Ratio, Row
from experiments.tables import head, line, write_csv

PEERS = [rival.name for rival in RIVALS.values() if rival.peer]
LEGEND = """\
Every rival's column: ONNX Runtime's time / its time, with the 95 % interval; above 1 it is faster than ONNX Runtime;
bold: the fastest peer of that row (all but TVM and autofuse). All rivals of a row were timed in turn in one run, on
the same file and inputs, each in a process of its own, the others stopped meanwhile. "?": noise leaves open which
of the two is faster; "wrong": its outputs differ from ONNX Runtime's beyond tolerance; "cannot": it does not run this
model, the reason stands below. "autofuse / best peer": the best peer's time / autofuse's.
Of the limit: the least time that this machine could need (operations over its measured peak rate, or weights, inputs
and outputs over its measured bandwidth, whichever takes longer) / the time needed. Operations are counted as the
model states them: an algorithm with fewer of them (Winograd) can pass 100 %.
"""
CELL_REASON = 28


def write(rows: Sequence[Row], folder: Path) -> None:
    """Both files."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [entry for row in rows for entry in flat(row)]
    write_csv(folder / "results.csv", entries)
    (folder / "results.md").write_text(markdown(rows), encoding="utf-8")


def flat(row: Row) -> list[dict[str, object]]:
    """A row as lines of the CSV file: one for each rival, times in microseconds, sizes in bytes."""
    found: list[dict[str, object]] = []
    for name in [name for name in RIVALS if name in row.entries]:
        entry, against = row.entries[name], row.ratio(BASE, name)
        samples = entry.samples
        found.append(
            {
                "network": row.network, "threads": row.threads, "rival": name, "median_us": entry.us,
                "speed_over_onnxruntime": against and against.ratio, "ci_lo": against and against.lo,
                "ci_hi": against and against.hi, "trusted": bool(against and against.trusted),
                "of_limit": share(row, name), "limit_us": row.limit and row.limit.us,
                "bound": row.limit and row.limit.bound, "flops": row.demand and row.demand.flops,
                "bytes": row.demand and row.demand.bytes, "peak_gflops": row.rates and row.rates.gflops,
                "dram_gbs": row.rates and row.rates.dram_gbs, "max_rel_error": entry.max_rel_error,
                "wrong": entry.wrong, "error": entry.error, "reason": samples.reason if samples else "",
                "blocks": len(samples.slices) if samples else 0,
                "good_blocks": len(samples.good()) if samples else 0, "load_s": entry.load_s, "note": entry.note,
                "measured_at": row.measured_at, "model_sha256": row.model_sha256, **row.facts,
            }
        )  # fmt: skip
    return found


def share(row: Row, name: str | None) -> float | None:
    """Which part of the machine's limit a rival reaches; None without a time, or for wrong results."""
    entry = row.entries.get(name) if name else None
    if entry is None or not entry.counts or row.limit is None or entry.us is None:
        return None
    return row.limit.us / entry.us


def best_peer(row: Row) -> tuple[str, tuple[float | None, float | None]]:
    """The fastest peer ("": none has a time), and which part of the machine's limit it and autofuse reach."""
    best = row.fastest(PEERS)
    return best or "", (share(row, best), share(row, OWN))


def markdown(rows: Sequence[Row]) -> str:
    """The table of finished rows, geometric means, what is missing and why, the machine."""
    finished = [row for row in rows if row.finished]
    names = [name for name in RIVALS if any(name in row.entries for row in finished)]
    titles = [RIVALS[name].title for name in names]
    columns = ["network", "threads", *titles, "autofuse / best peer", "of the limit: best peer, autofuse"]
    lines = [*head(columns), *(line(_cells(row, names)) for row in finished)]
    for threads in sorted({row.threads for row in finished}):
        lines.append(line(_means(threads, [row for row in finished if row.threads == threads], names)))
    parts = ["\n".join(lines), LEGEND.rstrip()]
    if problems := _problems(rows):
        parts.append("\n".join(f"- {problem}" for problem in problems))
    parts.append("\n".join(f"- {fact}" for fact in [*_probes(finished), *_notes(finished), *environment_of(finished)]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _cells(row: Row, names: Sequence[str]) -> list[str]:
    best = row.fastest(PEERS)
    ours = row.ratio(best, OWN) if best else None
    limit = f"{_percent(share(row, best))}, {_percent(share(row, OWN))}"
    bound = f" ({row.limit.bound})" if row.limit else ""
    return [
        row.network,
        str(row.threads),
        *(_cell(row, name, name == best) for name in names),
        _ratio(ours) + (f" against {RIVALS[best].title}" if best and ours else ""),
        limit + bound,
    ]


def _cell(row: Row, name: str, best: bool) -> str:
    entry = row.entries.get(name)
    if entry is None:
        return ""
    if entry.us is None:
        return f"cannot: {_short(entry.error)}"
    if name == BASE:
        text = "1" if entry.samples and entry.samples.trusted else "1 ?"
    else:
        text = _ratio(row.ratio(BASE, name))
    if entry.wrong:
        return f"wrong: {text}"
    return f"**{text}**" if best else text


def _ratio(found: Ratio | None) -> str:
    """ "1.14 (1.12–1.17)", "?" behind what is not decided, a dash for none."""
    if found is None:
        return "—"
    return f"{three(found.ratio)} ({three(found.lo)}–{three(found.hi)})" + ("" if found.trusted else " ?")


def _means(threads: int, rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Geometric means over the rows in which the rival gave right results."""
    cells = []
    for name in names:
        cells.append(_mean([row.ratio(BASE, name) for row in rows if _counts(row, name)], len(rows)))
    ours = []
    for row in rows:
        best = row.fastest(PEERS)
        ours.append(row.ratio(best, OWN) if best and _counts(row, OWN) else None)
    return [f"geometric mean of {len(rows)}", str(threads), *cells, _mean(ours, len(rows)), ""]


def _mean(ratios: Sequence[Ratio | None], rows: int) -> str:
    return mean([found.ratio for found in ratios if found is not None], rows)


def _counts(row: Row, name: str) -> bool:
    entry: Entry | None = row.entries.get(name)
    return entry is not None and entry.counts


def _problems(rows: Sequence[Row]) -> list[str]:
    found = []
    for row in rows:
        where = title(row.network, row.threads)
        if row.error:
            found.append(f"{where}: failed: {row.error}")
        for name, entry in row.entries.items():
            said = entry.error or (f"wrong: {entry.wrong}" if entry.wrong else "")
            if said:
                found.append(f"{where}: {RIVALS[name].title}: {_short(said, 300)}")
    return found


def _probes(rows: Sequence[Row]) -> list[str]:
    """What the machine reached beside each row, as a range over the rows."""
    found = []
    for threads in sorted({row.threads for row in rows}):
        rates = [row.rates for row in rows if row.threads == threads and row.rates]
        if rates:
            flops = _range([rate.gflops for rate in rates])
            found.append(
                f"probe, {threads} thread{'s' if threads > 1 else ''}: {flops} GFLOP/s of float32, "
                f"{_range([rate.dram_gbs for rate in rates])} GB/s read from memory"
            )
    return found


def _notes(rows: Sequence[Row]) -> list[str]:
    """How each rival's form of the models was made."""
    found = []
    for name, rival in RIVALS.items():
        notes = dict.fromkeys(row.entries[name].note for row in rows if name in row.entries and row.entries[name].note)
        if notes:
            found.append(f"{rival.title}: {'; '.join(notes)}")
    return found


def _range(values: Sequence[float]) -> str:
    low, high = three(min(values)), three(max(values))
    return low if low == high else f"{low} to {high}"


def _short(text: str, length: int = CELL_REASON) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= length else plain[: length - 1].rstrip() + "…"


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.0f} %"
