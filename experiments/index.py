"""The index of the experiments: what each asks, how it is called, where its table stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "experiments" / "README.md"


class Main(Protocol):
    """What a module of an experiment has for the command line: its arguments in, its exit code out."""

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Run it."""


@dataclass(frozen=True)
class Experiment:
    """One experiment: `python -m experiments NAME ARGUMENTS`.

    `name`: a folder, or "folder.part" where a folder holds several. `arguments`: those of a usual run. `table`: the
    page that shows what it found, below the checkout; "" for what leaves no table. `module`: whose `main` it is,
    below `experiments`; "" for `run` in the folder, or the part in it.
    """

    name: str
    question: str
    arguments: str = ""
    table: str = ""
    module: str = ""

    @property
    def home(self) -> str:
        """The full name of the module."""
        return f"experiments.{self.module or (self.name if '.' in self.name else f'{self.name}.run')}"

    @property
    def command(self) -> str:
        """How it is called."""
        return f"python -m experiments {self.name} {self.arguments}".strip()

    def main(self) -> Main:
        """Its command line, whose module is imported now."""
        return cast(Main, import_module(self.home).main)


def _page(folder: str) -> str:
    return f"experiments/{folder}/README.md"


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "networks",
        "How fast are tuned networks against ONNX Runtime, TVM and no fusion?",
        "all",
        _page("networks"),
    ),
    Experiment("peers", "And against every other engine that runs them?", "all", _page("peers")),
    Experiment(
        "fusion_alone",
        "What does fusion give, all else equal?",
        "out/models --threads 1,2 --budget 2m",
        _page("fusion_alone"),
    ),
    Experiment(
        "kernel_counts",
        "How many kernels are left, against DNNFusion's paper and other engines?",
        "MODEL.onnx ...",
        _page("kernel_counts"),
    ),
    Experiment("over_fusion", "Where does fusing lose?", "--budget 60s", _page("over_fusion")),
    Experiment(
        "never_slower",
        "Is a tuned model ever slower than what needs no search?",
        "--budget 60s --drawn 0:200",
        _page("never_slower"),
    ),
    Experiment(
        "real_models",
        "Do models run as exporters write them, agree, and keep up with ONNX Runtime?",
        "--threads 1,2 --budget 2m",
        _page("real_models"),
    ),
    Experiment(
        "open_sizes",
        "Is one library for every size as fast as one for each, and faster than engines that take any size?",
        "--threads 1,2 --budget 2m",
        _page("open_sizes"),
    ),
    Experiment(
        "open_sizes.decode",
        "Does a step of a decoder take as long as its bytes, and does anything leak?",
        "--threads 1,2 --budget 2m",
        _page("open_sizes"),
    ),
    Experiment(
        "open_sizes.tuning",
        "How many measurements does tuning a range take, against tuning one size?",
        "distilbert --trials 60",
        _page("open_sizes"),
    ),
    Experiment(
        "seeds",
        "What does each way to fuse and fold give on the first, smallest models?",
        "--budget 60s",
        _page("seeds"),
    ),
    Experiment("bands", "Is a window over a window faster by bands of rows?", "--budget 40s", _page("bands")),
    Experiment("rewriting", "How many kernels does rewriting save?", "", _page("rewriting")),
    Experiment("operators", "How near are single operators to the machine's limit?", "", _page("operators")),
    Experiment(
        "recurrent", "How fast are LSTM, GRU and RNN, and single steps of them?", "--trials 12", _page("recurrent")
    ),
    Experiment(
        "budgets",
        "How long must a tuning last?",
        "resnet50 mobilenet_v2 bert_base --budgets 5m,3m,1m",
        _page("budgets"),
    ),
    Experiment(
        "budget_kept",
        "Does a tuning end when its budget says?",
        "resnet50 tinybert --budgets 60s,90s --cores 1,2",
        _page("budget_kept"),
    ),
    Experiment(
        "before_after",
        "What did a change do to speed, and to the cost of compiling?",
        "resnet50 tinybert --before COMMIT",
        _page("before_after"),
    ),
    Experiment("overlap", "Does a build on another core disturb a timing?", "mobilenet_v2 tinybert", _page("overlap")),
    Experiment("scaling", "What does a second thread give?", "resnet50 bert_base --budget 1m", _page("scaling")),
    Experiment(
        "composition",
        "What is the exact best plan over the best sampled one?",
        "MODEL DATABASE ...",
        _page("composition"),
    ),
    Experiment("priors", "How good are the first guesses of schedules?", "DATABASE ...", _page("priors")),
    Experiment(
        "oracle",
        "What would each measurement say? All that a search may ask about small networks.",
        "--db out/oracle/times.db",
        _page("replay"),
    ),
    Experiment(
        "replay",
        "How many measurements does a search need to come within 2 % of the best?",
        "--db out/oracle/times.db",
        _page("replay"),
    ),
    Experiment(
        "replay.expectations",
        "Are the expectations true that a search chooses its questions by?",
        "--db out/oracle/times.db",
        _page("replay"),
    ),
    Experiment(
        "replay.first_schedules",
        "Does a trained model choose the first schedule better than the rules?",
        "--db out/oracle/times.db",
        _page("replay"),
    ),
    Experiment(
        "replay.regret",
        "How much slower than the best is the plan taken, and how many decisions do harm?",
        "--db out/oracle/times.db",
        _page("replay"),
    ),
    Experiment(
        "replay.wholes",
        "Do races of whole networks say what sums of kernels do not?",
        "--db out/oracle/times.db",
        _page("replay"),
    ),
    Experiment("profitability.collect", "What does fusing gain? Times to learn that from.", "--budget 75s"),
    Experiment("profitability", "Is the profitability model worth asking?", "", _page("profitability")),
    Experiment(
        "profitability.unseen",
        "How fast is a network that was never tuned?",
        "MODEL=DATABASE ... --train DATABASE ...",
        _page("profitability"),
    ),
    Experiment(
        "profitability.effort",
        "How many measurements does the model save?",
        "MODEL.onnx ... --train DATABASE ...",
        _page("profitability"),
    ),
    Experiment("memory", "How much memory does a running model take?", "MODEL.onnx[=DATABASE] ...", _page("memory")),
    Experiment(
        "torch_compile",
        "How fast is torch.compile by autofuse against torch.compile by Inductor?",
        "--threads 1,2 --budget 3m",
        _page("torch_compile"),
    ),
    Experiment("session", "What does a call cost above TVM's virtual machine?", "", _page("session")),
    Experiment(
        "provider",
        "What does the execution provider cost, and is it as fast as Session?",
        "resnet50 mobilenet_v2 bert_base --threads 1,2",
        _page("provider"),
    ),
    Experiment(
        "precisions",
        "How fast and how close are ONNX Runtime, OpenVINO and autofuse in int8 and bfloat16?",
        "resnet50 tinybert --threads 1,2",
        _page("precisions"),
    ),
    Experiment("arm_proxy", "How good is the code for ARM, counted without an ARM machine?", "", _page("arm_proxy")),
    Experiment("kernel_texts", "Which kernels does a change alter?", "dump FOLDER MODEL.onnx ..."),
    Experiment(
        "importer_check",
        "What may TVM's importer be asked for? It writes the list that the package ships.",
        "--processes 2",
        _page("importer_check"),
    ),
    Experiment(
        "node_suite",
        "Which of ONNX's own node cases are right, and which refused?",
        "--processes 2",
        _page("node_suite"),
    ),
    Experiment(
        "random_graphs",
        "Do random graphs under random plans compute what ONNX Runtime does?",
        "--seeds 0:10000 --time 10m",
    ),
    Experiment("fuzz", "What do damaged files, messages and command lines do?", "--mutations 1000"),
    Experiment(
        "attack",
        "Does anything that a user or an attacker does break a promise?",
        "--attempts 1000",
        _page("attack"),
    ),
    Experiment("fault_drill", "What does a job survive?", "--faults 100", _page("fault_drill"), "fault_drill.drill"),
    Experiment("noisy_neighbour", "Does a busy machine mislead the search?", "--budget 30m", _page("noisy_neighbour")),
    Experiment("database", "How do merge, exchange and report scale?", "", _page("database")),
    Experiment(
        "scale.database",
        "How fast is the database at ten million samples?",
        "record|fill|lookup",
        _page("scale"),
    ),
    Experiment("scale.workers", "How much faster are two workers than one?", "", _page("scale")),
    Experiment("scale.dask_speed", "How much faster do two Dask workers build than one?", "MODEL.onnx", _page("scale")),
    Experiment("scale.simulate", "How does a job of 200 models run on 20 workers?", "", _page("scale")),
    Experiment("scale.sharing", "How many measurements do models share?", "", _page("scale")),
    Experiment("scale.extract", "What did real runs record? Candidates to replay.", "DATABASE ..."),
    Experiment("demo", "How does a tuning look from its start to its end?", "--budget 4m"),
    Experiment("models", "Makes the networks of `experiments/models` as ONNX files.", "[NAME ...]"),
    Experiment("peers.environments", "Installs the environments of the rivals.", "[NAME ...]"),
    Experiment("peers.plot", "Draws the table of the peers.", "RESULTS.csv PICTURE.svg"),
    Experiment("open_sizes.plot", "Draws the steps of a decoder.", "RESULTS.csv PICTURE.svg"),
)
"""All of them; those that tell most about the product first, tools last."""

PAGES = sorted({"README.md", *(experiment.table for experiment in EXPERIMENTS if experiment.table)})
"""The pages that hold tables, from the checkout: one of each experiment, and the project's own."""


def find(name: str) -> Experiment | None:
    """The experiment of that name."""
    return next((experiment for experiment in EXPERIMENTS if experiment.name == name), None)


def page() -> str:
    """The index as a page: `experiments/README.md`."""
    lines = [HEAD, "| question | command | table |", "| --- | --- | --- |"]
    for one in EXPERIMENTS:
        table = Path(one.table)
        shown = f"[{table.parent.name}]({table.relative_to('experiments')})" if one.table else ""
        command = one.command.replace("|", "\\|")
        lines.append(f"| {one.question} | `{command}` | {shown} |")
    return "\n".join([*lines, "", FOOT])


HEAD = """\
# Experiments

Each has a question, a command and, where it measures, a table. `python -m experiments` prints this list,
`python -m experiments NAME --help` what one takes.
This page is written by `python -m experiments render` from `experiments/index.py`.

- MODEL is an ONNX file, a folder of them, or the name of a network; `catalogue.py` has them all.
- `--threads`, `--budget`, `--bench`, `--seed`, `--processes`, `--time` and `--out` mean the same everywhere
  (`options.py`).
- What a run measures goes to `results/NAME.json`, with the machine, the day and the commit; `render` makes the tables
  of all pages from there, one for each kind of CPU. `python -m experiments --scratch NAME` keeps nothing.
"""
FOOT = """\
Beside them: `analysis/database.ipynb` reads a database with pandas, `arm_emulator` makes an ARM device on any machine.
"""
