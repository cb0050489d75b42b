"""mpi_messages.h with an MPI made up for it, under the sanitizers: see `messages.c`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sanitizers import compiled, damaged, output_of
from support.soak import amount, seed

HERE = Path(__file__).parent
SEEN = re.compile(r"(\d+) exchanges(?:, (\d+) \w+ ?\w*){5}")
JOBS = [(nodes, handles) for nodes in (2, 3, 4, 8, 9, 13, 16) for handles in ("int", "pointer")]
STEPS = amount(300, 20_000)

pytestmark = pytest.mark.once

# What is left out, or put in, must be noticed: (in the header, instead)
BREAKS = {
    "the conflict of values is not seen": ("its.value != mine->value) mine", "0) mine"),
    "the maximum is not joined": ("if (its.high > mine->high) mine->high = its.high;", ""),
    "a message that was taken is received again": ("if (x->taken[i]) continue;", ""),
    "what was taken is taken for ever": (
        "memset(x->taken, 0, (size_t)x->slots);", ""),
    "the first round is the only one": ("if (++x->round < x->rounds)", "if (++x->round < 0)"),
    "pieces are put in one place": ("used[p.slot] += p.n;", ""),
    "pieces are taken out of one message": (
        "xm_place(x, x->in, x->more, *p)", "xm_place(x, x->in, x->more, *pieces)"),
    "messages are as long as before": (
        "(size_t)p->n);\n    memset(x->more, 0, sizeof *x->more * (size_t)x->slots);",
        "(size_t)p->n);"),
    "nothing is sent again": (
        "x->again = 1; /* a thread wrote to another node's memory before it arrived: repeat */",
        "c->in->pc[0]++;"),
    "a ticket is set by the first message": (
        "if (!--m->left[ticket] &&", "if (m->left[ticket]-- &&"),
    "requests are not moved up": (
        "memmove(m->requests + kept * size, m->requests + i * size, (size_t)size);", ""),
    "what is called off sets its ticket": ("&& !m->called_off) c->in", "&& 1) c->in"),
    "the data is that of the next rank": ("m->ranks[m->open] = p->rank;", "m->ranks[m->open] = 0;"),
    "handles are of one size": (
        "char *requests = realloc(m->requests, most * (size_t)c->wire->mpi.handle);",
        "char *requests = realloc(m->requests, most * 2);"),
    "all are looked at once": ("look < 2 && !error && !*done;", "look < 1 && !error && !*done;"),
    "some are looked at once": ("look < 2 && !error && *done <= 0", "look < 1 && !error"),
    "who has sent nothing leaves": ("(at - from) < (end - from) / XM_AHEAD", "0"),
    "who has no more to send leaves": ("at >= end || ", ""),
    "who receives leaves": ("if (!c->mail.sends[i]) return 0;", ""),
    "what MPI says is lost": ("if (error) xm_failed(x, error);", "(void)error;"),
}  # fmt: skip


def build(folder: Path, **headers: str) -> Path:
    """Compile the driver, with another mpi_messages.h if its text is given."""
    return compiled(folder, HERE / "messages.c", "address", **headers)


def test_all_that_meet_agree_and_every_byte_arrives(tmp_path: Path) -> None:
    program = build(tmp_path)
    for number, (nodes, handles) in enumerate(JOBS):
        text = output_of(program, nodes, STEPS, seed() + number, handles)
        counts = [int(word) for word in re.findall(r"\d+", text)]
        assert SEEN.fullmatch(text.strip()), f"{nodes} nodes, {handles}, {number}:\n{text[:4000]}"
        differed, repeated, taken, mails, called_off = counts[1:]
        assert min(differed, taken, mails, called_off) > 0
        assert (repeated > 0) == (nodes <= 8)


@pytest.mark.rotates
@pytest.mark.parametrize("what", BREAKS)
def test_a_mistake_is_noticed(what: str, tmp_path: Path) -> None:
    right, wrong = BREAKS[what]
    program = build(tmp_path, **damaged("mpi_messages", right, wrong))
    texts = (output_of(program, n, 200, seed() + n, handles) for n, handles in JOBS)
    assert any("not so" in text or "ERROR" in text or "status" in text for text in texts)
