"""The programs of the documentation's pages, run as their readers run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from support.launch import PROJECT, Result, import_path
from support.pages import PAGES, Command, Page

from xupc.cli.jobs import run_command

FOUND = [Page(path) for path in PAGES]
SHOWN = ("algorithms", "topo")  # commands that print the same everywhere
PLAIN = {"threads", "nodes", "program"}  # options that a job of the pool can have


def runs(page: Page, command: Command) -> bool:
    """Whether the test can run it: it starts a program that is there, or has a known output."""
    if command.program:
        return command.program in page.programs or (PROJECT / command.program).is_file()
    return command.of_xupc[:1] in [(name,) for name in SHOWN] and command.output is not None


def options(command: Command) -> dict[str, Any]:
    """The options of ``xupc run`` that a command gives."""
    context = click.Context(run_command, **run_command.context_settings)
    values, _, _ = run_command.make_parser(context).parse_args(list(command.of_xupc[1:]))
    return values


def is_plain(command: Command) -> bool:
    """Whether it is a program that ends well, without further options and variables."""
    given = bool(command.program) and not command.environment and options(command).keys() <= PLAIN
    return given and "Error" not in (command.output or "")


def commands(plain: bool) -> list[Any]:
    """Each command to run, with its page."""
    return [
        pytest.param(page, command, id=f"{page.name}:{command.line}")
        for page in FOUND
        for command in page.commands
        if runs(page, command) and is_plain(command) == plain
    ]


def written(page: Page, folder: Path) -> None:
    """Write the files of a page into a folder, beside the examples."""
    for name, text in page.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "examples").symlink_to(PROJECT / "examples")


@pytest.mark.once
@pytest.mark.parametrize(("page", "command"), commands(plain=True))
def test_a_program_of_a_page(
    live: Callable[..., Result], page: Page, command: Command, tmp_path: Path
) -> None:
    """It prints what the page shows."""
    written(page, tmp_path)
    given = options(command)
    program, *args = given["program"]
    nodes = "".join(given.get("nodes") or "") or None
    done = live(int(given["threads"]), tmp_path / program, nodes=nodes, args=args)
    assert command.shows(done.stdout), done.stdout


@pytest.mark.once
@pytest.mark.parametrize(("page", "command"), commands(plain=False))
def test_a_command_of_a_page(page: Page, command: Command, tmp_path: Path) -> None:
    """It prints what the page shows, and fails only where the page shows an error.

    The launcher mixes stdout and stderr in any order; here stderr comes last.
    """
    written(page, tmp_path)
    env = {
        **os.environ, "PYTHONPATH": import_path(), "COLUMNS": "80",
        "XDG_CONFIG_HOME": str(tmp_path),  # the user may have a tuned table
        **command.environment,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "xupc", *command.of_xupc],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path, env=env,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    assert (done.returncode != 0) == ("Error" in (command.output or "")), printed
    assert command.shows(printed), printed


@pytest.mark.once
@pytest.mark.parametrize(
    "page", [page for page in FOUND if page.fragments], ids=lambda page: page.name
)
def test_the_fragments_of_a_page(live: Callable[..., Result], page: Page, tmp_path: Path) -> None:
    """They run after the page's first program, in one job."""
    program = tmp_path / "fragments.py"
    program.write_text(page.whole, encoding="utf-8")
    live(4, program, nodes="2x2")
