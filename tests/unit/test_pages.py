"""The pages of the documentation name only what there is, and all of it where they list it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from support.pages import PAGES, PROJECT, Block, Command, Page, matches

import xupc
from xupc import cli, errors
from xupc.bench.results import Candidate, Cell, Job, Launch, Result
from xupc.cli.variables import TESTS_PREFIX, VARIABLES
from xupc.records import replace
from xupc.tuning import selection_file

REFERENCE = PROJECT / "docs" / "reference"
FOUND = [Page(path) for path in PAGES]
EACH = pytest.mark.parametrize("page", FOUND, ids=lambda page: page.name)
AFTER_INIT = {"THREADS", "MYTHREAD"}
VARIABLE = re.compile(r"\bXUPC_[A-Z][A-Z_]*[A-Z]\b")


def command_of(name: str) -> click.Command:
    found = cli.main.get_command(click.Context(cli.main), name)
    assert found is not None, f"there is no command `xupc {name}`"
    return found


# ---- commands ------------------------------------------------------------------------------------


def parse(words: tuple[str, ...]) -> None:
    """Parse a command as click does, without a check that its files are there."""
    if not words or words[0] in ("-h", "--help", "--version"):
        return
    command = command_of(words[0])
    context = click.Context(command, info_name=words[0], **command.context_settings)
    rest = list(words[1:])
    values, _, _ = command.make_parser(context).parse_args(rest)
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if isinstance(value, str) and not isinstance(parameter.type, click.Path):
            parameter.type.convert(value, parameter, context)


def options(name: str) -> set[str]:
    return {
        option
        for parameter in command_of(name).params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"-h", "--help"}


@EACH
def test_commands_in_blocks_are_those_of_xupc(page: Page) -> None:
    for command in page.commands:
        try:
            parse(command.of_xupc)
        except click.UsageError as e:
            pytest.fail(f"{page.name}:{command.line}: {e.format_message()}")


@EACH
def test_commands_in_the_text_name_options_that_there_are(page: Page) -> None:
    for text in page.inline:
        # what follows a program or `python` are its own words
        words = re.sub(r"\S+\.py .*| python .*| -m .*", "", text).split()
        given = {word.strip("[]") for word in words[2:] if word.startswith(("-", "[-"))}
        unknown = given - options(words[1])
        assert not unknown, f"{page.name}: `{text}`: xupc {words[1]} has no {unknown}"


def test_a_command_with_a_wrong_option_is_found() -> None:
    for words in (("bench", "--size", "8"), ("run", "-n", "x", "a.py"), ("topo", "--bind", "far")):
        with pytest.raises(click.UsageError):
            parse(words)
    with pytest.raises(AssertionError, match="no command `xupc benhc`"):
        parse(("benhc",))


# ---- programs ------------------------------------------------------------------------------------


@EACH
def test_programs_that_a_page_starts_are_on_it_or_in_examples(page: Page) -> None:
    for command in page.commands:
        name = command.program
        if name in ("", "program.py", "mpi4py_program.py"):
            continue
        known = name in page.programs or (PROJECT / name).is_file()
        assert known, f"{page.name}:{command.line}: there is no program {name}"


@EACH
def test_every_program_of_a_page_is_started_by_it(page: Page) -> None:
    started = {word for command in page.commands for word in command.words}
    assert set(page.programs) <= started, f"{page.name}: add `$ xupc run -n N PROGRAM`"


@EACH
def test_blocks_of_python_are_python(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            try:
                ast.parse(block.text)
            except SyntaxError as e:
                pytest.fail(f"{page.name}:{block.line + (e.lineno or 0)}: {e.msg}")


def test_output_with_gaps() -> None:
    assert matches("a ... c\n...\nz\n", "a b c\nd\ne\nz\n")
    assert matches("a\n...\n", "a\n")
    assert not matches("a\nz\n", "a\nb\nz\n")
    assert not matches("a ... c\n", "a\nc\n")


def test_a_page_is_read_as_its_reader_reads_it() -> None:
    page = Page(PROJECT / "docs" / "index.md")
    page.blocks = [
        Block("python", "# a.py\nwith xupc.init():\n    pass\n", 1, True),
        Block("python", "x = 1\n", 5, True),
        Block("python", "x = 2\n", 8, False),
        Block("console", "$ A=1 xupc run -n 2 a.py\n1\n$ ls | wc\n", 10, True),
        Block("", "xupc info   # a remark\nother\n", 20, True),
    ]
    assert list(page.programs) == ["a.py"]
    assert [block.text for block in page.fragments] == ["x = 1\n"]
    assert page.whole == "# a.py\nwith xupc.init():\n    pass\n    x = 1\n"
    first, second, third = page.commands
    assert first == Command(("A=1", "xupc", "run", "-n", "2", "a.py"), "1\n", 11)
    assert (first.environment, first.program) == ({"A": "1"}, "a.py")
    assert (second.output, second.line, third.of_xupc, third.line) == (None, 13, ("info",), 21)


# ---- variables and keys --------------------------------------------------------------------------


def read_by_python(path: Path) -> set[str]:
    """The variables in texts of a module, but not in docstrings and longer messages."""
    texts = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
    return {text for text in texts if isinstance(text, str) and VARIABLE.fullmatch(text)}


def read_in_c(path: Path) -> set[str]:
    return set(re.findall(r'getenv\("(XUPC_\w+)"\)', path.read_text()))


def test_every_variable_that_is_read_is_listed_and_no_other() -> None:
    modules = [PROJECT / "setup.py", *(PROJECT / "xupc").rglob("*.py")]
    read = set().union(*(read_by_python(p) for p in modules if p.stem != "variables"))
    for kind in ("*.pyx", "*.pxi", "*.h"):
        read |= set().union(*(read_in_c(path) for path in (PROJECT / "xupc").rglob(kind)))
    read = {name for name in read if not name.startswith(TESTS_PREFIX)}
    assert read - VARIABLES.keys() == set(), "add these to xupc/cli/variables.py"
    unread = VARIABLES.keys() - read - set(VARIABLE.findall(text_of_scripts()))
    assert unread == set(), "nothing reads these: remove them from xupc/cli/variables.py"


def text_of_scripts() -> str:
    files = [*(PROJECT / "scripts").iterdir(), PROJECT / ".ci" / "run"]
    return "".join(path.read_text() for path in files if path.is_file())


def test_variables_of_our_scripts_and_tests_are_no_programs() -> None:
    """Programs inherit them: `xupc info` would report any other name as misspelt."""
    folders = [PROJECT / "tests" / name for name in ("support", "simulated", "site", "cluster")]
    helpers = [path for folder in folders for path in folder.rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in (*helpers, PROJECT / "tests/conftest.py")]
    found = set(VARIABLE.findall("".join([text_of_scripts(), *texts])))
    assert {x for x in found - VARIABLES.keys() if not x.startswith(TESTS_PREFIX)} == set()


@EACH
def test_a_page_names_variables_that_there_are(page: Page) -> None:
    """But those of the tests, which only pages for contributors name."""
    unknown = set(VARIABLE.findall(page.text)) - VARIABLES.keys()
    assert {name for name in unknown if not name.startswith(TESTS_PREFIX)} == set()


@pytest.mark.parametrize("name", ["api", "variables", "table-keys", "figures"])
def test_pages_that_are_made_are_up_to_date(name: str) -> None:
    command = [sys.executable, PROJECT / "scripts" / "reference.py", name]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    page = (REFERENCE / f"{name}.md").read_text(encoding="utf-8")
    assert made == page, f"run: python scripts/reference.py {name} > docs/reference/{name}.md"


def test_the_built_in_table_is_up_to_date() -> None:
    command = [sys.executable, PROJECT / "scripts" / "reference.py", "built-in-table"]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    path = "xupc/tuning/built_in_table.py"
    assert made == (PROJECT / path).read_text(), f"run: {command[1]} {command[2]} > {path}"
    text = selection_file.TEXT_OF_BUILT_IN.read_text(encoding="utf-8")
    table = selection_file.parse(text, "built-in", None)
    priced = selection_file.TEXT_OF_PRICED.read_text(encoding="utf-8")
    first = selection_file.parse(priced, "built-in", table).rules
    assert {rule.source for rule in first} == {"priced"}
    assert replace(table, rules=first + table.rules) == selection_file.built_in()


def test_every_public_name_is_in_the_reference() -> None:
    """A function or class with its docstring, a constant in the page of flags and operations."""
    calls = (REFERENCE / "api.md").read_text(encoding="utf-8")
    constants = (REFERENCE / "flags-and-operations.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\.\. (?:auto\w+|data):: (\w+)$", calls, re.MULTILINE))
    named = set(re.findall(r"`([A-Z_]+)`", constants))
    assert set(xupc.__all__) - listed - named == set()
    assert {name for name in listed | named if not hasattr(xupc, name)} <= AFTER_INIT


def test_every_key_of_the_selection_table_is_listed() -> None:
    text = (REFERENCE / "table-keys.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", text.split("## Old names")[0], re.MULTILINE))
    known = (selection_file.RULE, selection_file.CARRIER, selection_file.SIZES, selection_file.HOST)
    assert listed == {key for keys in known for key in keys}


# ---- results and errors --------------------------------------------------------------------------


def section(name: str, head: str) -> str:
    """The text of a page of the reference under a heading."""
    text = (REFERENCE / f"{name}.md").read_text(encoding="utf-8")
    return re.split(r"^## ", text.split(f"\n## {head}\n")[1], flags=re.MULTILINE)[0]


@pytest.mark.parametrize(
    ("head", "record"),
    [("The file", Result), ("Job", Job), ("Launch", Launch), ("Cell", Cell),
     ("Candidate", Candidate)],
)  # fmt: skip
def test_every_key_of_a_result_is_listed(head: str, record: Any) -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", section("result-format", head), re.MULTILINE))
    assert listed - {"format", "version"} == {field.name for field in fields(record)}


PYTHONS = ("IndexError", "OverflowError", "TypeError", "ValueError")
# Not mpi: there an error means that the call goes to MPI, which raises its own.
CALLED = ("api", "flags.py", "ops.py", "pgas", "reduction", "runtime", "topology", "tuning",
          "upc.py")  # fmt: skip
INTERNAL = {"a packed HostRecord has", "are outside the heap", "the segment's descriptor is closed"}


def made(module: Path, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each error that a module makes: its class, and the parts of its text that are fixed."""
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[text, *_]) if name in names:
                parts = (part for part in ast.walk(text) if isinstance(part, ast.Constant))
                yield name, [part.value for part in parts if isinstance(part.value, str)]


def missing(module: Path, names: Sequence[str], but: str | None = None) -> set[tuple[str, str]]:
    """The errors that the page does not list, by the longest fixed part of more than two words."""
    page = " ".join((REFERENCE / "errors.md").read_text(encoding="utf-8").split())
    found = set()
    for name, parts in made(module, names):
        longest = " ".join(max(parts, key=len, default="").strip(" :(,").replace("`", "").split())
        known = longest in page or longest in INTERNAL or (but and but in "".join(parts))
        if len(longest.split()) > 2 and not known:
            found.add((name, longest))
    return found


def test_every_class_of_errors_is_listed() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    heads = set(re.findall(r"^## `(\w+)`", text, re.MULTILINE))
    assert heads == {name for name in errors.__all__ if name[0].isupper()}


def test_every_text_of_an_error_of_xupc_is_listed() -> None:
    modules = sorted((PROJECT / "xupc").rglob("*.py"))
    found = set().union(*(missing(module, errors.__all__) for module in modules))
    assert found == set(), "add these texts to docs/reference/errors.md"


@pytest.mark.parametrize("room", CALLED)
def test_every_text_of_an_error_of_python_is_listed(room: str) -> None:
    """But those that name what was expected: the page explains their form."""
    place = PROJECT / "xupc" / room
    modules = [place] if place.is_file() else sorted(place.rglob("*.py"))
    found = set().union(*(missing(module, PYTHONS, but="expected") for module in modules))
    assert found == set(), "say what was expected, or add these texts to docs/reference/errors.md"


# ---- links ---------------------------------------------------------------------------------------


SOURCES = {path for folder in ("xupc", "tests", "benchmarks", "scripts", "examples", "docs")
           for path in (PROJECT / folder).rglob("*.*")}  # fmt: skip
NAMED = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|pyx|pxi|h|c|js|css))\b")


@EACH
def test_files_of_the_project_are_there(page: Page) -> None:
    """A program that a test runs may have got another name: a page shall name today's."""
    missing = [
        name for name in NAMED.findall(page.text)
        if not any(path.as_posix().endswith(f"/{name}") for path in SOURCES)
    ]  # fmt: skip
    assert missing == []


DOCS = PROJECT / "docs"


@EACH
def test_links_lead_somewhere(page: Page) -> None:
    """To a file, and to a heading of it: GitHub and the site take the same links."""
    by_path = {found.path: found for found in FOUND}
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", page.text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        assert path.exists(), f"{page.name}: {target}: there is no such file"
        if anchor and path in by_path:
            assert anchor in by_path[path].anchors(), f"{page.name}: {target}: no such heading"
        if anchor and DOCS in page.path.parents and DOCS not in path.parents:
            raise AssertionError(f"{page.name}: {target}: the site has no headings outside docs/")
