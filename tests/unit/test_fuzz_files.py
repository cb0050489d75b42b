"""Invalid files and variables raise a ValueError that names them, and nothing else.

Each damaged result, table or setting is a good one with some places changed: bytes, or values of
its structure. What is still a good result has to be shown by the report as well.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.soak import amount, figure, seed, share
from unit.test_bench_results import result

from xupc.api import lifecycle
from xupc.bench.results import Result
from xupc.cli.report import report_command
from xupc.json_text import parsed
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
def test_results(tmp_path: Path) -> None:
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
        words, found = _said_of(Result.load, bad)
        if words is not None:
            assert str(bad) in words
            counts["refused"] += 1
            continue
        assert isinstance(found, Result)
        if counts["readable"] < shown:
            run = CliRunner().invoke(report_command, [str(path), str(bad), "--markdown", "-"])
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


def _said_of(function: Callable[[Any], Any], x: Any) -> tuple[str | None, Any]:
    """Return (the text of its ValueError, None) or (None, its result)."""
    try:
        return None, function(x)
    except ValueError as e:
        return str(e), None


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
