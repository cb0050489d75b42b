/* mpi_requests.h: collectives of the drop-in communicator that go on while the program computes or
 * waits in MPI.
 *
 * Each call is a generalized request of MPI, so MPI itself waits for it, alone or among others. MPI
 * calls `xg_progress` in each step of its progress, in any of its functions that wait: Open MPI by
 * opal_progress_register, MPICH by MPIX_Async_start. That runs the calls, without the interpreter, and
 * completes their requests.
 *
 * The calls of a team run one after the other, in the order in which the program made them. `busy` of
 * a queue is held by what runs its calls; `xg_lock` for the few instructions that change lists. So
 * the program can add a call while another of its threads waits for an earlier one.
 *
 * Only for teams of one node: a step of MPI's progress must not send messages itself.
 */
#ifndef XUPC_MPI_REQUESTS_H
#define XUPC_MPI_REQUESTS_H

#include "mpi_messages.h" /* first: it enables what is not in C11 */

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define XG_RUN_AHEAD 32 /* calls without a full barrier: team_records.RUN_AHEAD */
#define XG_LOOKS 256    /* polls between two looks for signs that calls differ */
#define XG_WAIT_NS 1000000 /* of one run of a call in MPI's wait for it alone */
#define XG_INSIDE 4096     /* steps of MPI's progress inside a wait for a call, without an end */

enum { XG_IDLE, XG_QUEUED, XG_RUNNING, XG_ENDED };

typedef struct {
    int (*start)(int (*)(void *, void *), int (*)(void *), int (*)(void *, int), void *, void *);
    /* MPICH's MPIX_Grequest_start, else NULL. MPICH 5.0.2 ends the job if its Waitall meets a request
     * of MPI_Grequest_start that is not complete. */
    int (*start_extended)(int (*)(void *, void *), int (*)(void *), int (*)(void *, int),
                          int (*)(void *, void *), int (*)(int, void **, double, void *), void *,
                          void *);
    void *complete, *set_elements, *set_cancelled;
    int (*async_start)(int (*)(void *), void *, int); /* MPICH's; else NULL */
    int (*add)(int (*)(void));                        /* Open MPI's; else NULL */
    int (*remove)(int (*)(void));
    uintptr_t byte;
    size_t size; /* of a handle */
    int no_cancel;
} xg_mpi;

#define XG_NO_STREAM 0x3c000000 /* MPICH's MPIX_STREAM_NULL */

struct xg_queue;

typedef struct xg_call {
    xu_inst *in;
    uint64_t hash, call;
    size_t tickets;
    int barrier;       /* it is one, without a value */
    struct xg_queue *queue;
    struct xg_call *next;             /* in its queue */
    struct xg_call *before, *after;   /* among the calls whose request MPI has */
    struct xg_call *freed;            /* the next one that MPI has freed */
    _Atomic int state;
    _Atomic int complete;             /* for MPI, the request is */
    _Atomic int given_back;           /* MPI has freed the request */
    int result;        /* XU_DONE, or XU_MISMATCH if an error is to be raised */
    int waits;         /* its own request waits for it, and raises the error */
    int python;        /* it ends with something that Python does */
    char request[sizeof(uintptr_t)];
    void *owner;       /* the Python object */
    void *record, *ahead_record; /* references to the texts; after the begin to those before */
} xg_call;

typedef struct xg_queue {
    xu_team *team;
    xg_call *first, *last;
    _Atomic int busy;
    _Atomic uintptr_t by; /* the thread that holds `busy` and may run Python meanwhile, else 0 */
    unsigned inside;   /* steps of MPI's progress by this thread since it last went on with a call */
    int stopped;       /* the first call differs from those of other threads: Python goes on */
    int listed;
    unsigned looks;
    xg_call ahead;     /* the barrier after many calls without one */
    int ahead_runs;
    void ***records;   /* items of the list of the team's last calls */
    struct xg_queue *next;
} xg_queue;

static xg_mpi xg_of_mpi;
static xg_queue *xg_queues;
static xg_call *xg_live;              /* calls whose request MPI has */
static xg_call *_Atomic xg_freed;     /* calls whose request MPI has freed */
static _Atomic int xg_open;           /* calls that have not ended */
static _Atomic int xg_hooked;         /* MPI calls `xg_progress` */
static _Atomic int xg_lock_word, xg_walk_word;
static int xg_forked;                 /* this process is a child: the calls are its parent's */

static inline int xg_try(_Atomic int *word) {
    return !atomic_load_explicit(word, memory_order_relaxed) &&
           !atomic_exchange_explicit(word, 1, memory_order_acquire);
}

static inline void xg_leave(_Atomic int *word) {
    atomic_store_explicit(word, 0, memory_order_release);
}

static inline void xg_lock(void) {
    while (!xg_try(&xg_lock_word)) sched_yield();
}

static inline void xg_unlock(void) { xg_leave(&xg_lock_word); }

/* ---- MPI's functions: a handle is an int or an address ------------------------------------------- */
static inline void xg_complete(xg_call *c) {
    uintptr_t wide;
    int narrow;
    if (xg_of_mpi.size == sizeof(int)) {
        memcpy(&narrow, c->request, sizeof(narrow));
        ((int (*)(int))xg_of_mpi.complete)(narrow);
    } else {
        memcpy(&wide, c->request, sizeof(wide));
        ((int (*)(uintptr_t))xg_of_mpi.complete)(wide);
    }
    atomic_store_explicit(&c->complete, 1, memory_order_release);
}

static inline void xg_set_status(void *status) {
    if (xg_of_mpi.size == sizeof(int))
        ((int (*)(void *, int, int))xg_of_mpi.set_elements)(status, (int)xg_of_mpi.byte, 0);
    else
        ((int (*)(void *, uintptr_t, int))xg_of_mpi.set_elements)(status, xg_of_mpi.byte, 0);
    ((int (*)(void *, int))xg_of_mpi.set_cancelled)(status, 0);
}

/* Set the functions of MPI, in the order of `RequestFunctions` in the Python module. */
static inline void xg_set_functions(const uintptr_t *f) {
    xg_of_mpi.start = (int (*)(int (*)(void *, void *), int (*)(void *), int (*)(void *, int), void *,
                               void *))f[0];
    xg_of_mpi.complete = (void *)f[1];
    xg_of_mpi.set_elements = (void *)f[2];
    xg_of_mpi.set_cancelled = (void *)f[3];
    xg_of_mpi.async_start = (int (*)(int (*)(void *), void *, int))f[4];
    xg_of_mpi.add = (int (*)(int (*)(void)))f[5];
    xg_of_mpi.remove = (int (*)(int (*)(void)))f[6];
    xg_of_mpi.start_extended =
        (int (*)(int (*)(void *, void *), int (*)(void *), int (*)(void *, int),
                 int (*)(void *, void *), int (*)(int, void **, double, void *), void *, void *))f[7];
}

/* ---- a call -------------------------------------------------------------------------------------- */
static inline void xg_begin(xg_queue *q, xg_call *c, void **record) {
    memset(c->in->tickets, 0, c->tickets);
    if (c->barrier) q->team->value = 0;
    xu_begin(c->in, c->hash, c->call);
    void **place = *q->records + c->in->op % XU_SLOTS;
    void *before = *place;
    *place = *record;
    *record = before;
}

/* Run as far as possible; wait only if sleep_ns > 0. */
static inline int xg_run(xg_queue *q, xu_inst *in, uint64_t sleep_ns) {
    if (sleep_ns) return xu_run(in, sleep_ns);
    xu_blocked b;
    int lanes, r = xu_advance(in, &b, &lanes);
    if (r != XU_DONE) xu_probe(in);
    if (r == XU_PENDING && ++q->looks % XG_LOOKS == 0 && xu_suspect(in)) return XU_MISMATCH;
    return r;
}

/* The first call has ended: take it from the queue, and complete its request. */
static inline void xg_end(xg_queue *q, int result) {
    xg_call *c = q->first;
    if (!q->stopped) c->result = result;
    xg_lock();
    q->first = c->next;
    if (!q->first) q->last = NULL;
    xg_unlock();
    q->stopped = 0;
    if (!atomic_load_explicit(&c->complete, memory_order_relaxed)) xg_complete(c);
    atomic_fetch_sub_explicit(&xg_open, 1, memory_order_relaxed);
    atomic_store_explicit(&c->state, XG_ENDED, memory_order_release);
}

/* Run calls in their order, up to `last` (NULL: all); the caller holds `busy`. XU_DONE if they have
 * ended, else the state of the one that runs. `*ended` counts. */
static inline int xg_go_on(xg_queue *q, const xg_call *last, uint64_t sleep_ns, int *ended) {
    while (q->first && !(last && atomic_load_explicit(&last->state, memory_order_relaxed) == XG_ENDED)) {
        xg_call *c = q->first;
        int r;
        if (q->stopped) return XU_MISMATCH;
        if (atomic_load_explicit(&c->state, memory_order_relaxed) == XG_QUEUED) {
            if (q->ahead_runs || q->team->unsynced >= XG_RUN_AHEAD) {
                if (!q->ahead_runs) xg_begin(q, &q->ahead, &c->ahead_record);
                q->ahead_runs = 1;
                r = xg_run(q, q->ahead.in, sleep_ns);
                if (r != XU_DONE) return r;
                xu_end(q->ahead.in);
                q->ahead_runs = 0;
            }
            xg_begin(q, c, &c->record);
            atomic_store_explicit(&c->state, XG_RUNNING, memory_order_relaxed);
        }
        r = xg_run(q, c->in, sleep_ns);
        if (r != XU_DONE) return r;
        xu_end(c->in);
        xg_end(q, XU_DONE);
        ++*ended;
    }
    return XU_DONE;
}

/* The calls of the threads differ. Python has to go on: for a request that MPI waits for, when that
 * is complete. */
static inline void xg_stop(xg_queue *q) {
    xg_call *c = q->first;
    if (q->stopped || c->waits) return;
    q->stopped = 1;
    c->result = XU_MISMATCH;
    c->python = 1;
    if (!atomic_load_explicit(&c->complete, memory_order_relaxed)) xg_complete(c);
}

static inline int xg_held_here(xg_queue *q) {
    return atomic_load_explicit(&q->by, memory_order_relaxed) == xm_thread();
}

/* This thread holds the queue, and waits in MPI: in a signal handler or a finalizer. No call of the
 * queue can end meanwhile. MPI leaves its wait when a request is complete, and Python then raises an
 * error in place of waiting for the call. */
static inline void xg_refuse(xg_queue *q) {
    for (xg_call *c = q->first; c; c = c->next) {
        c->python = 1;
        if (!atomic_load_explicit(&c->complete, memory_order_relaxed)) xg_complete(c);
    }
}

/* This thread holds the queue, and is in MPI. It waits there after many steps; fewer are those of a
 * program that tests its requests. */
static inline void xg_inside(xg_queue *q) {
    if (xm_entered())
        q->inside = 0;
    else if (++q->inside == XG_INSIDE)
        xg_refuse(q);
}

/* A step of MPI's progress; how many calls have ended. */
static int xg_progress(void) {
    int ended = 0;
    if (!atomic_load_explicit(&xg_open, memory_order_relaxed) || xg_forked) return 0;
    if (!xg_try(&xg_walk_word)) return 0;
    for (xg_queue *q = xg_queues; q; q = q->next) {
        if (q->first && xg_held_here(q)) xg_inside(q);
        if (!q->first || q->stopped || !xg_try(&q->busy)) continue;
        int r = xg_go_on(q, NULL, 0, &ended);
        if (r == XU_MISMATCH) xg_stop(q);
        xg_leave(&q->busy);
    }
    xg_leave(&xg_walk_word);
    return ended;
}

/* MPICH calls it until it returns 1. */
static int xg_progress_mpich(void *thing) {
    (void)thing;
    xg_progress();
    if (atomic_load(&xg_open)) return 0;
    atomic_store(&xg_hooked, 0);
    /* another thread may have added a call that relied on this hook */
    return !(atomic_load(&xg_open) && !atomic_exchange(&xg_hooked, 1));
}

/* MPICH tests one of the requests. */
static int xg_poll_mpich(void *state, void *status) {
    (void)state, (void)status;
    xg_progress();
    return 0;
}

/* MPICH waits until one of the requests is complete, and for no other one. */
static int xg_wait_mpich(int count, void **states, double timeout, void *statuses) {
    (void)timeout, (void)statuses;
    for (;;) {
        for (int k = 0; k < count; k++)
            if (atomic_load_explicit(&((xg_call *)states[k])->complete, memory_order_acquire))
                return 0;
        xg_call *c = states[0];
        xg_queue *q = c->queue;
        int ended = 0;
        if (xg_held_here(q)) {
            xg_refuse(q);
            continue;
        }
        if (!q->stopped && xg_try(&q->busy)) {
            int r = xg_go_on(q, c, count == 1 ? XG_WAIT_NS : 0, &ended);
            if (r == XU_MISMATCH) xg_stop(q);
            xg_leave(&q->busy);
        }
        if (!ended) {
            xg_progress();
            if (q->team->progress->enter) q->team->progress->enter();
            sched_yield();
        }
    }
}

/* Have MPI make the request of a call. */
static inline int xg_start(xg_call *c, int (*query)(void *, void *), int (*give_back)(void *),
                           int (*cancel)(void *, int)) {
    atomic_store_explicit(&c->complete, 0, memory_order_relaxed);
    if (xg_of_mpi.start_extended)
        return xg_of_mpi.start_extended(query, give_back, cancel, xg_poll_mpich, xg_wait_mpich, c,
                                        c->request);
    return xg_of_mpi.start(query, give_back, cancel, c, c->request);
}

static inline void xg_hook(void) {
    if (atomic_exchange(&xg_hooked, 1)) return;
    if (xg_of_mpi.async_start)
        xg_of_mpi.async_start(xg_progress_mpich, NULL, XG_NO_STREAM);
    else
        xg_of_mpi.add(xg_progress);
}

/* Only without calls that have not ended. */
static inline void xg_unhook(void) {
    if (!xg_of_mpi.remove || !atomic_exchange(&xg_hooked, 0)) return;
    xg_of_mpi.remove(xg_progress);
}

/* Put a call, whose request MPI has, at the end of its queue. */
static inline void xg_add(xg_queue *q, xg_call *c) {
    c->queue = q;
    c->next = c->freed = NULL;
    c->result = XU_DONE;
    c->waits = 0;
    atomic_store_explicit(&c->given_back, 0, memory_order_relaxed);
    atomic_store_explicit(&c->state, XG_QUEUED, memory_order_relaxed);
    xg_lock();
    if (!q->listed) {
        q->next = xg_queues;
        xg_queues = q;
        q->listed = 1;
    }
    if (q->last)
        q->last->next = c;
    else
        q->first = c;
    q->last = c;
    c->before = NULL;
    c->after = xg_live;
    if (xg_live) xg_live->before = c;
    xg_live = c;
    xg_unlock();
    atomic_fetch_add(&xg_open, 1);
    xg_hook();
    int ended = 0;
    if (!xg_try(&q->busy)) return;
    int r = xg_go_on(q, NULL, 0, &ended);
    if (r == XU_MISMATCH) xg_stop(q);
    xg_leave(&q->busy);
}

/* Note that a call's object can be used again when the call has ended, too. */
static inline void xg_note_freed(xg_call *c) {
    xg_call *head = atomic_load(&xg_freed);
    do c->freed = head;
    while (!atomic_compare_exchange_weak(&xg_freed, &head, c));
}

/* MPI has freed the request of a call. */
static inline void xg_give_back(xg_call *c) {
    xg_lock();
    if (c->before)
        c->before->after = c->after;
    else
        xg_live = c->after;
    if (c->after) c->after->before = c->before;
    xg_unlock();
    xg_note_freed(c);
    atomic_store_explicit(&c->given_back, 1, memory_order_release);
}

/* Return the call of a request, if MPI has not freed it; else NULL. */
static inline xg_call *xg_find(const char *request) {
    xg_lock();
    xg_call *c = xg_live;
    while (c && memcmp(c->request, request, xg_of_mpi.size)) c = c->after;
    xg_unlock();
    return c;
}

/* Never go on with a call again: they are those of the parent of this process. Other threads of the
 * parent may have held the locks. */
static inline void xg_note_fork(void) {
    xg_forked = 1;
    xg_leave(&xg_lock_word);
    xg_leave(&xg_walk_word);
}

/* Forget a queue: its team is closed. */
static inline void xg_drop(xg_queue *q) {
    if (!q->listed) return;
    while (!xg_try(&xg_walk_word)) sched_yield();
    xg_lock();
    xg_queue **at = &xg_queues;
    while (*at && *at != q) at = &(*at)->next;
    if (*at) *at = q->next;
    q->listed = 0;
    for (xg_call *c = q->first; c; c = c->next) atomic_fetch_sub(&xg_open, 1);
    q->first = q->last = NULL;
    xg_unlock();
    xg_leave(&xg_walk_word);
}

#endif
