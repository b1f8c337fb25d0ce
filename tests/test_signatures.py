"""Signatures: who made a library or an export; what is tampered with, of another or unsigned is refused."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import autofuse
from autofuse import benchmark
from autofuse.backend.c_interface import FOLDER
from autofuse.backend.library.library import load, read_metadata
from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.measure.networks.bench import Contender
from autofuse.values.signatures import Signature, fingerprint, new_key, public_key, require_signature, sign
from tests.backend.forging import forged
from tests.database.recorded import fill
from tests.measure.test_remote_runner import KEY, Served


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pairs `mine` and `other`."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        new_key(folder / name)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, onnx_builder: type) -> Path:
    build = onnx_builder()
    build.op("Relu", "y", build.dense("dense", "x", (16, 16)))
    path: Path = build.save(tmp_path_factory.mktemp("model") / "small.onnx", {"x": (4, 16)}, ["y"])
    return path


@pytest.fixture(scope="module")
def signed(model: Path, keys: Path) -> Path:
    library = model.with_name("signed.so")
    arguments = ("compile", model, "-o", library, "--db", model.parent / "p.db", "-n", 1, "--sign", keys / "mine")
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    return library


@pytest.fixture(scope="module")
def unsigned(model: Path) -> Path:
    library = model.with_name("unsigned.so")
    autofuse.compile(model, library, database=str(model.parent / "p.db"), threads=1)
    return library


def test_a_new_key_is_the_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    done = call("key", "new", tmp_path / "me")
    assert done.exit_code == 0, done.stderr
    assert stat.S_IMODE((tmp_path / "me").stat().st_mode) == 0o600
    assert fingerprint(public_key(tmp_path / "me.pub")) in done.stdout
    assert fingerprint(public_key(tmp_path / "me.pub")) in call("key", "show", tmp_path / "me.pub").stdout
    before = (tmp_path / "me").read_bytes()
    again = call("key", "new", tmp_path / "me")
    assert again.exit_code == 2
    assert "it exists already; name a new file" in again.stderr
    (tmp_path / "me.pub").unlink()
    assert call("key", "new", tmp_path / "me").exit_code == 2
    assert (tmp_path / "me").read_bytes() == before
    assert not (tmp_path / "me.pub").exists()


@pytest.mark.parametrize("place", [".", "", "folder", "p.db-journal", "folder/x/y"])
def test_a_key_is_not_written_where_no_file_of_its_own_can_be(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    fill(tmp_path / "p.db", 1, 1)
    before = sorted(tmp_path.rglob("*"))
    done = call("key", "new", place)
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_openssl_reads_the_keys(keys: Path) -> None:
    made = subprocess.run(
        ["openssl", "pkey", "-in", str(keys / "mine"), "-pubout"], capture_output=True, text=True, check=True
    )
    assert made.stdout == (keys / "mine.pub").read_text()


def test_a_signed_library_runs_with_and_without_trust(signed: Path, keys: Path) -> None:
    inputs = {"x": np.ones((4, 16), "float32")}
    (wanted,) = autofuse.load(signed)(inputs)
    (found,) = autofuse.Session(signed, trust=[keys / "other.pub", keys / "mine.pub"]).run(None, inputs)
    np.testing.assert_array_equal(found, wanted)
    assert call("run", signed, "--trust", keys / "mine.pub").exit_code == 0
    assert call("run", signed).exit_code == 0


def test_an_unsigned_library_is_refused_where_trust_is_wanted(unsigned: Path, keys: Path, model: Path) -> None:
    assert call("run", unsigned).exit_code == 0
    for arguments in (("run", unsigned), ("bench", model, "--library", unsigned)):
        done = call(*arguments, "--trust", keys / "mine.pub")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "it is not signed, and --trust wants a signature" in done.stderr


def test_another_key_is_refused_by_its_fingerprint(signed: Path, keys: Path) -> None:
    done = call("run", signed, "--trust", keys / "other.pub")
    mine, other = (fingerprint(public_key(keys / f"{name}.pub")) for name in ("mine", "other"))
    assert done.exit_code == 2
    assert f"signed by key {mine}, which is none of those of --trust ({other})" in done.stderr


def test_any_byte_that_changed_is_refused(signed: Path, keys: Path, tmp_path: Path) -> None:
    whole = signed.read_bytes()
    path, trust = tmp_path / "tampered.so", [keys / "mine.pub"]
    for place in (100, len(whole) // 2, len(whole) - 500, len(whole) - 250, len(whole) - 50, len(whole) - 90):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InputError, match=r"tampered\.so: "):
            load(path, trust=trust)


def test_a_signature_of_another_library_is_refused(signed: Path, unsigned: Path, keys: Path, tmp_path: Path) -> None:
    path = tmp_path / "borrowed.so"
    tail = signed.read_bytes()[-104:]
    other = bytearray(unsigned.read_bytes())
    assert other[-168:] == signed.read_bytes()[-272:-104], "the same model makes the same library"
    path.write_bytes(bytes(other) + tail)
    assert read_metadata(path, [keys / "mine.pub"]).threads == 1
    path = forged(unsigned, tmp_path / "forged.so", body=lambda body: body.update(threads=2))
    path.write_bytes(path.read_bytes() + tail)
    with pytest.raises(InputError, match="its signature does not match its content"):
        load(path, trust=[keys / "mine.pub"])


def test_a_signature_of_one_kind_is_none_of_another(keys: Path) -> None:
    made = sign(keys / "mine", "library", b"content")
    require_signature("it", "library", b"content", made, [keys / "mine.pub"])
    for kind, content in (("export", b"content"), ("library", b"other")):
        with pytest.raises(InputError, match="it: its signature does not match its content"):
            require_signature("it", kind, content, made, [keys / "mine.pub"])
    with pytest.raises(InputError, match="none of those of --trust"):
        require_signature("it", "library", b"content", Signature(bytes(32), made.value), [keys / "mine.pub"])


@pytest.mark.parametrize("content", [b"", b"no key", b"\x00" * 100])
def test_files_that_are_no_keys_are_named_before_anything_is_built(
    content: bytes, signed: Path, keys: Path, model: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_bytes(content)
    done = call("compile", model, "-o", tmp_path / "m.so", "--db", tmp_path / "p.db", "--sign", wrong)
    assert (done.exit_code, (tmp_path / "m.so").exists()) == (2, False)
    assert "is not a private Ed25519 key without a password" in done.stderr
    done = call("run", signed, "--trust", wrong)
    assert done.exit_code == 2
    assert "is not a public Ed25519 key" in done.stderr
    assert "cannot read" in call("run", signed, "--trust", tmp_path / "absent").stderr
    assert "is not a public Ed25519 key" in call("run", signed, "--trust", keys / "mine").stderr


def test_trust_without_a_library_is_refused(model: Path, keys: Path) -> None:
    done = call("bench", model, "--trust", keys / "mine.pub")
    assert done.exit_code == 2
    assert "--trust: it is for the library that --library names" in done.stderr


def test_a_library_is_checked_without_being_loaded(signed: Path, unsigned: Path, keys: Path, tmp_path: Path) -> None:
    found = autofuse.library_check(signed, trust=[keys / "mine.pub"])
    assert (found.signer, found.trusted) == (fingerprint(public_key(keys / "mine.pub")), True)
    assert found.sha256 == hashlib.sha256(signed.read_bytes()).hexdigest()
    assert (found.threads, found.kernels > 0) == (1, True)
    assert not autofuse.library_check(unsigned).trusted
    told = call("library", "check", unsigned).output
    assert "nobody" in told and "clock" not in told, "the words of trusted times do not explain trust in people"
    assert "…" not in told, "what the CPU must have is listed whole"
    shown = call("library", "check", signed, "--trust", keys / "mine.pub")
    assert shown.exit_code == 0 and found.signer in shown.stdout
    for library, trust, words in (
        (unsigned, "mine.pub", "it is not signed"),
        (signed, "other.pub", "which is none of those of --trust"),
    ):
        refused = call("library", "check", library, "--trust", keys / trust)
        assert refused.exit_code == 2 and words in refused.stderr
    content = bytearray(signed.read_bytes())
    for place in (200, len(content) // 2, len(content) - 400):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "changed.so").write_bytes(changed)
        assert call("library", "check", tmp_path / "changed.so").exit_code == 2, place


@pytest.mark.parametrize("moment", ["generate_inputs", "open_runner"])
@pytest.mark.long
def test_bench_runs_the_very_bytes_that_it_verified(
    moment: str, model: Path, signed: Path, unsigned: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "theirs.so"
    shutil.copyfile(signed, library)
    original, opened, loaded = getattr(benchmark, moment), [], []

    def contender(name: str, kind: str, path: Path) -> Contender:
        opened.append(path)
        return Contender(name, kind, path)

    def swapped(*arguments: object, **options: object) -> object:
        shutil.copyfile(unsigned, library)  # by whoever else may write to that folder
        loaded.extend(path.read_bytes() for path in opened)
        return original(*arguments, **options)

    def run() -> object:
        trust, database = [keys / "mine.pub"], str(tmp_path / "p.db")
        return autofuse.bench(
            model, library=library, budget="1s", database=database, threads=1, trust=trust, against="none"
        )

    monkeypatch.setattr(benchmark, "Contender", contender)
    monkeypatch.setattr(benchmark, moment, swapped)
    if moment == "generate_inputs":
        with pytest.raises(InputError, match="it is not signed"):
            run()
    else:
        run()
        assert loaded[0] == signed.read_bytes()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.kill()


def bench_there(served: Served, model: Path, library: Path, key: Path, database: Path) -> object:
    return autofuse.bench(
        model, library=library, budget="1s", database=str(database), threads=1, trust=[key], against="none",
        rpc=f"127.0.0.1:{served.port}", rpc_key=KEY,
    )  # fmt: skip


@pytest.mark.long
def test_a_device_elsewhere_runs_the_very_bytes_that_were_verified_here(
    served: Served, model: Path, signed: Path, keys: Path, tmp_path: Path
) -> None:
    bench_there(served, model, signed, keys / "mine.pub", tmp_path / "p.db")
    (kept,) = served.log.parent.glob(f"autofuse-scratch-*/files/{hashlib.sha256(signed.read_bytes()).hexdigest()}.so")
    kept.write_bytes(b"put there by another session")
    bench_there(served, model, signed, keys / "mine.pub", tmp_path / "p.db")
    assert kept.read_bytes() == signed.read_bytes()


@pytest.mark.long
def test_what_is_not_trusted_never_reaches_a_device_elsewhere(
    served: Served, model: Path, signed: Path, unsigned: Path, keys: Path, tmp_path: Path
) -> None:
    changed = bytearray(signed.read_bytes())
    changed[len(changed) // 2] ^= 1  # of the code: the description and its signature stay
    (tmp_path / "changed.so").write_bytes(changed)
    for library, key, why in (
        (unsigned, "mine.pub", "it is not signed"), (signed, "other.pub", "none of them is trusted|signed by"),
        (tmp_path / "changed.so", "mine.pub", "changed.so"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=why):
            bench_there(served, model, library, keys / key, tmp_path / "p.db")
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        assert library is signed or not list(served.log.parent.glob(f"autofuse-scratch-*/files/{digest}.so"))


def test_without_the_package_one_line_says_what_to_install(signed: Path, keys: Path) -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None; import autofuse.cli.main as m; "
        f"m.app(['run', {str(signed)!r}, '--trust', {str(keys / 'mine.pub')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'autofuse[sign]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_c_runs_a_signed_library_too(signed: Path, tmp_path: Path) -> None:
    arguments = shlex.split(call("cflags").stdout)
    command = ["gcc", "-Wall", "-Werror", str(FOLDER / "example.c"), *arguments, "-o", str(tmp_path / "example")]
    subprocess.run(command, check=True)
    done = subprocess.run([str(tmp_path / "example"), str(signed)], capture_output=True, text=True, check=True)
    assert "first value" in done.stdout


@pytest.fixture(scope="module")
def export(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    fill(folder / "p.db", 1, 3)
    done = call("db", "export", folder / "signed", "--db", folder / "p.db", "--sign", keys / "mine")
    assert done.exit_code == 0, done.stderr
    return folder / "signed"


def test_a_signed_export_is_imported_with_and_without_trust(export: Path, keys: Path, tmp_path: Path) -> None:
    for number, trust in enumerate(((), ("--trust", keys / "other.pub", "--trust", keys / "mine.pub"))):
        done = call("db", "import", export, "--db", tmp_path / f"{number}.db", *trust)
        assert done.exit_code == 0, done.stderr


def refused(export: Path, key: Path, database: Path) -> str:
    done = call("db", "import", export, "--db", database, "--trust", key)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert not database.exists()
    return done.stderr


def test_exports_that_are_unsigned_tampered_with_or_of_another_are_refused(
    export: Path, keys: Path, tmp_path: Path
) -> None:
    database = tmp_path / "into.db"
    assert "none of those of --trust" in refused(export, keys / "other.pub", database)
    copy = Path(shutil.copytree(export, tmp_path / "copy"))
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "af_run.jsonl").write_bytes((copy / "af_run.jsonl").read_bytes().replace(b'"seed":', b'"seed":1'))
    assert "the manifest states" in refused(copy, keys / "mine.pub", database)
    content = (copy / "af_run.jsonl").read_bytes()
    for file in manifest["files"]:
        if file["table"] == "af_run":
            file["bytes"], file["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert "its signature does not match its content" in refused(copy, keys / "mine.pub", database)
    manifest["signature"]["value"] = "no digits"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert "signature: expected public and value" in refused(copy, keys / "mine.pub", database)
    del manifest["signature"]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert "it is not signed, and --trust wants a signature" in refused(copy, keys / "mine.pub", database)
