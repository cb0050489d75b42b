"""The charts of a page, and what Vega draws of them in Node.js."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xupc

__all__ = ["NODE", "charts_of", "drawings", "plot_width"]

NODE = shutil.which("node")
_PROGRAM = """
const fs = require("fs"), path = require("path"), folder = process.argv[2];
globalThis.vega = require(path.join(folder, "vega.min.js"));
const load = require("module")._load;
require("module")._load = (name, ...rest) => (name === "vega" ? vega : load(name, ...rest));
const lite = require(path.join(folder, "vega-lite.min.js"));
const logger = { level: () => logger, warn: (m) => { throw Error(m); }, info: () => logger,
                 debug: () => logger, error: (m) => { throw Error(m); } };
(async () => {
  for (const spec of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const runtime = vega.parse(lite.compile(spec, { logger }).spec);
    const view = new vega.View(runtime, { renderer: "none" });
    const svg = await view.toSVG();
    console.log(JSON.stringify({ svg, width: view.signal("width") }));
  }
})().catch((error) => { console.error(error); process.exit(1); });
"""


def charts_of(page: str) -> list[dict[str, Any]]:
    """Return the specifications of a page's charts."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', page, re.S)
    return [json.loads(text) for text in found]


def drawings(specs: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """Return the drawings as SVG; AssertionError if there is a warning."""
    fixed = [{**spec, "width": 400, "autosize": "pad"} for spec in specs]
    return [drawn["svg"] for drawn in _drawn(fixed, folder)]


def plot_width(spec: Mapping[str, Any], pixels: int, folder: Path) -> float:
    """Return the pixels between the axes' ends of a chart on a page that gives it `pixels`."""
    text = json.dumps({**spec, "width": pixels}).replace("containerSize()[0]", str(pixels))
    return float(_drawn([json.loads(text)], folder)[0]["width"])


def _drawn(specs: Sequence[Mapping[str, Any]], folder: Path) -> list[dict[str, Any]]:
    program = folder / "draw.js"
    program.write_text(_PROGRAM)
    library = Path(xupc.__file__).parent / "report" / "vega"
    done = subprocess.run(
        [str(NODE), program, library], input=json.dumps(specs),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
