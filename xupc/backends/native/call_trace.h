/* call_trace.h: what XUPC_TRACE records of the calls of this thread.
 *
 * The memory is a file of the thread's own (xupc/call_trace/part.py), so what is written survives the
 * process.  No other thread writes there, and none reads before the end: plain stores are enough.
 *
 *   head       the state below, and the row of the call that runs
 *   totals     of the calls whose rows were dropped, by kind and line
 *   rows       of calls that have ended
 *
 * When the rows are full, half of them are dropped: those whose operation number has another hash.
 * All threads of a team so keep the same calls.  The totals stay exact.
 *
 * Needs no Python and no MPI.
 */
#ifndef XUPC_CALL_TRACE_H
#define XUPC_CALL_TRACE_H

#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define XT_TOTALS 4096 /* a power of two */
#define XT_PROBES 64   /* places of a total; without a free one it goes to the last row */
#define XT_SHIFT 28
#define XT_RANGE_NS 100000000u /* the counter is compared with the clock so often */

/* What ended a wait: the kind, and an index in the lower 24 bits. */
enum {
    XT_NONE = 0,
    XT_MEMBER = 1 << 24, /* a member of the team on this node, by local index */
    XT_LAST = 2 << 24,   /* the last of them to arrive */
    XT_RANK = 3 << 24,   /* a rank of the team */
};

enum {
    XT_POSTED = 1,  /* the call runs while the program does something else */
    XT_CLAIMED = 2, /* so it did, but now the program waits for it */
    XT_FAILED = 4,  /* the call ended by an exception */
};

typedef struct { /* all times in ns of the monotonic clock */
    uint64_t op;
    uint32_t kind, line; /* numbers of texts */
    uint64_t began, ended;
    uint64_t waited;  /* ns in waits */
    uint64_t ready;   /* the end of the last wait */
    uint64_t longest; /* ns of the longest wait */
    uint32_t awaited; /* whom that was for */
    uint32_t state;   /* XT_POSTED ... */
} xt_row;

typedef struct {
    uint32_t kind, line;
    uint64_t calls, ns, waited, longest;
    uint64_t unused[3];
} xt_total;

typedef struct {
    uint64_t magic, size; /* written by part.py */
    uint64_t capacity;    /* rows */
    uint64_t count;       /* of them in use */
    uint64_t level;       /* rows of one operation in 2^level are kept */
    uint64_t calls;       /* that have ended */
    uint64_t seen;        /* when the thread was last known to wait */
    uint64_t unused;
    xt_row open; /* the call that runs; op 0: none */
} xt_head;

typedef struct { /* a counter of the processor that runs at a constant rate, and its relation to the clock */
    uint64_t first, first_ns; /* where the rate is measured from */
    uint64_t at, ns;          /* where readings are counted from */
    uint64_t range;           /* counts after which it is compared with the clock */
    uint64_t mult;            /* ns of a count << XT_SHIFT; 0: there is no counter */
} xt_clock;

typedef struct {
    xt_head *head;
    xt_total *totals;
    xt_row *rows;
    xt_clock clock;
    int busy; /* a call has the open row */
} xt_log;

static inline uint64_t xt_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t xt_counter(void) {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return 0;
#endif
}

/* Compare the counter with the clock; the rate is that since the first comparison. */
static inline uint64_t xt_compare(xt_clock *c) {
    uint64_t ns = xt_clock_ns(), at = xt_counter();
    uint64_t counts = at - c->first, passed = ns - c->first_ns;
    while (counts >> 34 || passed >> 34) counts >>= 1, passed >>= 1;
    if (counts) c->mult = (passed << XT_SHIFT) / counts;
    if (c->mult) c->range = ((uint64_t)XT_RANGE_NS << XT_SHIFT) / c->mult;
    c->at = at, c->ns = ns;
    return ns;
}

/* Start the clock; without a counter at a constant rate it is the monotonic clock. */
static inline void xt_start_clock(xt_clock *c, int counter) {
    memset(c, 0, sizeof *c);
    if (!counter || !xt_counter()) return;
    c->first_ns = xt_clock_ns();
    c->first = xt_counter();
    uint64_t until = c->first_ns + 1000000u;
    while (xt_clock_ns() < until) continue;
    xt_compare(c);
}

static inline uint64_t xt_now(xt_clock *c) {
    if (!c->mult) return xt_clock_ns();
    uint64_t counts = xt_counter() - c->at;
    if (counts > c->range) return xt_compare(c);
    return c->ns + (counts * c->mult >> XT_SHIFT);
}

/* ---- rows ------------------------------------------------------------------ */
static inline uint64_t xt_hash(uint64_t number) {
    number ^= number >> 33;
    number *= 0xff51afd7ed558ccdu;
    return number ^ (number >> 33);
}

/* Return whether a call is one of those that stay. */
static inline int xt_stays(uint64_t op, uint64_t level) {
    return !(xt_hash(op) & (((uint64_t)1 << level) - 1));
}

static inline xt_total *xt_total_of(xt_log *log, uint32_t kind, uint32_t line) {
    uint64_t at = xt_hash((uint64_t)kind << 32 | line);
    for (int i = 0; i < XT_PROBES; i++) {
        xt_total *total = &log->totals[(at + (uint64_t)i) % (XT_TOTALS - 1)];
        if (!total->calls) total->kind = kind, total->line = line;
        if (total->kind == kind && total->line == line) return total;
    }
    return &log->totals[XT_TOTALS - 1]; /* of all others: kind and line are 0 */
}

static inline void xt_add(xt_log *log, const xt_row *row) {
    xt_total *total = xt_total_of(log, row->kind, row->line);
    total->calls++;
    total->ns += row->ended > row->began ? row->ended - row->began : 0;
    total->waited += row->waited;
    if (row->longest > total->longest) total->longest = row->longest;
}

/* Drop about half of the rows. */
static inline void xt_thin(xt_log *log) {
    xt_head *head = log->head;
    uint64_t kept = 0;
    head->level++;
    for (uint64_t i = 0; i < head->count; i++) {
        if (xt_stays(log->rows[i].op, head->level))
            log->rows[kept++] = log->rows[i];
        else
            xt_add(log, &log->rows[i]);
    }
    head->count = kept;
}

/* Begin a call: its row is the open one, or the caller's own while another call has that. */
static inline xt_row *xt_begin(xt_log *log, xt_row *own, uint64_t op) {
    xt_row *row = own;
    if (!log->busy) {
        row = &log->head->open;
        log->busy = 1;
    }
    row->kind = own->kind, row->line = own->line;
    row->ended = row->waited = row->ready = row->longest = 0;
    row->awaited = XT_NONE, row->state = 0;
    row->began = xt_now(&log->clock);
    row->op = op;
    return row;
}

/* Leave the open row to other calls. */
static inline xt_row *xt_move_out(xt_log *log, xt_row *row, xt_row *own) {
    if (row != &log->head->open) return row;
    *own = *row;
    log->busy = 0;
    row->op = 0;
    return own;
}

/* Copy word by word: a wider load of what was just stored would wait for the store. */
static inline void xt_copy(xt_row *to, const xt_row *from) {
    uint64_t *t = (uint64_t *)to;
    const uint64_t *f = (const uint64_t *)from;
    for (size_t i = 0; i < sizeof *to / sizeof *t; i++) __atomic_store_n(t + i, f[i], __ATOMIC_RELAXED);
}

static inline void xt_end(xt_log *log, xt_row *row) {
    xt_head *head = log->head;
    row->ended = xt_now(&log->clock);
    head->calls++;
    while (head->count == head->capacity) xt_thin(log);
    if (head->level && !xt_stays(row->op, head->level)) {
        xt_add(log, row);
    } else {
        xt_copy(&log->rows[head->count], row);
        head->count++;
    }
    if (row == &head->open) log->busy = 0;
    row->op = 0;
}

static inline void xt_waited(xt_row *row, uint64_t from, uint64_t to, uint32_t for_) {
    uint64_t ns = to > from ? to - from : 0;
    row->waited += ns;
    row->ready = to;
    if (ns >= row->longest) row->longest = ns, row->awaited = for_;
}

_Static_assert(sizeof(xt_row) == 64, "row");
_Static_assert(sizeof(xt_total) == 64, "total");
_Static_assert(sizeof(xt_head) == 128, "head");

#endif
