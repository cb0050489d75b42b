/* mpi_messages.h: send messages between nodes by MPI's C functions, without Python between steps.
 *
 * It includes no MPI header, since one core serves any MPI that the process has loaded. `xm_mpi` holds
 * the addresses of MPI's functions and the size of its handles (an int or a pointer).
 *
 * Mail.  The messages of a call. Python describes them when it lowers the plan, relative to the
 * addresses of its operands, so that they are the same for all calls of the plan. The ticket of a
 * step is set when all its messages are complete.
 *
 * Exchanges.  The messages between node roots at a barrier. They go in rounds; a round has slots, each
 * with the rank to send to and the rank to receive from.
 *
 *   few nodes    one round, a slot for each other node root
 *   many         dissemination: log2 rounds of one slot
 *
 * A message is a head (the fingerprints' minimum and maximum, the barrier's value, flags) and, in a
 * led call, data. Receives are posted before sends. When all messages of a round are complete, the
 * heads are joined, and the next round begins with the result.
 *
 *        xm_start      xm_test            xm_test
 *   idle ---------> posted -- joined --> posted -- joined --> idle: verdict, data in `in`
 *
 * The buffers belong to the exchange and fit the longest message of any call. So a message of a
 * differing call can be received, and the mismatch detected.
 *
 * A call (`xm_run`) alternates between its node-local steps (shm_protocol.h) and its messages. While
 * messages are in flight the thread tests them and yields; while it waits only for its own node, it
 * sleeps as in shm_protocol.h. After a longer time Python waits.
 */
#ifndef XUPC_MESSAGES_H
#define XUPC_MESSAGES_H

#include "shm_protocol.h" /* first: it enables what is not in C11 */

#include <pthread.h>

#define XM_STATUS 64 /* bytes, not less than those of an MPI_Status */
#define XM_LOOK_UP_NS 50000000 /* the longest run of a call before it returns to Python */
#define XM_SERIES 4  /* messages posted between two tests of the others */
#define XM_AHEAD 16  /* 1/16 of a call's messages keeps the wire busy while other threads run */

enum { XM_CONFLICT = 1, XM_WROTE = 2 }; /* flags of a head */
enum { XM_FAILED = -1, XM_OPEN = 0, XM_OVER = 1 };
enum { XM_NO_MEMORY = -1 }; /* an error that MPI did not return */

typedef struct {
    uintptr_t isend, irecv, testall, testsome, cancel;
    uintptr_t byte;   /* MPI_BYTE */
    int64_t handle;   /* bytes of a handle: sizeof(int) or sizeof(void *) */
    uintptr_t comm;   /* a team's communicator */
} xm_mpi;

typedef struct {
    uint64_t low, high, value, flags;
} xm_head;

typedef struct {
    const xm_mpi *mpi;
    int32_t rounds, slots;
    const int32_t *end;       /* by round: where its slots end */
    const int32_t *to, *of;   /* by slot: ranks */
    int64_t room;             /* bytes of each buffer */
    char *in, *out;           /* by slot */
    int64_t *more;            /* by slot: bytes beyond the head; 0 between exchanges */
    char *taken;              /* by slot: its message has arrived already */
    char *requests, *statuses; /* of the round: the receives by slot, then the sends */
    int32_t round;            /* the round in progress; -1: none */
    int32_t again;            /* it is a repetition */
    int32_t posted;           /* requests of the round */
    int32_t error;            /* the error of MPI after XM_FAILED */
    int32_t tag;
    xm_head head;
} xm_exchange;

/* ---- MPI's functions, by the size of its handles ------------------------------ */
static inline int xm_message(const xm_mpi *mpi, uintptr_t function, char *data, int64_t n,
                             uintptr_t type, int rank, int tag, char *request) {
    if (mpi->handle == (int64_t)sizeof(int))
        return ((int (*)(void *, int, int, int, int, int, void *))function)(
            data, (int)n, (int)type, rank, tag, (int)mpi->comm, request);
    return ((int (*)(void *, int, void *, int, int, void *, void *))function)(
        data, (int)n, (void *)type, rank, tag, (void *)mpi->comm, request);
}

/* Test twice: Open MPI tests first and makes progress after that. The second test sees the effect
 * before the thread yields. */
static inline int xm_test_all(const xm_mpi *mpi, int count, char *requests, int *done,
                              char *statuses) {
    int error = 0;
    *done = 0;
    for (int look = 0; look < 2 && !error && !*done; look++)
        error = ((int (*)(int, void *, int *, void *))mpi->testall)(
            count, requests, done, statuses);
    return error;
}

/* The same for any of them; `done` is 0 or less if there are none. */
static inline int xm_test_some(const xm_mpi *mpi, int count, char *requests, int *done,
                               int32_t *indices, char *statuses) {
    int error = 0;
    *done = 0;
    for (int look = 0; look < 2 && !error && *done <= 0; look++)
        error = ((int (*)(int, void *, int *, int *, void *))mpi->testsome)(
            count, requests, done, indices, statuses);
    return error;
}

/* ---- MPI's progress ------------------------------------------------------------ */
/* A receive that no message matches: a test of it is a step of MPI's progress for all operations of
 * the process, and searches no queue of messages as a probe would. */
typedef struct {
    uintptr_t testall;
    char request[sizeof(void *)];
    char status[XM_STATUS];
    int32_t any_thread; /* whether other threads of Python's than MPI's main one may call MPI */
    pthread_t main_thread;
    atomic_flag busy;   /* a request must not be tested by two threads at once */
    _Atomic uintptr_t by; /* the thread that tests it (`xm_thread`), else 0 */
} xm_progress;

static xm_progress xm_progress_of = {.busy = ATOMIC_FLAG_INIT};

static inline uintptr_t xm_thread(void) { return (uintptr_t)pthread_self(); }

/* Whether this thread is inside `xm_enter`. */
static inline int xm_entered(void) {
    return atomic_load_explicit(&xm_progress_of.by, memory_order_relaxed) == xm_thread();
}

static inline void xm_enter(void) {
    xm_progress *p = &xm_progress_of;
    int done;
    if (!p->any_thread && !pthread_equal(p->main_thread, pthread_self())) return;
    if (atomic_flag_test_and_set(&p->busy)) return; /* another thread makes progress */
    atomic_store_explicit(&p->by, xm_thread(), memory_order_relaxed);
    ((int (*)(int, void *, int *, void *))p->testall)(1, p->request, &done, p->status);
    atomic_store_explicit(&p->by, 0, memory_order_relaxed);
    atomic_flag_clear(&p->busy);
}

/* ---- an exchange --------------------------------------------------------------- */
static inline int32_t xm_first(const xm_exchange *x) { return x->round ? x->end[x->round - 1] : 0; }

static inline int xm_failed(xm_exchange *x, int error) {
    x->error = error;
    return XM_FAILED;
}

/* Post all messages of a round. */
static inline int xm_post(xm_exchange *x) {
    const xm_mpi *mpi = x->mpi;
    int error;
    x->posted = 0;
    for (int32_t i = xm_first(x); i < x->end[x->round]; i++) {
        if (x->taken[i]) continue;
        error = xm_message(mpi, mpi->irecv, x->in + i * x->room, x->room, mpi->byte, x->of[i],
                           x->tag, x->requests + x->posted * mpi->handle);
        if (error) return xm_failed(x, error);
        x->posted++;
    }
    for (int32_t i = xm_first(x); i < x->end[x->round]; i++) {
        memcpy(x->out + i * x->room, &x->head, sizeof x->head);
        error = xm_message(mpi, mpi->isend, x->out + i * x->room,
                           (int64_t)sizeof x->head + x->more[i], mpi->byte, x->to[i], x->tag,
                           x->requests + x->posted * mpi->handle);
        if (error) return xm_failed(x, error);
        x->posted++;
    }
    return XM_OPEN;
}

/* Begin, with what my node found and what `more` says lies in `out` behind the heads. */
static inline int xm_start(xm_exchange *x, int32_t tag, xm_head mine) {
    x->tag = tag;
    x->head = mine;
    x->round = 0;
    return xm_post(x);
}

static inline void xm_join(xm_head *mine, const char *message) {
    xm_head its;
    memcpy(&its, message, sizeof its);
    if (its.low < mine->low) mine->low = its.low;
    if (its.high > mine->high) mine->high = its.high;
    mine->flags |= its.flags;
    if (its.value && mine->value && its.value != mine->value) mine->flags |= XM_CONFLICT;
    if (!mine->value) mine->value = its.value;
}

/* Continue the exchange, and make MPI's progress. */
static inline int xm_test(xm_exchange *x) {
    int done;
    if (x->error) return XM_FAILED;
    int error = xm_test_all(x->mpi, x->posted, x->requests, &done, x->statuses);
    if (error) return xm_failed(x, error);
    if (!done) return XM_OPEN;
    for (int32_t i = xm_first(x); i < x->end[x->round]; i++)
        xm_join(&x->head, x->in + i * x->room);
    if (++x->round < x->rounds) return xm_post(x);
    x->round = -1;
    memset(x->more, 0, sizeof *x->more * (size_t)x->slots);
    memset(x->taken, 0, (size_t)x->slots);
    return XM_OVER;
}

/* Return whether the message of a slot of the current round has not arrived yet. */
static inline int xm_missing(xm_exchange *x, int32_t slot) {
    int done;
    if (x->round < 0 || slot < xm_first(x) || slot >= x->end[x->round] || x->taken[slot]) return 0;
    int64_t at = 0;
    for (int32_t i = xm_first(x); i < slot; i++) at += !x->taken[i];
    int error = xm_test_all(x->mpi, 1, x->requests + at * x->mpi->handle, &done, x->statuses);
    if (error) xm_failed(x, error);
    return !error && !done;
}

/* ---- the data of an exchange ----------------------------------------------------- */
typedef struct { /* a piece of memory, relative to where an operand is bound */
    int32_t slot, operand;
    int64_t at, n;
} xm_piece;

static inline char *xm_place(const xm_exchange *x, char *buffers, int64_t *used, xm_piece p) {
    char *at = buffers + p.slot * x->room + (int64_t)sizeof(xm_head) + used[p.slot];
    used[p.slot] += p.n;
    return at;
}

/* Copy the pieces into the messages, one after the other, before the exchange begins. */
static inline void xm_load(xm_exchange *x, const xm_piece *pieces, int32_t n, char *const *bases) {
    for (const xm_piece *p = pieces; p < pieces + n; p++)
        memcpy(xm_place(x, x->out, x->more, *p), xu_behind(bases[p->operand], p->at), (size_t)p->n);
}

/* Copy the pieces out of the messages after the exchange. */
static inline void xm_deliver(xm_exchange *x, const xm_piece *pieces, int32_t n,
                              char *const *bases) {
    for (const xm_piece *p = pieces; p < pieces + n; p++)
        memcpy(xu_behind(bases[p->operand], p->at), xm_place(x, x->in, x->more, *p), (size_t)p->n);
    memset(x->more, 0, sizeof *x->more * (size_t)x->slots);
}

/* ---- making one -------------------------------------------------------------------- */
static inline void xm_free(xm_exchange *x) {
    if (x->round >= 0) return; /* MPI still writes there: it stays */
    free(x->in), free(x->out), free(x->more), free(x->taken), free(x->requests), free(x->statuses);
}

/* Return 0 if there is no memory. Unused pages of long buffers cost nothing. */
static inline int xm_make(xm_exchange *x) {
    size_t slots = (size_t)x->slots, room = (size_t)x->room;
    x->round = -1;
    x->in = malloc(slots * room);
    x->out = malloc(slots * room);
    x->more = calloc(slots, sizeof *x->more);
    x->taken = calloc(slots, 1);
    x->requests = calloc(2 * slots, (size_t)x->mpi->handle);
    x->statuses = calloc(2 * slots, XM_STATUS);
    return x->in && x->out && x->more && x->taken && x->requests && x->statuses;
}

/* ---- mail ---------------------------------------------------------------------------- */
typedef struct {
    int32_t rank, operand;
    int64_t at;     /* bytes from where the operand is bound */
    int64_t n;      /* of the type */
    uintptr_t type;
} xm_message_of;

typedef struct { /* what a plan sends and receives, for all its calls */
    xm_message_of *messages;
    xm_piece *sends, *recvs; /* the data of a led call's exchange */
} xm_plan;

typedef struct { /* the messages of a call in flight */
    int32_t open, capacity;
    char *requests, *statuses;
    int32_t *indices, *tickets, *ranks, *sends;
    int32_t *left;          /* by ticket: messages that are not complete */
    int32_t error;          /* MPI's */
    int32_t called_off;     /* the call was given up */
    char nothing[8];        /* the buffer of empty messages */
} xm_mail;

typedef struct { /* of a team: its communicator, and what all its calls share */
    xm_mpi mpi;
    int32_t tag_bits, low_bits, turns, kinds, barrier, again;
    int64_t patience; /* ns of tests before the call returns to the caller */
    xm_exchange x;    /* no rounds: this thread is no node root */
    int32_t early;    /* Python may have received messages of the next exchange: fetch them */
} xm_wire;

typedef struct {
    xu_inst *in;
    xm_wire *wire; /* NULL: one node */
    const xm_plan *plan;
    xm_mail mail;
    int32_t moved; /* there was progress since Python checked */
} xm_call;

static uint32_t xm_types = 1; /* 1 + how many types were freed */

/* Return whether a row is not run inside the node: by MPI here, or by Python. */
static inline int xm_leaves_node(const xu_step *s) {
    switch (s->kind) {
    case XS_EXCHANGE:
    case XS_SEND:
    case XS_RECV:
    case XS_FUNCTION:
    case XS_PYTHON:
        return 1;
    default:
        return 0;
    }
}

/* Return whether the core can run a row by MPI. */
static inline int xm_knows(const xm_call *c, const xu_step *s) {
    if (!c->wire) return 0;
    switch (s->kind) {
    case XS_EXCHANGE:
        return c->wire->x.rounds > 0 && !c->wire->early;
    case XS_SEND:
    case XS_RECV:
        return !s->messages.types || s->messages.types == xm_types;
    default:
        return 0;
    }
}

/* Room for `n` more. */
static inline int xm_room(xm_call *c, int32_t n) {
    xm_mail *m = &c->mail;
    if (m->open + n <= m->capacity) return 1;
    size_t most = 2 * (size_t)(m->open + n);
    char *requests = realloc(m->requests, most * (size_t)c->wire->mpi.handle);
    if (requests) m->requests = requests;
    char *statuses = realloc(m->statuses, most * XM_STATUS);
    if (statuses) m->statuses = statuses;
    int32_t **rows[] = {&m->indices, &m->tickets, &m->ranks, &m->sends};
    int ok = requests && statuses;
    for (int k = 0; k < 4; k++) {
        int32_t *row = realloc(*rows[k], most * sizeof *row);
        if (row) *rows[k] = row;
        ok = ok && row;
    }
    if (ok) m->capacity = (int32_t)most;
    return ok;
}

static inline int32_t xm_tag(const xm_wire *w, uint64_t number, int32_t kind) {
    return (int32_t)(number % (uint64_t)w->turns) * w->kinds + kind;
}

/* Post the messages of a row. */
static inline int xm_send_off(xm_call *c, const xu_messages_row *row) {
    xm_mail *m = &c->mail;
    const xm_wire *w = c->wire;
    int sends = row->kind == XS_SEND;
    uint64_t high = c->in->fp & (((uint64_t)1 << w->tag_bits) - 1);
    int32_t tag = (int32_t)(high << w->low_bits) | xm_tag(w, c->in->op, row->tag);
    if (!xm_room(c, row->count)) {
        m->error = XM_NO_MEMORY;
        return XM_FAILED;
    }
    m->left[row->ticket] = row->count;
    if (!row->count) c->in->tickets[row->ticket] = 1;
    for (int32_t i = 0; i < row->count; i++) {
        const xm_message_of *p = &c->plan->messages[row->first + i];
        char *data = p->operand < 0 ? m->nothing : xu_behind(c->in->base[p->operand], p->at);
        m->error = xm_message(&w->mpi, sends ? w->mpi.isend : w->mpi.irecv, data, p->n,
                              p->type, p->rank, tag,
                              m->requests + m->open * w->mpi.handle);
        if (m->error) return XM_FAILED;
        m->tickets[m->open] = row->ticket;
        m->ranks[m->open] = p->rank;
        m->sends[m->open++] = sends;
    }
    return XM_OVER;
}

/* Test the requests in flight; XM_OVER: one is complete. */
static inline int xm_look(xm_call *c) {
    xm_mail *m = &c->mail;
    if (m->error) return XM_FAILED;
    if (!m->open) return XM_OPEN;
    int64_t size = c->wire->mpi.handle;
    int done;
    m->error = xm_test_some(
        &c->wire->mpi, m->open, m->requests, &done, m->indices, m->statuses);
    if (m->error) return XM_FAILED;
    if (done <= 0) return XM_OPEN;
    for (int k = 0; k < done; k++) {
        int32_t i = m->indices[k], ticket = m->tickets[i];
        m->tickets[i] = -1;
        if (!--m->left[ticket] && !m->called_off) c->in->tickets[ticket] = 1;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < m->open; i++) {
        if (m->tickets[i] < 0) continue;
        memmove(m->requests + kept * size, m->requests + i * size, (size_t)size);
        m->tickets[kept] = m->tickets[i];
        m->ranks[kept] = m->ranks[i];
        m->sends[kept++] = m->sends[i];
    }
    m->open = kept;
    return XM_OVER;
}

/* Give the call up: cancel receives that no message has matched. */
static inline void xm_call_off(xm_call *c) {
    xm_mail *m = &c->mail;
    m->called_off = 1;
    for (int32_t i = 0; i < m->open; i++)
        if (!m->sends[i])
            ((int (*)(void *))c->wire->mpi.cancel)(m->requests + i * c->wire->mpi.handle);
}

/* ---- a call ----------------------------------------------------------------------------- */
/* Continue the exchange that the node lane is at; XM_OVER: the lane has advanced. */
static inline int xm_meet(xm_call *c, const xu_exchange_row *row) {
    xm_wire *w = c->wire;
    xm_exchange *x = &w->x;
    xu_team *t = c->in->team;
    int state = XM_OPEN;
    if (x->round < 0) {
        xm_head mine = {t->node_min, t->node_max, t->node_value,
                        (t->node_conflict ? XM_CONFLICT : 0) | (t->node_wrote ? XM_WROTE : 0)};
        if (row->led) xm_load(x, c->plan->sends, row->sends, c->in->base);
        state = xm_start(x, xm_tag(w, t->epoch, x->again ? w->again : w->barrier), mine);
    }
    if (state == XM_OPEN) state = xm_test(x);
    if (state != XM_OVER) return state;
    int differs = x->head.low != x->head.high || (x->head.flags & XM_CONFLICT);
    if (row->led && !differs) {
        if (x->head.flags & XM_WROTE && !x->again) {
            x->again = 1; /* a thread wrote to another node's memory before it arrived: repeat */
            c->in->pc[0] -= row->before;
            return XM_OVER;
        }
        xm_deliver(x, c->plan->recvs, row->recvs, c->in->base);
    }
    x->again = 0;
    t->verdict = differs;
    if (!differs) t->verified = c->in->op;
    c->in->pc[0]++;
    return XM_OVER;
}

/* Return whether messages of the call are in flight. */
static inline int xm_busy(const xm_call *c) {
    return c->mail.open || (c->wire && c->wire->x.round >= 0);
}

typedef struct {
    int moved, sent, stuck, failed; /* stuck: a lane is at a step that only Python can run */
} xm_turn;

/* Return whether a call has more to send, nothing to receive, and has sent enough to yield. MPI accepts
 * messages faster than the wire, and another thread on the same core may have to forward them. */
static inline int xm_ahead(const xm_call *c) {
    const xu_inst *in = c->in;
    int lane = XU_LANES - 1;
    int32_t from = in->prog->first[lane], at = in->pc[lane], end = in->prog->end[lane];
    if (at >= end || (at - from) < (end - from) / XM_AHEAD) return 0;
    for (int32_t i = 0; i < c->mail.open; i++)
        if (!c->mail.sends[i]) return 0;
    return 1;
}

/* Do once what the call has to do with MPI. */
static inline xm_turn xm_turn_of(xm_call *c) {
    xm_turn turn = {0, 0, 0, 0};
    xu_inst *in = c->in;
    int posted = 0;
    for (int lane = XU_LANES - 1; lane >= 0; lane--) {
        while (in->pc[lane] < in->prog->end[lane]) {
            const xu_step *s = &in->prog->steps[in->pc[lane]];
            if (!xm_leaves_node(s)) break;
            if (!xm_knows(c, s)) {
                turn.stuck = 1;
                break;
            }
            int state = s->kind == XS_EXCHANGE ? xm_meet(c, &s->exchange)
                                               : xm_send_off(c, &s->messages);
            if (state == XM_FAILED) turn.failed = 1;
            if (state != XM_OVER) break;
            turn.moved = 1;
            if (s->kind == XS_EXCHANGE) continue;
            turn.sent |= s->kind == XS_SEND;
            in->pc[lane]++;
            /* progress for the messages posted before */
            if (++posted % XM_SERIES == 0 && xm_look(c) == XM_FAILED) turn.failed = 1;
        }
    }
    if (c->mail.open) {
        int state = xm_look(c);
        if (state == XM_FAILED) turn.failed = 1;
        if (state == XM_OVER) turn.moved = 1;
    }
    if (turn.moved) c->moved = 1;
    return turn;
}

/* Return whose message a call waits for. */
static inline uint32_t xm_whom(const xm_call *c) {
    const xm_mail *m = &c->mail;
    for (int32_t i = 0; i < m->open; i++)
        if (!m->sends[i]) return XT_RANK | (uint32_t)m->ranks[i];
    const xm_exchange *x = &c->wire->x;
    for (int32_t i = x->round < 0 ? x->slots : xm_first(x); i < x->slots; i++)
        if (!x->taken[i]) return XT_RANK | (uint32_t)x->of[i];
    return m->open ? XT_RANK | (uint32_t)m->ranks[0] : XT_NONE;
}

/* Record that a call waits for messages, or that it does not any more. */
static inline void xm_record(xm_call *c, int moved) {
    xu_inst *in = c->in;
    if (!in->team->trace || in->record->state == XT_POSTED) return;
    if (moved)
        xu_wait_ends(in, in->wait_from ? xt_now(&in->team->trace->clock) : 0);
    else if (xm_busy(c))
        xu_wait_begins(in, xm_whom(c));
}

/* Run a call as far as possible without Python. Results are those of xu_run, but XU_PENDING and
 * XU_CALL_PYTHON do not imply `xm_busy`, and XU_DONE can come while messages are in flight. Sleep only
 * without messages in flight. Test for `patience` ns after the last progress, and return to Python now
 * and then in any case. */
static inline int xm_run(xm_call *c, uint64_t sleep_ns, int64_t patience) {
    int r = xu_run(c->in, c->wire && xm_busy(c) ? 0 : sleep_ns);
    if (!c->wire) return r;
    uint64_t until = 0, enough = 0;
    for (;;) {
        if (r == XU_MISMATCH || (r == XU_DONE && !c->mail.open)) return r;
        if (r == XU_PENDING && !xm_busy(c)) return r;
        xm_turn turn = xm_turn_of(c);
        if (turn.failed) return r;
        xm_record(c, turn.moved);
        if (turn.moved) {
            until = 0;
            r = xu_run(c->in, 0);
            if (r == XU_PENDING && !xm_busy(c) && sleep_ns) r = xu_run(c->in, sleep_ns);
            uint64_t now = xu_now_ns();
            if (!enough) enough = now + XM_LOOK_UP_NS;
            if (now >= enough) return r;
            if (turn.sent && xm_ahead(c)) sched_yield();
            continue;
        }
        if (turn.stuck && r == XU_CALL_PYTHON) return r;
        if (!patience) return r;
        uint64_t now = xu_now_ns();
        if (!until) until = now + (uint64_t)patience;
        if (now >= until) return r;
        sched_yield();
        r = xu_run(c->in, 0);
    }
}

/* Begin a new run. */
static inline void xm_begin(xm_call *c) {
    c->mail.called_off = 0;
    c->moved = 0;
}

static inline void xm_end_plan(xm_plan *p) {
    free(p->messages), free(p->sends), free(p->recvs);
}

static inline void xm_end_mail(xm_mail *m) {
    free(m->left);
    if (m->open) return; /* MPI still writes there: it stays */
    free(m->requests), free(m->statuses);
    free(m->indices), free(m->tickets), free(m->ranks), free(m->sends);
}

#endif
