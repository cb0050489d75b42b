"""The docstring of a function begins with what it does: a verb in the imperative."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = "xupc", "benchmarks", "examples", "scripts"

VERBS = {
    "Accept", "Act", "Add", "Advance", "Agree", "Allocate", "Answer", "Append", "Apply",
    "Arrange", "Arrive", "Ask", "Assert", "Become", "Begin", "Bind", "Break", "Bring",
    "Broadcast", "Cache", "Calibrate", "Call", "Cancel", "Carry", "Change", "Check", "Choose",
    "Clear", "Close", "Collect", "Combine", "Compare", "Compile", "Complete", "Compute",
    "Connect", "Continue", "Convert", "Copy", "Correct", "Count", "Create", "Cut", "Decode",
    "Deliver", "Describe", "Detect", "Disconnect", "Display", "Divide", "Do", "Draw", "Drop",
    "Encode", "End", "Enter", "Estimate", "Exchange", "Execute", "Exit", "Explain", "Export",
    "Expose", "Extract", "Fetch", "Fill", "Filter", "Finalize", "Find", "Finish", "Flush",
    "Fold", "Follow", "Forget", "Format", "Free", "Fuse", "Gather", "Generate", "Get", "Give",
    "Group", "Guard", "Handle", "Have", "Hide", "Hold", "Ignore", "Implement", "Import",
    "Include", "Insert", "Install", "Invalidate", "Iterate", "Join", "Judge", "Keep", "Kill",
    "Launch", "Leave", "Let", "Link", "List", "Listen", "Load", "Lock", "Log", "Look",
    "Lower", "Make", "Map", "Mark", "Match", "Measure", "Merge", "Mix", "Model", "Move",
    "Name", "Normalise", "Note", "Notify", "Open", "Order", "Pack", "Pair", "Parse", "Pass",
    "Permute", "Pick", "Pickle", "Plan", "Plot", "Point", "Poll", "Post", "Predict",
    "Prepare", "Price", "Print", "Probe", "Process", "Prove", "Provide", "Publish", "Pull",
    "Push", "Put", "Query", "Raise", "Rank", "Reach", "Read", "Rebuild", "Receive", "Record",
    "Reduce", "Refuse", "Register", "Release", "Remove", "Renumber", "Repeat", "Replace",
    "Report", "Request", "Reserve", "Reset", "Resolve", "Restore", "Resume", "Retry",
    "Return", "Reverse", "Round", "Run", "Save", "Scan", "Scatter", "Search", "Select",
    "Send", "Serve", "Set", "Shape", "Show", "Signal", "Simulate", "Skip", "Sleep", "Solve",
    "Sort", "Spend", "Split", "Stand", "Start", "Stop", "Store", "Sum", "Summarise",
    "Suspend", "Swap", "Switch", "Take", "Test", "Time", "Trace", "Transform", "Translate",
    "Try", "Turn", "Unlink", "Unpack", "Update", "Use", "Validate", "Verify", "Visit", "Wait",
    "Walk", "Warm", "Warn", "Watch", "Wrap", "Write", "Yield", "Zero",
}  # fmt: skip

# Texts that commands print: the idea of a variant, whose first argument is the recorder, and a
# condition in words. Such a text describes what threads do, or where a variant applies.
PRINTED = {"Recorder", "CallFacts"}

OTHERS = {
    "xupc/cli/__init__.py:main": "the first line of `xupc --help`",
}


def python_files() -> list[Path]:
    """Return all files of Python, scripts without an ending included."""
    found = [path for folder in FOLDERS for path in sorted((PROJECT / folder).rglob("*.py"))]
    scripts = (path for path in sorted((PROJECT / "scripts").iterdir()) if path.is_file())
    return [*found, *(path for path in scripts if _is_python(path))]


def _is_python(path: Path) -> bool:
    with path.open("rb") as file:
        return not path.suffix and b"python" in file.readline()


def documented(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the names of functions and methods, but for properties, and their docstrings."""
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}{node.name}."
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and not _is_property(node) and not _is_printed(node):
                yield inner[:-1], text
        yield from documented(node, inner)


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(name.endswith(("property", ".setter")) for name in names)


def _is_printed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = next(iter(function.args.args), None)
    kind = "" if first is None or first.annotation is None else ast.unparse(first.annotation)
    return kind in PRINTED


def fragments(source: str) -> list[tuple[str, str]]:
    """Return the functions whose docstrings begin with no verb, and how they begin."""
    found = []
    for name, text in documented(ast.parse(source)):
        line = text.partition("\n")[0]
        if line.split()[0].rstrip(",;:.") not in VERBS:
            found.append((name, line))
    return found


def test_docstrings_begin_with_a_verb() -> None:
    files = python_files()
    assert len(files) > 300
    wrong = []
    for path in files:
        place = path.relative_to(PROJECT).as_posix()
        wrong += [
            f"{place}: {name}: {line}"
            for name, line in fragments(path.read_text(encoding="utf-8"))
            if f"{place}:{name}" not in OTHERS
        ]
    assert not wrong, "say what it does; a new verb is added to VERBS:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ('def f():\n    """Return one."""', False),
        ('def f():\n    """The one."""', True),
        ('def f():\n    """Measure, and print."""', False),
        ('class C:\n    """A thing."""\n    def f(self):\n        """Like one."""', True),
        ('class C:\n    @property\n    def f(self):\n        """The one."""', False),
        ('class C:\n    @cached_property\n    def f(self):\n        """The one."""', False),
        ('def f(t: Recorder):\n    """The root copies."""', False),
        ('def f():\n    def g():\n        """Of the call."""', True),
        ("def f():\n    pass", False),
    ],
)
def test_what_counts_as_a_fragment(source: str, wrong: bool) -> None:
    assert bool(fragments(source)) == wrong
