"""What a tuning run is called."""

from __future__ import annotations

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import RunStart
from autofuse.search.tune import unused_name
from tests.database.recorded import GRAPH, setting_of


def test_runs_that_begin_in_one_second_have_names_of_their_own(database: ProfilingDatabase) -> None:
    names = []
    for _ in range(3):
        names.append(unused_name(database, "net-2t-20261127-072500"))
        start = RunStart(name=names[-1], model_name="net", model_sha256="0" * 64, graph_key=GRAPH, seed=0)
        database.start_run(setting_of(database), start)
    assert names == ["net-2t-20261127-072500", "net-2t-20261127-072500-2", "net-2t-20261127-072500-3"]
