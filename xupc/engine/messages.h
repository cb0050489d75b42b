/* messages.h: what node roots tell each other at a barrier, by MPI's C functions, without Python.
 *
 * Knows no MPI header, since one core serves whichever MPI the process has loaded: `xm_mpi` holds
 * the addresses of three functions, and how large MPI's handles are (an int or a pointer).
 *
 * An exchange goes in rounds. A round has slots: to whom a message goes, and from whom one comes.
 *
 *   few nodes    one round, a slot for each other node root
 *   many         dissemination: log2 rounds of one slot
 *
 * A message is a head (the fingerprints' minimum and maximum, the barrier's value, flags) and what
 * the slot's node root is to get besides. Receives are posted before sends; when all of a round is
 * over, the heads are joined and the next round begins with the result.
 *
 *        xm_start      xm_test            xm_test
 *   idle ---------> posted -- joined --> posted -- joined --> idle: verdict, data in `in`
 *
 * The buffers belong to the exchange and are as long as the longest message that any call may send,
 * so that a message of a call that differs is taken, and the difference seen.
 */
#ifndef XUPC_MESSAGES_H
#define XUPC_MESSAGES_H

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XM_STATUS 64 /* bytes, not less than those of an MPI_Status */

enum { XM_CONFLICT = 1, XM_WROTE = 2 }; /* flags of a head */
enum { XM_FAILED = -1, XM_OPEN = 0, XM_OVER = 1 };

typedef struct {
    uintptr_t isend, irecv, testall;
    uintptr_t byte;   /* MPI_BYTE */
    int64_t handle;   /* bytes of a handle: sizeof(int) or sizeof(void *) */
} xm_mpi;

typedef struct {
    uint64_t low, high, value, flags;
} xm_head;

typedef struct {
    xm_mpi mpi;
    uintptr_t comm;
    int32_t rounds, slots;
    const int32_t *end;       /* by round: where its slots end */
    const int32_t *to, *of;   /* by slot: ranks */
    int64_t room;             /* bytes of each buffer */
    char *in, *out;           /* by slot */
    int64_t *more;            /* by slot: bytes to send beyond the head */
    char *taken;              /* by slot: its message is here already */
    char *requests, *statuses; /* of the round: first the receives, by slot, then the sends */
    int32_t round;            /* under way; -1: none */
    int32_t posted;           /* requests of the round */
    int32_t error;            /* MPI's, after XM_FAILED */
    int32_t tag;
    xm_head head;
} xm_exchange;

/* ---- MPI's functions, by the size of its handles ------------------------------ */
static inline int xm_message(const xm_mpi *mpi, uintptr_t function, char *data, int64_t n, int rank,
                             int tag, uintptr_t comm, char *request) {
    if (mpi->handle == (int64_t)sizeof(int))
        return ((int (*)(void *, int, int, int, int, int, void *))function)(
            data, (int)n, (int)mpi->byte, rank, tag, (int)comm, request);
    return ((int (*)(void *, int, void *, int, int, void *, void *))function)(
        data, (int)n, (void *)mpi->byte, rank, tag, (void *)comm, request);
}

static inline int xm_test_all(const xm_mpi *mpi, int count, char *requests, int *done,
                              char *statuses) {
    return ((int (*)(int, void *, int *, void *))mpi->testall)(count, requests, done, statuses);
}

/* ---- an exchange --------------------------------------------------------------- */
static inline int32_t xm_first(const xm_exchange *x) { return x->round ? x->end[x->round - 1] : 0; }

static inline int xm_failed(xm_exchange *x, int error) {
    x->error = error;
    return XM_FAILED;
}

/* All messages of a round. */
static inline int xm_post(xm_exchange *x) {
    int error;
    x->posted = 0;
    for (int32_t i = xm_first(x); i < x->end[x->round]; i++) {
        if (x->taken[i]) continue;
        error = xm_message(&x->mpi, x->mpi.irecv, x->in + i * x->room, x->room, x->of[i], x->tag,
                           x->comm, x->requests + x->posted * x->mpi.handle);
        if (error) return xm_failed(x, error);
        x->posted++;
    }
    for (int32_t i = xm_first(x); i < x->end[x->round]; i++) {
        memcpy(x->out + i * x->room, &x->head, sizeof x->head);
        error = xm_message(&x->mpi, x->mpi.isend, x->out + i * x->room,
                           (int64_t)sizeof x->head + x->more[i], x->to[i], x->tag, x->comm,
                           x->requests + x->posted * x->mpi.handle);
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

/* Go on; MPI's progress besides. */
static inline int xm_test(xm_exchange *x) {
    int done = 0;
    if (x->error) return XM_FAILED;
    int error = xm_test_all(&x->mpi, x->posted, x->requests, &done, x->statuses);
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

static inline int64_t xm_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Test for about so long, with nothing between the tests but that others get the core. */
static inline int xm_wait(xm_exchange *x, int64_t ns) {
    int64_t end = xm_now_ns() + ns;
    int state;
    while ((state = xm_test(x)) == XM_OPEN) {
        if (xm_now_ns() >= end) break;
        sched_yield();
    }
    return state;
}

/* Whether the message of a slot of the round under way has not come yet. */
static inline int xm_missing(xm_exchange *x, int32_t slot) {
    int done = 1;
    if (x->round < 0 || slot < xm_first(x) || slot >= x->end[x->round] || x->taken[slot]) return 0;
    int64_t at = 0;
    for (int32_t i = xm_first(x); i < slot; i++) at += !x->taken[i];
    if (xm_test_all(&x->mpi, 1, x->requests + at * x->mpi.handle, &done, x->statuses)) return 0;
    return !done;
}

/* ---- what goes along with it ----------------------------------------------------- */
typedef struct { /* a piece of memory, relative to where an operand is bound */
    int32_t slot, operand;
    int64_t at, n;
} xm_piece;

static inline char *xm_place(const xm_exchange *x, char *buffers, int64_t *used, xm_piece p) {
    char *at = buffers + p.slot * x->room + (int64_t)sizeof(xm_head) + used[p.slot];
    used[p.slot] += p.n;
    return at;
}

/* Before it begins: the pieces into the messages, one after the other. */
static inline void xm_load(xm_exchange *x, const xm_piece *pieces, int32_t n, char *const *bases) {
    memset(x->more, 0, sizeof *x->more * (size_t)x->slots);
    for (const xm_piece *p = pieces; p < pieces + n; p++)
        memcpy(xm_place(x, x->out, x->more, *p), bases[p->operand] + p->at, (size_t)p->n);
}

/* When it is over: out of the messages to where they belong. */
static inline void xm_deliver(xm_exchange *x, const xm_piece *pieces, int32_t n,
                              char *const *bases) {
    for (const xm_piece *p = pieces; p < pieces + n; p++)
        memcpy(bases[p->operand] + p->at, xm_place(x, x->in, x->more, *p), (size_t)p->n);
    memset(x->more, 0, sizeof *x->more * (size_t)x->slots);
}

/* ---- making one -------------------------------------------------------------------- */
static inline void xm_free(xm_exchange *x) {
    if (x->round >= 0) return; /* MPI still writes there: it stays */
    free(x->in), free(x->out), free(x->more), free(x->taken), free(x->requests), free(x->statuses);
}

/* 0 if there is no memory. Long buffers cost nothing before they are used. */
static inline int xm_make(xm_exchange *x) {
    size_t slots = (size_t)x->slots, room = (size_t)x->room;
    x->round = -1;
    x->in = malloc(slots * room);
    x->out = malloc(slots * room);
    x->more = calloc(slots, sizeof *x->more);
    x->taken = calloc(slots, 1);
    x->requests = calloc(2 * slots, (size_t)x->mpi.handle);
    x->statuses = calloc(2 * slots, XM_STATUS);
    return x->in && x->out && x->more && x->taken && x->requests && x->statuses;
}

#endif
