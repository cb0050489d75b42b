"""Invalid files and variables raise a ValueError that names them, and nothing else.

Each damaged result, table or setting is a good one with some places changed: bytes, or values of
its structure. What is still a good result has to be shown by the report as well.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.limits import limited
from support.soak import amount, figure, seed, share
from unit.test_bench_results import result
from unit.test_call_trace import two_nodes

from xupc.api import lifecycle
from xupc.bench.results import Result
from xupc.call_trace.file import join_parts
from xupc.call_trace.file import load as load_trace
from xupc.cli import main
from xupc.cli.report import report_command
from xupc.export.formats import FORMATS
from xupc.json_text import parsed
from xupc.predict.machine_file import find, text_of
from xupc.topology.node_spec import parse_nodes
from xupc.tuning.selection_file import TEXT_OF_BUILT_IN, Found, load, read

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 1 << 31, 1 << 64, -(1 << 64), 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "x", "\0", "\ud800", "8x8", "a" * 3000, [], [[]], [0], [-1],
    [[0]], ["x"], {}, {"": 0}, {"x": []}, [[[[]]]],
]  # fmt: skip
TABLE = TEXT_OF_BUILT_IN.read_text(encoding="utf-8")


def _places(data: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Everything in a structure, by its path."""
    out = [where] if where else []
    keys = data if isinstance(data, dict) else range(len(data) if isinstance(data, list) else 0)
    for key in keys:
        out += _places(data[key], (*where, key))
    return out


def _changed(rng: random.Random, data: Any) -> Any:
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        *above, key = rng.choice(_places(data) or [()]) or [None]
        inner = data
        for step in above:
            inner = inner[step]
        kind = rng.randrange(4)
        if kind == 0 and isinstance(inner, dict):
            del inner[key]
        elif kind == 1 and isinstance(inner, list):
            inner += inner[:1]
        elif isinstance(inner, dict | list) and inner:
            inner[key] = copy.deepcopy(rng.choice(VALUES))  # later changes must not reach VALUES
        if not data:
            break
    return data


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Some bytes replaced, cut out or doubled."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            out[at:] = b""
        elif kind == 1:
            out[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
        elif kind == 2:
            out[at:at] = out[at : at + 40]
        else:
            out[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(out)


@pytest.mark.soak
def test_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed())
    path = tmp_path / "result.json"
    result().save(path)
    good = json.loads(path.read_bytes())
    counts: Counter[str] = Counter()
    trials, shown = amount(share(1500), 30_000), amount(4, 500)
    for k in range(trials):
        if rng.random() < 0.7:
            data = json.dumps(_changed(rng, good)).encode(errors="replace")
            data = data if rng.random() < 0.9 else gzip.compress(data)
        else:
            whole = path.read_bytes() if k == 0 else json.dumps(good).encode()
            data = _damaged(rng, gzip.compress(whole) if rng.random() < 0.5 else whole)
        bad = tmp_path / "bad.json"
        bad.write_bytes(data)
        with limited():
            words, found = _said_of(Result.load, bad)
        if words is not None:
            assert str(bad) in words
            counts["refused"] += 1
            continue
        assert isinstance(found, Result)
        if counts["readable"] < shown:
            forms = ["--markdown", "-"], ["-o", "page.html"], ["--compact", "small.json"]
            out = forms[counts["readable"] % 3]
            words = [str(bad)] if "--compact" in out else [str(path), str(bad)]
            monkeypatch.chdir(tmp_path)
            with limited():
                run = CliRunner().invoke(report_command, [*words, *out, "--force"])
            assert isinstance(run.exception, SystemExit | None), data
            assert run.exit_code in (0, 1, 2), data
            counts[f"exit {run.exit_code}"] += 1
        counts["readable"] += 1
    words = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    figure("damaged results of bench", f"{trials} files, `xupc report` of some: {words}")


@pytest.mark.parametrize("nbytes", [1 << 40, 1 << 64, pytest.param(10**400, id="401 digits")])
def test_a_result_with_blocks_that_no_memory_holds(tmp_path: Path, nbytes: int) -> None:
    """The report makes no plan of it, whose steps would take all memory."""
    path = tmp_path / "result.json"
    result().save(path)
    data = json.loads(path.read_bytes())
    for cell in data["jobs"][0]["cells"]:
        cell["nbytes"] = nbytes
    path.write_text(json.dumps(data))
    run = CliRunner().invoke(report_command, [str(path), "--markdown", "-"])
    assert isinstance(run.exception, SystemExit | None)
    assert run.exit_code in (1, 2), run.output  # it has a wrong result, too


@pytest.mark.parametrize(
    "change", [{"threads": 1 << 40}, {"threads": 1e999}, {"node": -1}, {"thread": "x"}, {"at": []}]
)
def test_a_part_of_a_thread_that_cannot_be(tmp_path: Path, change: dict[str, Any]) -> None:
    two_nodes(tmp_path)
    path = tmp_path / "thread-0.names"
    first, *others = path.read_bytes().splitlines(keepends=True)
    wrong = json.dumps({**json.loads(first), **change}).encode()
    path.write_bytes(b"".join([wrong, b"\n", *others]))
    with limited(1 << 28), pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        load_trace(tmp_path)


@pytest.mark.parametrize("change", [{"level": 1 << 40}, {"level": -1}, {"threads": [3]}])
def test_a_trace_that_cannot_be(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "trace.json"
    (parts := tmp_path / "trace.json.parts").mkdir()
    two_nodes(parts)
    join_parts(path)
    data = json.loads(path.read_bytes())
    data["xupc"].update(change)
    path.write_text(json.dumps(data))
    with limited(1 << 28), pytest.raises(ValueError, match=r"trace\.json"):
        load_trace(path)


def test_a_number_of_a_machine_that_no_float_holds(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    for key in ("copy_rate", "cores"):
        path.write_text(f"version = 3\n[{key}]\nvalue = {10**400}\n")
        with pytest.raises(ValueError, match=rf"machine\.toml: {key}: value: expected"):
            find(str(path))


def test_a_result_of_a_type_that_is_none(tmp_path: Path) -> None:
    """Only the plan of the call is missing on its page."""
    path = tmp_path / "result.json"
    result().save(path)
    data = json.loads(path.read_bytes())
    data["jobs"][0]["cells"][0].update(collective="all_reduce_mpi_all", dtype="1:8", op="ADD")
    path.write_text(json.dumps(data))
    run = CliRunner().invoke(report_command, [str(path), "--markdown", "-"])
    assert run.exit_code == 1, run.output  # it has a wrong result
    assert "all_reduce_mpi_all" in run.output


def _said_of(function: Callable[[Any], Any], x: Any) -> tuple[str | None, Any]:
    """Return (the text of its ValueError, None) or (None, its result)."""
    try:
        return None, function(x)
    except ValueError as e:
        return str(e), None


@pytest.mark.soak
def test_traces(tmp_path: Path) -> None:
    """Damaged files of traces, and damaged parts of them."""
    rng = random.Random(f"{seed()} traces")
    whole = tmp_path / "whole.json"
    (parts := tmp_path / "whole.json.parts").mkdir()
    two_nodes(parts)
    good = {path.name: path.read_bytes() for path in parts.iterdir()}
    join_parts(whole)
    data = json.loads(whole.read_bytes())
    bad = tmp_path / "bad.json.parts"
    counts: Counter[str] = Counter()
    trials = amount(share(600), 10_000)
    for _ in range(trials):
        shutil.rmtree(bad, ignore_errors=True)
        file = tmp_path / "bad.json"
        if rng.random() < 0.5:
            file.write_bytes(_damaged_json(rng, data, whole.read_bytes()))
        else:
            file = bad
            bad.mkdir()
            name = rng.choice(sorted(good))
            for each, content in good.items():
                (bad / each).write_bytes(_part_of(rng, content) if each == name else content)
        words = rng.choice((
            ["trace"], ["trace", "--json"], ["predict", "--nodes", "2x2"],
            ["export", "--format", rng.choice(FORMATS), "-o", str(tmp_path / "out"), "--force"],
        ))  # fmt: skip
        with limited():
            run = CliRunner().invoke(main, [*words, str(file)])
        assert isinstance(run.exception, SystemExit | None), (words, file)
        assert run.exit_code in (0, 2), (words, file)
        counts[f"exit {run.exit_code}"] += 1
    words_ = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    figure("damaged traces", f"{trials} files and folders: {words_}")


def _damaged_json(rng: random.Random, data: Any, text: bytes) -> bytes:
    if rng.random() < 0.8:
        return json.dumps(_changed(rng, data)).encode(errors="replace")
    return _damaged(rng, text)


def _part_of(rng: random.Random, content: bytes) -> bytes:
    """Return one of the two files of a part, damaged: lines of JSON, or the head and the rows."""
    if content[:1] != b"{":
        at = rng.choice((rng.randrange(128), rng.randrange(4096, len(content))))
        return content[:at] + rng.choice((
            _damaged(rng, content[at : at + 64]), b"\xff" * 8, bytes(8), rng.randbytes(8),
        )) + content[at + rng.choice((8, 64)) :]  # fmt: skip
    lines = [json.loads(line) for line in content.splitlines()]
    changed = json.dumps(_changed(rng, lines))
    made = json.loads(changed)
    made = made if isinstance(made, list) else [made]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in made)
    return text if rng.random() < 0.9 else _damaged(rng, text)


@pytest.mark.soak
def test_machines(tmp_path: Path) -> None:
    """Damaged files of machines, and what is priced by those that can be read."""
    rng = random.Random(f"{seed()} machines")
    path, trials = tmp_path / "machine.toml", amount(share(800), 20_000)
    lines = text_of(find("default")).splitlines(keepends=True)
    counts: Counter[str] = Counter()
    for _ in range(trials):
        text = lines[:]
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            key, equals, _ = text[at].partition("=")
            value = rng.choice([*map(json.dumps, VALUES[:21]), "5e-324", "1e-300", "inf", "nan"])
            text[at] = f"{key}{equals} {value}\n" if equals else rng.choice(text)
        data = "".join(text).encode(errors="replace")
        path.write_bytes(data if rng.random() < 0.7 else _damaged(rng, data))
        words = ["predict", "Bcast", "--nodes", "2x2", "--size", "8,64K", "--machine", str(path)]
        with limited():
            run = CliRunner().invoke(main, words)
        assert isinstance(run.exception, SystemExit | None), path.read_bytes()
        assert run.exit_code in (0, 2), path.read_bytes()
        counts[f"exit {run.exit_code}"] += 1
    words = [f"{n} {what}" for what, n in sorted(counts.items())]
    figure("damaged files of machines", f"{trials} files: {', '.join(words)}")


def test_deep_and_bombs(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    for data in (b"[" * 100_000, b'{"a":' * 100_000, gzip.compress(b"[" * 100_000), b"\x1f\x8b"):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"deep\.json"):
            Result.load(path)


@pytest.mark.soak
def test_tables(tmp_path: Path) -> None:
    """Damage to the built-in table, and to one with everything a user can write."""
    rng = random.Random(seed())
    path = tmp_path / "tuning.toml"
    trials, refused = amount(share(1500), 30_000), 0
    lines = TABLE.splitlines(keepends=True)
    for _ in range(trials):
        text = lines[:]
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            key, equals, _ = text[at].partition("=")
            value = json.dumps(rng.choice(VALUES[:21]))
            text[at] = f"{key}{equals} {value}\n" if equals else rng.choice(text)
        data = "".join(text).encode(errors="replace")
        path.write_bytes(data if rng.random() < 0.6 else _damaged(rng, data))
        found = read(path)
        assert isinstance(found, Found)
        words, _ = _said_of(load, found)
        if words is not None:
            assert str(path) in words
            refused += 1
    figure("damaged tuning tables", f"{trials} files: {refused} refused, by a ValueError")


NOISE = ["", " ", "0", "-1", "1", "8", "nan", "inf", "-inf", "1e999", "9" * 400, "9" * 5000, "4x",
         "x4", "0x0", "1x1", "4x2", "99999999999x99999999999", "1,", ",", "1,1", "0,1", "cyclic:",
         "cyclic:0", "cyclic:9" * 3, "cyclic:" + "9" * 5000, "64MiB", "64 MiB", "-64MiB", "1.5GiB",
         "9" * 400 + "GiB", "0.0000001k", "KiB", "true", "\u0664", "²", "½", "4\u00d72", "\0",
         "None", "1_000", "0x10", "1e3", "1;2"]  # fmt: skip


@pytest.mark.parametrize("name", ["XUPC_HEAP_SIZE", "XUPC_TIMEOUT", "XUPC_NODES"])
def test_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    rng = random.Random(seed())
    trials = amount(share(2000), 20_000)
    texts = [*NOISE]
    texts += ["".join(rng.choices("0123456789x,:cyli.eE+-_ kMGiB\u0663", k=rng.randrange(1, 12)))
              for _ in range(trials)]  # fmt: skip
    for text in texts:
        if "\0" not in text:
            monkeypatch.setenv(name, text)
        words = _said_of_settings()
        assert words is None or name.removeprefix("XUPC_").lower() in words.lower(), text


def test_a_heap_size_has_the_units_of_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("1M", "1MB", "1MiB", "1024k", "1048576"):
        monkeypatch.setenv("XUPC_HEAP_SIZE", text)
        assert lifecycle.settings_of().heap_size == 1 << 20, text


def _said_of_settings() -> str | None:
    """The error that the variables make; None if they are good, and then they mean something."""
    try:
        settings = lifecycle.settings_of()
        nodes = parse_nodes(settings.nodes, 8) if settings.nodes else [0] * 8
    except ValueError as e:
        return str(e)
    assert len(nodes) == 8
    assert 0 < settings.heap_size < 1 << 46
    assert settings.timeout is None or settings.timeout > 0
    return None


@pytest.mark.parametrize(
    "name",
    [b'"\\ud800"', b'"a\\uDFFFb"', b'"\xed\xa0\x80"', '"\ud800"'.encode("utf-16", "surrogatepass")],
)
def test_half_of_a_character_is_no_json(tmp_path: Path, name: bytes) -> None:
    """Python reads it, but no file and no terminal takes it."""
    with pytest.raises(ValueError, match="surrogates not allowed"):
        parsed(name)
    whole = tmp_path / "result.json"
    result().save(whole)
    bad = tmp_path / "bad.json"
    bad.write_bytes(whole.read_bytes().replace(b'"all_broadcast"', name))
    assert bad.read_bytes() != whole.read_bytes()
    with pytest.raises(ValueError, match=r"bad\.json: not readable as JSON"):
        Result.load(bad)


def test_what_is_nested_too_deeply_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parsed(b"[" * 99_999)


@pytest.mark.parametrize("name", [b'"\\ud83d\\ude00"', '"\U0001f600"'.encode(), b'"\\\\ud800"'])
def test_whole_characters_are_json(name: bytes) -> None:
    assert parsed(name) == json.loads(name)
