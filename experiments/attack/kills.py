"""Axis "kills": verbs in processes of their own, which are killed, starved, robbed of their streams, or collide."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from autofuse.errors import InputError
from experiments.attack.stage import (
    Answer,
    Broken,
    command,
    in_time,
    judged,
    measured,
    require_untouched,
    room_of,
    state,
)

COMPILE = ("compile", "model.onnx", "--db", "own.db", "-n", "1", "-o", "model.so")
VERBS: tuple[tuple[str, ...], ...] = (
    COMPILE,
    (*COMPILE, "--sign", "key"),
    ("compile", "parts.onnx", "--db", "own.db", "-n", "1", "-o", "parts.so"),
    ("db", "export", "export", "--db", "own.db"),
    ("db", "export", "shared", "--share", "--db", "own.db"),
    ("db", "import", "shared", "--db", "own.db"),
    ("db", "export", "new", "--db", "own.db"),
    ("db", "export", "--optuna", "new.log", "--db", "own.db"),
    ("db", "merge", "source.db", "--db", "own.db"),
    ("db", "import", "export", "--db", "own.db"),
    ("db", "prune", "--older-than", "90d", "--db", "own.db"),
    ("report", "--db", "own.db", "-o", "pages"),
    ("report", "--db", "own.db", "--html", "new.html"),
    ("report", "--db", "own.db"),
    ("plan", "export", "model.onnx", "-o", "new.svg"),
    ("run", "model.so", "-o", "arrays"),
    ("inspect", "model.onnx", "--operators"),
    ("device", "list"),
)
TUNE = ("tune", "model.onnx", "--db", "own.db", "--trials", "2", "--budget", "30s", "-n", "1", "--seed")
ROOT = Path(__file__).resolve().parent
OWN = frozenset(f"{name}{end}" for name in ("own.db", "source.db", "harddb") for end in ("", "-wal", "-shm"))


def started(words: Sequence[str], before: Callable[[], object] = lambda: None, name: str = "") -> int:
    """A verb in a forked process, as its own program would be; its streams are files of that `name`."""
    import autofuse.cli.main  # noqa: F401  before a limit or a signal meets the experiment instead of the verb

    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setpgid(0, 0)
        for number, end in ((1, "out"), (2, "err")):
            descriptor = os.open(f"../{name}said.{end}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(descriptor, number)
            os.close(descriptor)
        before()
        code = _run(words)
    except BaseException:  # noqa: BLE001 told as a finding, by the exit code and this text
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _run(words: Sequence[str]) -> int:
    from autofuse.cli.main import run

    sys.argv = ["autofuse", *words]
    for number, stream in ((1, "stdout"), (2, "stderr")):
        with suppress(OSError):
            setattr(sys, stream, os.fdopen(os.dup(number), "w", encoding="utf-8"))
    try:
        run()
    except SystemExit as end:
        with suppress(OSError):
            sys.stdout.flush()
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def ended(child: int, words: Sequence[str], name: str = "") -> Answer:
    """What a process said; Broken when it was not killed by us and ended as no verb may."""
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    texts = [Path(f"../{name}said.{end}").read_text(errors="replace") for end in ("out", "err")]
    answer = Answer(code, *texts)
    return answer if code == -signal.SIGKILL else judged(answer, words)


def attempt(folder: Path, seed: int) -> str:
    """One scenario; afterwards the same command works, and nothing is lost."""
    dice = random.Random(seed)
    scenario = dice.choice(SCENARIOS)
    room = room_of(folder)
    before, rows = state(room), measured(room / "own.db")
    with in_time(400):
        text = scenario(dice)
    if rows - measured(room / "own.db"):
        raise Broken(f"destroyed: measurements, by {text}")
    mine = OWN | {"model.so", "parts.so"} | {name for name in before if name.startswith(("export/", "shared/"))}
    require_untouched(before, {k: v for k, v in state(room).items() if not k.endswith(".part")}, mine, text)
    if text.startswith("refused"):
        raise InputError(text)
    return text


def killed(dice: random.Random) -> str:
    """kill -9 at any moment: what stood there still works, and the same command does what it would have done."""
    words = dice.choice(VERBS[:-2])
    return _killed(words, dice.random() ** 2 * 2.5)


def killed_tune(dice: random.Random) -> str:
    """The same, while searching."""
    return _killed((*TUNE, str(dice.randrange(1, 1000))), dice.random() * 12)


def _killed(words: Sequence[str], seconds: float) -> str:
    child = started(words)
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    first = ended(child, words)
    rows = measured(Path("own.db"))
    if words[:1] == ("compile",) and command("run", "model.so").code:
        raise Broken(f"the old library is gone after a kill at {seconds:.2f} s")
    again = ended(started(words), words)
    what = f"{' '.join(words)} killed after {seconds:.2f} s ({first.code}), then {again.code}: {again.last}"
    if again.code:
        raise Broken(f"the same command does not work: {what}")
    if rows - measured(Path("own.db")):
        raise Broken(f"destroyed: measurements after {what}")
    if (check := command("db", "check", "--db", "own.db")).code:
        raise Broken(f"damaged: {check.out.strip()[:300]} after {what}")
    return what


def asked_to_end(dice: random.Random) -> str:
    """SIGINT, SIGTERM, SIGHUP: exit code 130 or the whole work, and nothing in between."""
    words = dice.choice((*VERBS[:-2], (*TUNE, "7")) if dice.random() < 0.3 else VERBS[:-2])
    number = dice.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    child = started(words, lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    time.sleep(0.3 + dice.random() ** 2 * 2)
    for _ in range(dice.choice((1, 1, 2))):
        with suppress(ProcessLookupError):
            os.kill(child, number)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    text = Path("../said.err").read_text(errors="replace")
    if "Traceback" in text or code not in (0, 130, -number):
        raise Broken(f"{' '.join(words)} asked to end by {number.name}: {code}: {text[-500:]}")
    left = [path.name for path in Path().rglob("*.part")]
    if left and code != -number:
        raise Broken(f"left behind by {' '.join(words)}: {left}")
    return f"{words[0]} ended by {number.name} with {code}"


def starved(dice: random.Random) -> str:
    """Files that may not grow (a full disk), few descriptors, little memory, little stack."""
    words = dice.choice(VERBS)
    what, most = dice.choice(
        (
            (resource.RLIMIT_FSIZE, dice.choice((0, 1, 100, 4096, 30_000, 200_000))),
            (resource.RLIMIT_NOFILE, dice.choice((8, 16, 24, 40))),
            (resource.RLIMIT_AS, dice.choice((1 << 20, 1 << 29, 1 << 30))),
            (resource.RLIMIT_STACK, 1 << 16),
        )
    )
    child = started(words, lambda: _starve(what, most))
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    text = Path("../said.err").read_text(errors="replace")
    if "Traceback" in text or "defect of autofuse" in text or code < 0:
        raise Broken(f"{' '.join(words)} with limit {what} of {most}: {code}: {text[-700:]}")
    if words == COMPILE and (again := command("run", "model.so")).code:
        raise Broken(f"the old library is gone: {again.last}")
    last = (text.strip().splitlines() or [""])[-1]
    return f"{'refused' if code else 'done'}: {' '.join(words)} with limit {what} of {most}: {code}: {last[:200]}"


def _starve(what: int, most: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def robbed(dice: random.Random) -> str:
    """The standard output is full, closed, or nobody reads it."""
    words = dice.choice(VERBS)
    way = dice.choice(("full", "closed", "pipe", "all closed"))

    def rob() -> None:
        if way == "full":
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        elif way == "pipe":
            reads, writes = os.pipe()
            os.close(reads)
            os.dup2(writes, 1)
        else:
            for number in (0, 1, 2) if way == "all closed" else (1,):
                os.close(number)

    child = started(words, rob)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = Path("../said.err").read_text(errors="replace")
    if "Traceback" in text or "defect" in text or code not in (0, 1, 2):
        raise Broken(f"{' '.join(words)}, stdout {way}: {code}: {text[-700:]}")
    return f"{words[0]}, stdout {way}: {code}"


def side_by_side(dice: random.Random) -> str:
    """Several verbs on one database at once: each does its work, or says that it cannot."""
    chosen = [dice.choice(VERBS) for _ in range(3)]
    children = [started(words, name=str(place)) for place, words in enumerate(chosen)]
    answers = [
        ended(child, words, str(place)) for place, (child, words) in enumerate(zip(children, chosen, strict=True))
    ]
    for words, answer in zip(chosen, answers, strict=True):
        if answer.code and "another" not in answer.last and "lock" not in answer.last and "exist" not in answer.last:
            raise Broken(f"{' '.join(words)} beside others: {answer.code}: {answer.last}")
    if (check := command("db", "check", "--db", "own.db")).code:
        raise Broken(f"damaged: {check.out.strip()[:300]} after {chosen}")
    return f"side by side: {[answer.code for answer in answers]}"


def unprivileged(dice: random.Random) -> str:
    """Another user, who may read everything and write nothing."""
    words = dice.choice(VERBS)

    def lower() -> None:
        os.environ.update(HOME="/nonexistent", XDG_DATA_HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent")
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)

    if os.getuid():
        return "refused: only root can become another user"
    if not all(path.stat().st_mode & 0o001 for path in (*Path(sys.base_prefix).resolve().parents, *ROOT.parents)):
        return "refused: another user cannot read this interpreter"
    for path in [Path("/".join(Path.cwd().parts[:end])) for end in range(3, len(Path.cwd().parts) + 1)]:
        path.chmod(0o755)
    before = state(Path())
    answer = ended(started(words, lower), words)
    changed = {name for name, kind in state(Path()).items() if before.get(name) != kind}
    if changed:
        raise Broken(f"{' '.join(words)} of another user changed {sorted(changed)[:5]}")
    return f"{'refused' if answer.code else 'done'}: {' '.join(words)} as nobody: {answer.code}: {answer.last}"


SCENARIOS: tuple[Callable[[random.Random], str], ...] = (
    killed, killed, killed_tune, asked_to_end, asked_to_end, starved, starved, starved, robbed, robbed, side_by_side,
    unprivileged, unprivileged,
)  # fmt: skip
