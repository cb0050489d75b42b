"""The report as one HTML page, which needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from . import formatting
from .charts import as_data, curves, intervals, lines_of, program
from .figures import timeline, tree
from .findings import with_mpi
from .model import HOW, Content, Section
from .plan_events import as_link, plan_events
from .two_results import Regressions

__all__ = ["MissingError", "render", "rendered", "require"]


class MissingError(Exception):
    """A package that the page needs is not installed; says which."""


def render(title: str, sections: Sequence[Section], compared: Sequence[Regressions]) -> str:
    """Return the whole page; MissingError without jinja2."""
    drawings = {
        (i, k): _drawings(content)
        for i, section in enumerate(sections)
        for k, content in enumerate(section.jobs)
    }
    return rendered(
        "page.html",
        title=title,
        sections=sections,
        compared=compared,
        contents=_contents(sections, compared),
        drawings=drawings,
        how=HOW,
        charts=any(
            specs
            for drawn in drawings.values()
            for name, specs in drawn.items()
            if name.startswith("curves ")
        ),
        wide=any(len(c.findings.sizes) > 12 for section in sections for c in section.jobs),
    )


@dataclass(frozen=True)
class Place:
    """Hold an entry of the contents, with parts of it; their anchors follow its own."""

    anchor: str
    title: str
    parts: list[tuple[str, str]]


def _contents(sections: Sequence[Section], compared: Sequence[Regressions]) -> list[Place]:
    found = [Place(f"compared-{k}", f"{r.new} against {r.old}", []) for k, r in enumerate(compared)]
    for i, section in enumerate(sections):
        before = f"{section.name}: " if len(sections) > 1 else ""
        found += [
            Place(f"job-{i}-{k}", f"{before}{content.job.shape}", _parts(content))
            for k, content in enumerate(section.jobs)
        ]
    return [*found, Place("how", "How times and intervals are made", [])]


def _parts(content: Content) -> list[tuple[str, str]]:
    """Return the titles and anchors of a job's parts, as far as the page has them."""
    measured = bool(content.findings.standings)
    parts = [
        ("which flag", "flags", bool(content.advice)),
        ("fastest of each call", "winners", content.winners is not None),
        ("time and bandwidth", "curves", measured),
        ("times", "times", measured),
        ("against the peers", "ratios", bool(content.ratios)),
        ("bytes between nodes", "bytes", True),
        ("node tree", "tree", True),
        ("a plan", "plan", True),
        ("where it comes from", "source", True),
    ]
    return [(title, anchor) for title, anchor, there in parts if there]


def require() -> None:
    """Raise MissingError if a page cannot be made."""
    try:
        import jinja2  # noqa: F401
    except ImportError as e:
        raise MissingError(
            f"{e.name} is not installed: the page needs it (pip install {e.name}); "
            "`xupc report --markdown` does not"
        ) from None


def rendered(template: str, **values: Any) -> str:
    """Return a page from a template of this package; MissingError without jinja2."""
    require()
    import jinja2
    import markupsafe

    def text_of(name: str) -> str:
        return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(text_of),
    )  # fmt: skip
    environment.filters |= {"time": formatting.time, "with_mpi": with_mpi}
    environment.filters["breakable"] = lambda name: markupsafe.Markup("_<wbr>").join(
        map(markupsafe.escape, str(name).split("_"))  # a long name breaks between its words
    )
    environment.filters["data"] = lambda spec: markupsafe.Markup(as_data(spec))
    scripts, policy = program() if values["charts"] else ([], "")
    return environment.get_template(template).render(
        style=markupsafe.Markup(text_of("page.css")), policy=policy,
        scripts=[markupsafe.Markup(script) for script in scripts], **values,
    )  # fmt: skip


def _drawings(content: Content) -> dict[str, list[Any]]:
    """Return the charts of each collective under its title; as SVG the tree and the timeline."""
    found: dict[str, list[Any]] = {}
    for title, group in content.findings.groups.items():
        lines = lines_of(group, content.findings.candidates(group))
        drawn: list[Any] = curves(group, lines, content.bounds) or [intervals(group, lines)]
        found[f"curves {title}"] = [spec for spec in drawn if spec]
    found["tree"] = [] if content.tree is None else [tree(content.tree, content.job)]
    drawn_plan = content.drawn
    found["timeline"] = (
        [] if drawn_plan.happened is None else [timeline(drawn_plan.happened, drawn_plan.rows)]
    )
    found["events"] = _events(content)
    return found


def _events(content: Content) -> list[str]:
    """Return the link to the plan's trace events, none if it is too long."""
    drawn_plan = content.drawn
    if drawn_plan.happened is None:
        return []
    link = as_link(plan_events(drawn_plan.happened, drawn_plan.rows, drawn_plan.nodes))
    return [link] if link else []
