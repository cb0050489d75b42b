/* shm_protocol.h: the node-local protocol and the loop that runs a plan's steps.
 *
 * It needs no MPI and no Python.  It compiles alone (C11), so that a model checker or
 * ThreadSanitizer can drive it with plain threads.
 *
 * What is shared.  Each team has, on each node, one sync area:
 *
 *   counter    arrivals so far, all epochs together      many writers (fetch_add)
 *   release    epoch << 1 | verdict                      one writer per epoch
 *   arrival    [2][n] lines {seq, fp, value...}           one writer per line
 *   slot       [XU_SLOTS][n] lines {entered, fp, chan}   one writer per line
 *   subtree    [2][n] lines {seq, low, high, value...}   one writer per line; by levels
 *   relay      [n] lines, epoch << 2 | state             one writer per line; by levels
 *
 * All words only grow; waiters test >=; nothing is ever reset.
 *
 * A barrier (number b, the team's epoch) in five steps:
 *   1. write fp and value into my arrival line of parity b & 1     (relaxed)
 *   2. publish seq = b in the same line                            (seq_cst)
 *   3. flat mode: wait until every line of that parity has seq >= b (acquire);
 *      counter mode: fetch_add the counter (seq_cst); the last to arrive goes on
 *      to 4, the others to 5
 *   4. compare the fps; counter mode: publish release = b << 1 | verdict (seq_cst)
 *   5. counter mode: wait until release >= b << 1 (acquire), read the verdict
 * Two parities are enough: a thread writes its line for b + 2 only after all threads
 * have arrived at b + 1, hence have finished reading the lines of b.
 *
 * A barrier by levels is flat mode with a shortcut for threads that spin. Threads form a tree:
 *   1-2. as above
 *   3. wait for each child: a leaf's seq >= b, or subtree.seq >= b << 2 of one with children
 *   4. combine their fps and values into my subtree line, seq = b << 2 | XU_HERE (release);
 *      the top compares them: that is the verdict
 *   5. wait until my parent's relay >= b << 2 (acquire), then relay = b << 2 | verdict (release)
 * No thread sleeps on these lines. A thread that is about to sleep, or whose program goes on while
 * the call runs, marks its two lines with XU_AWAY and goes on alone: it reads all arrival lines, as in
 * flat mode. So do its parent and its children, once they see the mark.
 *
 * A fused call is the same with a body between 4 and the release: one executor,
 * the named one or (counter mode) the last to arrive, moves the data. By levels an executor below
 * the top waits for the subtree line of the top; the top waits for the release, which it relays.
 *
 * A signal is chan[c] of the writer's line in slot op % XU_SLOTS, its value
 * op << XU_COUNT_BITS | count.  The team runs a full barrier at least every
 * XU_SLOTS / 2 operations, so a slot is not reused while a thread may still read
 * it.
 *
 * Sleeping.  A waiter adds itself to the line's `sleepers.count`, notes the line's
 * `sleepers.wakes`, looks at the word again, then futex-waits for as long as `wakes`
 * is what it noted; a writer publishes with a seq_cst exchange and, if it sees
 * sleepers, counts a wake and wakes them.  Either the writer sees the sleeper or the
 * sleeper sees the word: both are seq_cst, so no wake-up is lost.  It is not the
 * word that the kernel compares, since that has 64 bits: the lower 32 of a signal
 * are the same again 256 operations later.
 *
 * tests/model checks all of this, step by step under C11's memory model, and
 * tests/native runs it with plain threads under ThreadSanitizer.
 */
#ifndef XUPC_CORE_H
#define XUPC_CORE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#endif
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "rows.h"
#include "user_functions.h"
#include "kernels.h"
#include "mpi_progress.h"
#include "call_trace.h"

#define XU_LINE 64
#define XU_SLOTS 64
#define XU_CHANNELS 13
#define XU_RING 128        /* calls that are kept: twice as many as reports show */
#define XU_COUNT_BITS 24
#define XU_LANES 2
#define XU_OPERANDS 4
#define XU_SLOT 2        /* the operand that is the scratch of the operation */
#define XU_SLOT_BYTES 1024
#define XU_PAST_BYTES 2048 /* shorter copies go through the cache in any case */
#define XU_FOLD_BYTES 4096 /* a fold goes through long vectors in pieces of this size */
#ifndef XU_SLICE_NS
#define XU_SLICE_NS 1000000u /* of the first sleep; longer in tests for lost wake-ups */
#endif
#define XU_DEPTH 34        /* most values of a fold not yet combined: plan.steps.FOLD_DEPTH */

typedef _Atomic uint64_t xu_word;
typedef _Atomic uint32_t xu_half;

typedef struct {
    xu_half count; /* threads that sleep, or are about to, until the line changes */
    xu_half wakes; /* the futex: the number of wake-ups so far */
} xu_sleepers;

/* ---- shared lines, one cache line each; a slot has two --------------------- */
typedef struct {
    xu_word word;
    xu_sleepers sleepers;
    uint64_t pad[6];
} xu_line;

typedef struct {
    xu_word seq;
    xu_sleepers sleepers;
    _Atomic uint64_t fp;    /* running fingerprint of the calls so far */
    _Atomic uint64_t value; /* hash of the barrier's value, 0 matches any */
    _Atomic uint64_t wrote; /* this thread wrote to other nodes' memory since its last arrival */
    uint64_t pad[3];
} xu_arrival;

typedef struct { /* what a thread with children has seen of its part of the tree */
    xu_word seq; /* epoch << 2 | XU_AWAY or XU_HERE */
    _Atomic uint64_t low, high; /* the least and the greatest fingerprint */
    _Atomic uint64_t value, conflict, wrote;
    uint64_t pad[2];
} xu_subtree;

typedef struct {
    xu_word entered; /* operation number + 1 */
    _Atomic uint64_t fp;
    xu_sleepers sleepers;
    xu_word chan[XU_CHANNELS];
} xu_slot;

typedef struct { /* one per thread of the machine: for reports and the failure detector */
    xu_word op;
    xu_word call; /* number of the call's text, + 1 */
    xu_word done; /* the last operation that is complete; == op: not in a call */
    xu_word team; /* number of the team of that operation */
    uint64_t of_control[4]; /* more fields, of control.py alone */
} xu_status;

typedef struct { /* a call in the ring of a thread's last ones: for reports only */
    xu_word op;
    xu_word what;  /* number of its text | number of its team << 32 */
    xu_word began; /* ns of the monotonic clock, some milliseconds coarse */
    xu_word ended; /* 0: under way; 1: posted, and under way */
} xu_call;

typedef struct { /* one per thread of the machine */
    xu_word count; /* of its calls; the last one is call[(count - 1) % XU_RING] */
    uint64_t of_control[7]; /* more fields, of control.py alone */
    xu_call call[XU_RING];
} xu_ring;

/* ---- private state --------------------------------------------------------- */
enum { XU_FLAT, XU_COUNTER, XU_LEVELS }; /* modes of barriers */
enum { XU_AWAY, XU_HERE };               /* states of a subtree */
enum { XU_GOOD = 1, XU_BAD };            /* states of a relay, beside XU_AWAY */
#define XU_STATE_BITS 2

typedef struct {
    uint64_t low, high, value, conflict, wrote;
} xu_calls; /* what the calls of several threads have in common */

typedef struct {
    xu_line *counter;
    xu_line *release;
    xu_arrival *arrival; /* [2][n] */
    xu_slot *slot;       /* [XU_SLOTS][n] */
    xu_subtree *subtree; /* [2][n] */
    xu_line *relay;      /* [n] */
    xu_status *status;
    xu_ring *ring;       /* NULL: no reports */
    int32_t n;  /* team members on this node */
    int32_t me; /* the index of this thread among them */
    int32_t mode; /* XU_FLAT, XU_COUNTER or XU_LEVELS */
    int32_t spins;
    int32_t yields;
    int32_t verdict; /* of the last barrier */
    int32_t several;   /* the team spans nodes */
    int32_t solo;      /* a team of one thread: it cannot run ahead of others */
    int32_t giving_up; /* a mismatch is known: only the verdict of a barrier ends a wait */
    int32_t parent;    /* by levels: -1 for the top of the tree */
    int32_t nchildren;
    const int32_t *children; /* the nearest first; ~j: thread j has children */
    int32_t seen;            /* by levels: children that are here; nchildren + 1: all, and I said so */
    int32_t alone;           /* by levels: I read all lines of this barrier */
    int32_t posted;          /* the program goes on while the team's call runs */
    uint64_t epoch;
    uint64_t number; /* of the team, among those that any of its threads is in */
    uint64_t op;
    uint64_t fp;
    uint64_t value;
    uint64_t unsynced; /* calls since the last full barrier */
    uint64_t wrote; /* since the last arrival */
    uint64_t poison; /* a call has failed here: changes the fingerprints of arrivals */
    int32_t unread;  /* the reason: 1 + the member whose memory this thread could not read or write */
    uint64_t node_min, node_max, node_value, node_conflict, node_wrote;
    xu_word *left;      /* the epoch of the last led call that I left; others nodes read it */
    uint64_t led_epoch; /* the same, for me */
    uint64_t verified;  /* the last operation known to be the same call on all threads */
    uint64_t nt_min; /* calls that write so many bytes here do it past the cache; 0: none */
    const int32_t *pids; /* of my node's threads, by place; NULL if they cannot be reached into */
    const xp_policy *progress; /* how a wait makes MPI's progress; NULL: it makes none */
    xt_log *trace; /* where calls are recorded; NULL: nowhere */
    uint64_t history[XU_SLOTS]; /* fp after operation i, at i % XU_SLOTS */
} xu_team;

enum { XU_DONE = 0, XU_PENDING = 1, XU_CALL_PYTHON = 2, XU_MISMATCH = 3 };

typedef struct {
    const xu_step *steps;
    int32_t first[XU_LANES], end[XU_LANES];
    int32_t barriers; /* full barriers in the plan */
    int32_t exchange; /* a barrier, or led: nothing to do between one exchange and its verdict */
    int64_t written; /* bytes that copies of my node's threads bring to their arrays */
    const xk_kernel *kernel; /* NULL if it has none, or a function of the user's */
} xu_program;

typedef struct {
    xu_team *team;
    const xu_program *prog;
    const xk_kernel *kernel; /* the program's, or a function as it is at this call, or NULL */
    char *base[XU_OPERANDS];
    int64_t stride[XU_OPERANDS];
    char *slots; /* of all operations, on my node's first thread; NULL if not used */
    uint8_t *tickets;
    int32_t pc[XU_LANES];
    int32_t sub[XU_LANES]; /* progress inside the step */
    int32_t executor;
    uint64_t op;
    uint64_t fp;
    uint64_t noted; /* the count of the ring when it began */
    xp_wait others; /* MPI's progress while it waits */
    int32_t slept;  /* the last run came to the end of its time asleep */
    char *offered; /* a copy of one that they cannot; NULL: there was no need */
    const xu_expose_row *unprobed; /* my offer of which I do not know yet whether they can read it */
    xt_row row;         /* of a recorded call, where the open row of the log is in use */
    xt_row *record;     /* the one that is in use */
    uint64_t wait_from; /* when its wait began; 0: it does not wait */
    uint32_t wait_for;  /* for whom it waits */
} xu_inst;

/* ---- waiting --------------------------------------------------------------- */
static inline void xu_pause(void) {
#if defined(__SSE2__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static inline uint64_t xu_now_ns(void) { return xp_now_ns(); }

static inline void xu_wake(xu_sleepers *s) {
    atomic_fetch_add_explicit(&s->wakes, 1, memory_order_seq_cst);
#if defined(__linux__)
    syscall(SYS_futex, &s->wakes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
}

static inline void xu_publish(xu_word *w, xu_sleepers *s, uint64_t value) {
    atomic_exchange_explicit(w, value, memory_order_seq_cst);
    if (atomic_load_explicit(&s->count, memory_order_seq_cst)) xu_wake(s);
}

/* Sleep until *w >= target or about ns have passed.  Interrupts end it early. */
static inline void xu_sleep(xu_word *w, xu_sleepers *s, uint64_t target, uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    atomic_fetch_add_explicit(&s->count, 1, memory_order_seq_cst);
    uint32_t wakes = atomic_load_explicit(&s->wakes, memory_order_seq_cst);
    if (atomic_load_explicit(w, memory_order_seq_cst) < target) {
#if defined(__linux__)
        syscall(SYS_futex, &s->wakes, FUTEX_WAIT, wakes, &t, NULL, 0);
#else
        (void)wakes;
        if (ns > 50000) t = (struct timespec){0, 50000};
        nanosleep(&t, NULL);
#endif
    }
    atomic_fetch_sub_explicit(&s->count, 1, memory_order_seq_cst);
}

typedef struct { /* what a blocked step waits for */
    xu_word *word;
    xu_sleepers *sleepers;
    uint64_t target;
} xu_blocked;

static inline int xu_ready(xu_word *w, xu_sleepers *sleepers, uint64_t target, xu_blocked *b) {
    if (atomic_load_explicit(w, memory_order_acquire) >= target) return 1;
    b->word = w;
    b->sleepers = sleepers;
    b->target = target;
    return 0;
}

/* ---- copying --------------------------------------------------------------- */
static inline void xu_copy_bytes(char *dst, const char *src, int64_t n, int past) {
    if (n == 8) { /* the commonest small value, without a call */
        memcpy(dst, src, 8);
        return;
    }
#if defined(__SSE2__)
    if (past && n >= XU_PAST_BYTES) {
        int64_t head = (int64_t)((64 - ((uintptr_t)dst & 63)) & 63);
        memcpy(dst, src, (size_t)head);
        dst += head, src += head, n -= head;
        for (; n >= 64; n -= 64, dst += 64, src += 64) {
            __m128i a = _mm_loadu_si128((const __m128i *)src);
            __m128i b = _mm_loadu_si128((const __m128i *)(src + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(src + 32));
            __m128i d = _mm_loadu_si128((const __m128i *)(src + 48));
            _mm_prefetch(src + 1024, _MM_HINT_NTA);
            _mm_stream_si128((__m128i *)dst, a);
            _mm_stream_si128((__m128i *)(dst + 16), b);
            _mm_stream_si128((__m128i *)(dst + 32), c);
            _mm_stream_si128((__m128i *)(dst + 48), d);
        }
        _mm_sfence(); /* streaming stores are not ordered by the later publish */
    }
#else
    (void)past;
#endif
    memcpy(dst, src, (size_t)n);
}

/* The address `n` bytes from a base. The base may be NULL, with an address as the offset, or outside of
 * the memory: C defines no arithmetic of such pointers, but that of integers. */
static inline char *xu_behind(const char *base, int64_t n) {
    return (char *)((uintptr_t)base + (uintptr_t)n);
}

static inline char *xu_place(const xu_inst *in, int32_t operand, int32_t thread, int64_t offset) {
    return xu_behind(in->base[operand], in->stride[operand] * thread + offset);
}

static inline char *xu_block_at(const xu_inst *in, const xu_block *b) {
    return xu_place(in, b->operand, b->thread, b->offset);
}

static inline char *xu_first_of(const xu_inst *in, const xu_blocks *b) {
    return xu_place(in, b->operand, b->thread, b->offset);
}

/* Bytes from each block of a row to the next. */
static inline int64_t xu_apart(const xu_inst *in, const xu_blocks *b) {
    return in->stride[b->operand] * b->thread_step + b->offset_step;
}

static inline void xu_copy(const xu_inst *in, const xu_copy_row *s) {
    char *d = xu_first_of(in, &s->dst);
    const char *p = xu_first_of(in, &s->src);
    int64_t ds = xu_apart(in, &s->dst), ss = xu_apart(in, &s->src);
    /* so long that its beginning has left the cache before a thread reads it, so stores bypass the
     * cache, unlike those to scratch */
    uint64_t least = in->team->nt_min;
    int past = least && s->dst.operand < XU_SLOT && (uint64_t)in->prog->written >= least;
    for (int32_t i = 0; i < s->count; i++, d += ds, p += ss)
        xu_copy_bytes(d, p, s->nbytes, past);
}

static inline void xu_swap_bytes(char *a, char *b, int64_t n) {
    struct { char bytes[64]; } x, y;
    for (; n >= 64; n -= 64, a += 64, b += 64) {
        memcpy(&x, a, 64), memcpy(&y, b, 64);
        memcpy(a, &y, 64), memcpy(b, &x, 64);
    }
    memcpy(&x, a, (size_t)n), memcpy(&y, b, (size_t)n);
    memcpy(a, &y, (size_t)n), memcpy(b, &x, (size_t)n);
}

static inline void xu_swap(const xu_inst *in, const xu_swap_row *s) {
    char *a = xu_first_of(in, &s->a), *b = xu_first_of(in, &s->b);
    int64_t as = xu_apart(in, &s->a), bs = xu_apart(in, &s->b);
    for (int32_t i = 0; i < s->count; i++, a += as, b += bs) xu_swap_bytes(a, b, s->nbytes);
}

/* ---- other threads' private memory ------------------------------------------ */
#define XU_ACROSS_MOST (1 << 30) /* one call of the kernel moves less than 2 GiB */

/* Bytes from, or (`out`) to, the memory of a process of my machine: 0, or an error's number. */
static inline int xu_across(int32_t pid, char *here, char *there, int64_t n, int out) {
#if defined(__linux__)
    long call = out ? SYS_process_vm_writev : SYS_process_vm_readv;
    while (n > 0) {
        size_t m = n < XU_ACROSS_MOST ? (size_t)n : XU_ACROSS_MOST;
        struct iovec mine = {here, m}, its = {there, m};
        long moved = syscall(call, (long)pid, &mine, 1ul, &its, 1ul, 0ul);
        if (moved <= 0) return moved ? errno : EFAULT;
        here += moved, there += moved, n -= moved;
    }
    return 0;
#else
    (void)pid, (void)here, (void)there, (void)n, (void)out;
    return ENOSYS;
#endif
}

/* Whether others can read a block of mine, as far as its ends show. */
static inline int xu_open(int32_t me, char *start, int64_t n) {
#if defined(__linux__)
    char probe[2];
    struct iovec mine = {probe, 2}, its[2] = {{start, 1}, {start + n - 1, 1}};
    return syscall(SYS_process_vm_readv, (long)me, &mine, 1ul, its, 2ul, 0ul) == 2;
#else
    (void)me, (void)start, (void)n;
    return 0;
#endif
}

/* An offer, at the head of a op_scratch: NULL when it is taken back. */
typedef struct {
    char *start;
    int64_t verdict; /* whether others can read it */
} xu_offered;
enum { XU_NOT_KNOWN, XU_OPEN, XU_COPIED };

static inline xu_offered *xu_offer_of(const xu_inst *in, int32_t thread) {
    return (xu_offered *)xu_place(in, XU_SLOT, thread, 0);
}

static inline void xu_offer(xu_inst *in, const xu_expose_row *s) {
    xu_offered *mine = xu_offer_of(in, s->thread);
    __atomic_store_n(&mine->verdict, XU_NOT_KNOWN, __ATOMIC_RELAXED);
    __atomic_store_n(&mine->start, xu_block_at(in, &s->src), __ATOMIC_RELEASE);
    in->unprobed = s;
}

/* Check whether others can read the exposed block. If not (memory of a device, for example), expose a
 * copy. An address may have held other memory in an earlier call, so every call checks, but only when
 * it has nothing else to do: a reader that is denied access waits until the owner has checked. */
static inline void xu_probe(xu_inst *in) {
    const xu_expose_row *s = in->unprobed;
    if (!s) return;
    in->unprobed = NULL;
    char *start = xu_block_at(in, &s->src);
    xu_offered *mine = xu_offer_of(in, s->thread);
    int64_t verdict = XU_OPEN;
    if (!xu_open(in->team->pids[s->thread], start, s->nbytes)) {
        /* a plan exposes one block, always of the same size */
        if (!in->offered) in->offered = malloc((size_t)s->nbytes);
        if (in->offered) {
            memcpy(in->offered, start, (size_t)s->nbytes);
            __atomic_store_n(&mine->start, in->offered, __ATOMIC_RELAXED);
            verdict = XU_COPIED;
        }
    }
    __atomic_store_n(&mine->verdict, verdict, __ATOMIC_RELEASE);
}

/* Withdraw the exposed block of a call that failed: its arrays belong to the program again, and threads
 * that arrive later must not access them. */
static inline void xu_withdraw(xu_inst *in) {
    in->unprobed = NULL;
    for (int32_t i = in->prog->first[0]; i < in->pc[0]; i++) {
        const xu_step *s = &in->prog->steps[i];
        if (s->kind == XS_EXPOSE)
            __atomic_store_n(&xu_offer_of(in, s->expose.thread)->start, NULL, __ATOMIC_SEQ_CST);
    }
}

/* DIRECT_GET or DIRECT_PUT: whether all blocks are over. If not, a process is gone or has given up, which
 * others notice, or memory is closed and will be offered as a copy.
 * What cannot be read or written for another reason could be when its giver looked, at its ends: the
 * call goes on, since others wait for what is to come, and fails where threads next meet. */
static inline int xu_trade(xu_inst *in, const xu_direct_row *s, int32_t *sub) {
    xu_team *t = in->team;
    int out = s->kind == XS_DIRECT_PUT;
    for (; *sub < s->count; ++*sub) {
        int32_t thread = s->thread + *sub * s->thread_step;
        char *here = xu_first_of(in, &s->mine) + *sub * xu_apart(in, &s->mine);
        xu_offered *offer = xu_offer_of(in, thread);
        char *start = __atomic_load_n(&offer->start, __ATOMIC_ACQUIRE);
        if (!start) return 0;
        int error = xu_across(t->pids[thread], here, start + s->offset, s->nbytes, out);
        if (error == ESRCH) return 0;
        if (error) {
            xu_probe(in); /* whose memory I cannot read may be waiting for me */
            if (__atomic_load_n(&offer->verdict, __ATOMIC_ACQUIRE) == XU_NOT_KNOWN) return 0;
            if (__atomic_load_n(&offer->start, __ATOMIC_RELAXED) != start) return 0; /* again */
        }
        if (error && !t->unread) {
            t->unread = thread + 1;
            t->poison = ~(uint64_t)t->me; /* another one on each thread */
        }
    }
    return 1;
}

/* What others wrote to a copy of my memory, because they cannot write to that. */
static inline void xu_reclaim(const xu_inst *in, const xu_copy_back_row *s) {
    char *offer = xu_offer_of(in, s->thread)->start;
    for (int32_t i = 0; i < s->count; i++) {
        char *to = xu_first_of(in, &s->dst) + i * s->dst.offset_step;
        char *from = offer + s->offset + i * s->dst.offset_step;
        if (to != from) memcpy(to, from, (size_t)s->nbytes);
    }
}

/* ---- reducing -------------------------------------------------------------- */
/* One row of a fold, elements `from .. from + m` of it: the leaves are a tree in reverse
 * Polish notation; what is not yet combined is on a stack of pointers. */
static inline void xu_fold_piece(const xu_inst *in, const xu_step *s, int64_t row, int64_t from,
                                 int64_t m, char *dst) {
    const xu_fold_row *fold = &s->fold;
    _Alignas(64) char room[XU_DEPTH][XU_FOLD_BYTES];
    const char *stack[XU_DEPTH];
    const xk_kernel *k = in->kernel;
    int depth = 0;
    if (!fold->operands) {
        k->fill(k, dst, m);
        return;
    }
    for (const xu_step *at = s + 1, *end = s + fold->operands; at <= end; at++) {
        const xu_fold_operand_row *leaf = &at->fold_operand;
        const char *p = xu_block_at(in, &leaf->src) + row * leaf->row_step + from * k->size;
        if (leaf->times > 1) {
            char *out = room[depth];
            if (fold->nelems == 1 && leaf->offset_step == k->size) {
                k->fold(k, out, p, leaf->times);
            } else {
                k->combine(k, out, p, p + leaf->offset_step, m);
                for (int64_t b = 2; b < leaf->times; b++)
                    k->combine(k, out, out, p + b * leaf->offset_step, m);
            }
            p = out;
        }
        stack[depth++] = p;
        for (int32_t j = 0; j < leaf->joins; j++) {
            depth--;
            char *out = at == end && depth == 1 ? dst : room[depth - 1];
            k->combine(k, out, stack[depth - 1], stack[depth], m);
            stack[depth - 1] = out;
        }
    }
    if (stack[0] != dst) memmove(dst, stack[0], (size_t)(m * k->size));
}

static inline void xu_fold(const xu_inst *in, const xu_step *s) {
    const xu_fold_row *fold = &s->fold;
    int64_t size = in->kernel->size, n = fold->nelems, most = XU_FOLD_BYTES / size;
    int64_t step = xu_apart(in, &fold->dst);
    for (int64_t row = 0; row < fold->rows; row++) {
        char *dst = xu_first_of(in, &fold->dst) + row * fold->row_step;
        for (int64_t from = 0; from < n; from += most) {
            int64_t m = n - from < most ? n - from : most;
            char *here = dst + from * size;
            xu_fold_piece(in, s, row, from, m, here);
            for (int32_t c = 1; c < fold->copies; c++)
                memcpy(here + c * step, here, (size_t)(m * size));
        }
    }
}

static inline void xu_scan(const xu_inst *in, const xu_step *s) {
    const xu_scan_row *scan = &s->scan;
    const xu_fold_operand_row *leaf = &s[1].fold_operand;
    const xk_kernel *k = in->kernel;
    for (int64_t row = 0; row < scan->rows; row++) {
        const char *carry = NULL;
        if (scan->carry) carry = xu_block_at(in, &leaf->src) + row * leaf->row_step;
        char *dst = xu_block_at(in, &scan->dst) + row * scan->dst_step;
        const char *src = xu_block_at(in, &scan->src) + row * scan->src_step;
        if (dst == src + k->size || dst + k->size == src) { /* the kernel takes them in one place */
            memmove(dst, src, (size_t)(scan->nelems * k->size));
            src = dst;
        }
        k->scan(k, dst, src, scan->nelems, carry, scan->reverse);
    }
}

/* ---- barrier pieces -------------------------------------------------------- */
static inline xu_arrival *xu_lines(const xu_team *t) {
    return t->arrival + (t->epoch & 1) * (uint64_t)t->n;
}

static inline xu_subtree *xu_subtrees(const xu_team *t) {
    return t->subtree + (t->epoch & 1) * (uint64_t)t->n;
}

/* By levels: go on without my relatives, and let them go on without me. */
static inline void xu_go_alone(xu_team *t) {
    uint64_t away = t->epoch << XU_STATE_BITS | XU_AWAY;
    t->alone = 1;
    if (!t->nchildren) return;
    if (t->seen <= t->nchildren)
        atomic_store_explicit(&xu_subtrees(t)[t->me].seq, away, memory_order_release);
    atomic_store_explicit(&t->relay[t->me].word, away, memory_order_release);
}

/* Steps 1-3.  Returns 1 to the last arriver of counter mode. */
static inline int xu_arrive(xu_team *t, uint64_t fp) {
    t->epoch++;
    xu_arrival *mine = xu_lines(t) + t->me;
    atomic_store_explicit(&mine->fp, fp ^ t->poison, memory_order_relaxed);
    atomic_store_explicit(&mine->value, t->value, memory_order_relaxed);
    atomic_store_explicit(&mine->wrote, t->wrote, memory_order_relaxed);
    t->wrote = 0;
    if (t->mode == XU_FLAT) {
        xu_publish(&mine->seq, &mine->sleepers, t->epoch);
        return 0;
    }
    if (t->mode == XU_LEVELS) {
        xu_publish(&mine->seq, &mine->sleepers, t->epoch);
        t->seen = t->alone = 0;
        if (t->posted | t->giving_up) xu_go_alone(t);
        return 0;
    }
    atomic_store_explicit(&mine->seq, t->epoch, memory_order_release); /* no thread sleeps on it */
    uint64_t full = (uint64_t)t->n * t->epoch;
    uint64_t now = atomic_fetch_add_explicit(&t->counter->word, 1, memory_order_seq_cst) + 1;
    if (now != full) return 0;
    if (atomic_load_explicit(&t->counter->sleepers.count, memory_order_seq_cst))
        xu_wake(&t->counter->sleepers);
    return 1;
}

/* Return whether all have arrived; `from` keeps the position of a flat scan. */
static inline int xu_all_here(xu_team *t, int32_t *from, xu_blocked *b) {
    if (t->mode == XU_COUNTER)
        return xu_ready(&t->counter->word, &t->counter->sleepers,
                        (uint64_t)t->n * t->epoch, b);
    xu_arrival *line = xu_lines(t);
    for (; *from < t->n; ++*from)
        if (!xu_ready(&line[*from].seq, &line[*from].sleepers, t->epoch, b)) return 0;
    return 1;
}

static inline void xu_add(xu_calls *all, uint64_t low, uint64_t high, uint64_t value) {
    if (low < all->low) all->low = low;
    if (high > all->high) all->high = high;
    if (value && all->value && value != all->value) all->conflict = 1;
    if (value) all->value = value;
}

static inline void xu_add_arrival(xu_calls *all, const xu_arrival *line) {
    uint64_t fp = atomic_load_explicit(&line->fp, memory_order_relaxed);
    xu_add(all, fp, fp, atomic_load_explicit(&line->value, memory_order_relaxed));
    all->wrote |= atomic_load_explicit(&line->wrote, memory_order_relaxed);
}

/* Note what all threads of the node have in common; return whether their calls differ. */
static inline int xu_judge(xu_team *t, const xu_calls *all) {
    t->node_min = all->low;
    t->node_max = all->high;
    t->node_value = all->value;
    t->node_conflict = all->conflict;
    t->node_wrote = all->wrote;
    return all->low != all->high || all->conflict;
}

/* Compare the lines of the threads that have arrived (step 4). */
static inline int xu_compare(xu_team *t, uint64_t fp) {
    xu_arrival *line = xu_lines(t);
    xu_calls all = {fp, fp, t->value, 0, 0};
    for (int32_t j = 0; j < t->n; j++)
        if (atomic_load_explicit(&line[j].seq, memory_order_acquire) == t->epoch)
            xu_add_arrival(&all, &line[j]);
    return xu_judge(t, &all);
}

/* Return how this thread waits at the barrier. */
static inline int xu_way(const xu_team *t) {
    if (t->mode == XU_FLAT) return XU_FLAT;
    return (t->mode == XU_COUNTER ? t->giving_up : t->alone) ? XU_FLAT : t->mode;
}

/* ---- barriers by levels ------------------------------------------------------ */
/* The state of a line of the tree in this epoch, or `passed` if it is in a later one; XU_BLOCKED. */
#define XU_BLOCKED -1
static inline int xu_state(const xu_team *t, xu_word *word, int passed, xu_blocked *b) {
    if (!xu_ready(word, NULL, t->epoch << XU_STATE_BITS, b)) return XU_BLOCKED;
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);
    return now >> XU_STATE_BITS == t->epoch ? (int)(now & ((1 << XU_STATE_BITS) - 1)) : passed;
}

static inline void xu_add_subtree(xu_calls *all, const xu_subtree *part) {
    xu_add(all, atomic_load_explicit(&part->low, memory_order_relaxed),
           atomic_load_explicit(&part->high, memory_order_relaxed),
           atomic_load_explicit(&part->value, memory_order_relaxed));
    all->conflict |= atomic_load_explicit(&part->conflict, memory_order_relaxed);
    all->wrote |= atomic_load_explicit(&part->wrote, memory_order_relaxed);
}

/* Combine the lines of my children, which are here, and mine. */
static inline void xu_combine(const xu_team *t, uint64_t fp, xu_calls *all) {
    xu_arrival *line = xu_lines(t);
    *all = (xu_calls){fp, fp, t->value, 0, 0};
    xu_add_arrival(all, &line[t->me]);
    for (int32_t i = 0; i < t->nchildren; i++) {
        int32_t j = t->children[i];
        if (j >= 0) {
            xu_add_arrival(all, &line[j]);
            continue;
        }
        xu_add_subtree(all, xu_subtrees(t) + ~j);
    }
}

/* Steps 3 and 4: 1 when all of my subtree are here and my parent can see it. */
static inline int xu_climb(xu_team *t, uint64_t fp, xu_blocked *b) {
    for (; t->seen < t->nchildren; t->seen++) {
        int32_t j = t->children[t->seen];
        if (j >= 0) {
            if (!xu_ready(&xu_lines(t)[j].seq, NULL, t->epoch, b)) return 0;
            continue;
        }
        int state = xu_state(t, &xu_subtrees(t)[~j].seq, XU_HERE, b);
        if (state == XU_AWAY) xu_go_alone(t);
        if (state != XU_HERE) return 0;
    }
    if (t->seen > t->nchildren) return 1;
    t->seen++;
    if (!t->nchildren) return 1;
    xu_calls all;
    xu_combine(t, fp, &all);
    t->verdict = xu_judge(t, &all);
    xu_subtree *mine = xu_subtrees(t) + t->me;
    atomic_store_explicit(&mine->low, all.low, memory_order_relaxed);
    atomic_store_explicit(&mine->high, all.high, memory_order_relaxed);
    atomic_store_explicit(&mine->value, all.value, memory_order_relaxed);
    atomic_store_explicit(&mine->conflict, all.conflict, memory_order_relaxed);
    atomic_store_explicit(&mine->wrote, all.wrote, memory_order_relaxed);
    atomic_store_explicit(&mine->seq, t->epoch << XU_STATE_BITS | XU_HERE, memory_order_release);
    return 1;
}

/* Pass the verdict on to my children. */
static inline void xu_pass_on(xu_team *t) {
    if (t->nchildren && !t->alone)
        atomic_store_explicit(&t->relay[t->me].word,
                              t->epoch << XU_STATE_BITS | (t->verdict ? XU_BAD : XU_GOOD),
                              memory_order_release);
}

/* Wait for the verdict on this barrier from my parent: 0 if it is not there, or I am alone now. */
static inline int xu_descend(xu_team *t, xu_blocked *b) {
    /* a later epoch: my parent has continued, so this one was good */
    int state = xu_state(t, &t->relay[t->parent].word, XU_GOOD, b);
    if (state == XU_AWAY) xu_go_alone(t);
    if (state == XU_AWAY || state == XU_BLOCKED) return 0;
    t->verdict = state == XU_BAD;
    return 1;
}

/* Executor or node root: 1 when all are here; then t->verdict says whether calls differ. */
static inline int xu_gather_by_levels(xu_team *t, uint64_t fp, xu_blocked *b) {
    if (!xu_climb(t, fp, b)) return 0;
    if (t->parent < 0) return 1;
    xu_subtree *top = xu_subtrees(t); /* the node root's */
    int state = xu_state(t, &top->seq, XU_HERE, b);
    if (state == XU_AWAY) xu_go_alone(t);
    if (state != XU_HERE) return 0;
    xu_calls all = {fp, fp, t->value, 0, 0};
    xu_add_subtree(&all, top);
    t->verdict = xu_judge(t, &all);
    return 1;
}

/* A whole barrier by levels: 1 when it is over, 0 when it is not, or this thread is alone now. */
static inline int xu_meet_by_levels(xu_team *t, uint64_t fp, xu_blocked *b) {
    if (!xu_climb(t, fp, b)) return 0;
    if (t->parent >= 0 && !xu_descend(t, b)) return 0;
    xu_pass_on(t);
    return 1;
}

static inline void xu_release(xu_team *t, int verdict) {
    t->verdict = verdict;
    xu_publish(&t->release->word, &t->release->sleepers, t->epoch << 1 | (uint64_t)(verdict != 0));
}

static inline int xu_released(xu_team *t, xu_sleepers *sleepers, xu_blocked *b) {
    if (!xu_ready(&t->release->word, sleepers, t->epoch << 1, b)) return 0;
    uint64_t r = atomic_load_explicit(&t->release->word, memory_order_acquire);
    /* a later epoch: the node root has continued, so this one was good, and has given up there */
    t->verdict = r >> 1 == t->epoch && (r & 1);
    return 1;
}

/* Executor or node root: return whether all are here; then t->verdict says whether calls differ. */
static inline int xu_gather(xu_team *t, uint64_t fp, int32_t *from, xu_blocked *b) {
    if (xu_way(t) == XU_LEVELS) {
        if (xu_gather_by_levels(t, fp, b)) return 1;
        if (!t->alone) return 0;
    }
    if (!xu_all_here(t, from, b)) return 0;
    t->verdict = xu_compare(t, fp);
    return 1;
}

/* Executor or node root: release all others. */
static inline void xu_let_go(xu_team *t, int verdict) {
    xu_release(t, verdict);
    if (t->mode == XU_LEVELS) xu_pass_on(t);
}

/* Wait for the release. */
static inline int xu_await(xu_team *t, uint64_t fp, xu_blocked *b) {
    if (t->mode == XU_LEVELS && !t->alone && xu_climb(t, fp, b)) {
        /* the top knows of a difference before the executor, which may be in another call */
        if (t->parent < 0 ? t->verdict || xu_released(t, NULL, b) : xu_descend(t, b)) {
            xu_pass_on(t);
            return 1;
        }
    }
    if (t->mode == XU_LEVELS && !t->alone) return 0;
    return xu_released(t, &t->release->sleepers, b);
}

/* ---- the step loop --------------------------------------------------------- */
enum { XT_NEXT, XT_BLOCKED, XT_PYTHON, XT_MISMATCH };

static inline void xu_synced(xu_team *t) { t->unsynced = 0; t->value = 0; }

/* End a led call: this node is done, others may not be. */
static inline void xu_left(xu_team *t) {
    t->led_epoch = t->epoch;
    atomic_store_explicit(t->left, t->epoch, memory_order_release);
}

static inline int xu_try(xu_inst *in, int lane, xu_blocked *b) {
    xu_team *t = in->team;
    const xu_step *s = &in->prog->steps[in->pc[lane]];
    int32_t *sub = &in->sub[lane];
    b->word = NULL;
    switch (s->kind) {
    case XS_COPY:
        xu_copy(in, &s->copy);
        break;
    case XS_SWAP:
        xu_swap(in, &s->swap);
        break;
    case XS_EXPOSE:
        xu_offer(in, &s->expose);
        break;
    case XS_DIRECT_GET:
    case XS_DIRECT_PUT:
        if (!xu_trade(in, &s->direct, sub)) return XT_BLOCKED;
        break;
    case XS_COPY_BACK:
        xu_reclaim(in, &s->copy_back);
        break;
    case XS_FOLD:
        xu_fold(in, s);
        in->pc[lane] += s->fold.operands;
        break;
    case XS_SCAN:
        xu_scan(in, s);
        in->pc[lane] += s->scan.carry;
        break;
    case XS_FUNCTION: /* *sub: computed here, but there is something for Python to report */
        if (!xf_room()) in->kernel = NULL; /* no memory: Python may find some, or say so */
        if (!in->kernel || *sub) return XT_PYTHON;
        (s[1].kind == XS_FOLD ? xu_fold : xu_scan)(in, s + 1);
        if (xf_alerts(in->kernel)) {
            *sub = 1;
            return XT_PYTHON;
        }
        in->pc[lane] += s->function.rows;
        break;
    case XS_SIGNAL: {
        xu_slot *mine = t->slot + (in->op % XU_SLOTS) * (uint64_t)t->n + t->me;
        xu_publish(&mine->chan[s->signal.channel], &mine->sleepers,
                   in->op << XU_COUNT_BITS | (uint64_t)s->signal.value);
        break;
    }
    case XS_WAIT: {
        const xu_wait_row *w = &s->wait;
        xu_slot *row = t->slot + (in->op % XU_SLOTS) * (uint64_t)t->n;
        uint64_t target = in->op << XU_COUNT_BITS | (uint64_t)w->value;
        for (; *sub < w->count; ++*sub) {
            xu_slot *who = row + w->first + *sub;
            if (!xu_ready(&who->chan[w->channel], &who->sleepers, target, b)) return XT_BLOCKED;
            /* the fingerprint beside the signal: same operation, but is it the same call? */
            if (atomic_load_explicit(&who->fp, memory_order_relaxed) != in->fp &&
                atomic_load_explicit(&who->entered, memory_order_relaxed) == in->op + 1 &&
                !t->giving_up)
                return XT_MISMATCH;
        }
        break;
    }
    case XS_BARRIER: /* all members are on this node */
        if (*sub == 0) {
            int last = xu_arrive(t, in->fp);
            *sub = 1;
            if (last) {
                int odd = xu_compare(t, in->fp);
                xu_release(t, odd);
                xu_synced(t);
                if (odd) return XT_MISMATCH;
                break;
            }
        }
        /* a thread that gave up knows the verdict: the last to arrive may be in a fused call, whose
         * executor, if it gave up as well, never releases the others */
        {
            int way = xu_way(t);
            if (way == XU_LEVELS && !xu_meet_by_levels(t, in->fp, b)) {
                if (!t->alone) return XT_BLOCKED;
                way = XU_FLAT;
            }
            if (way == XU_COUNTER) {
                if (!xu_released(t, &t->release->sleepers, b)) return XT_BLOCKED;
            } else if (way == XU_FLAT) {
                int32_t from = *sub - 1;
                int here = xu_all_here(t, &from, b);
                *sub = from + 1;
                if (!here) return XT_BLOCKED;
                t->verdict = xu_compare(t, in->fp);
            }
        }
        xu_synced(t);
        if (t->verdict) return XT_MISMATCH;
        break;
    case XS_ARRIVE:
        xu_arrive(t, in->fp);
        break;
    case XS_GATHER:
        {
            int32_t verdict = t->verdict; /* this one is of my node alone: the exchange has it */
            int here = xu_gather(t, in->fp, sub, b);
            t->verdict = verdict;
            if (!here) return XT_BLOCKED;
        }
        if (atomic_load_explicit(&t->release->word, memory_order_relaxed) == (t->epoch << 1 | 1))
            t->node_conflict = 1; /* given up early */
        break;
    case XS_RELEASE: /* t->verdict is that of all nodes: from the exchange between their roots */
        xu_let_go(t, t->verdict);
        xu_synced(t);
        if (t->verdict) return XT_MISMATCH;
        if (s->release.led) xu_left(t);
        break;
    case XS_CHECK: /* like RELEASE if the verdict is bad; a good one waits for the end */
        if (!t->verdict) break;
        xu_let_go(t, 1);
        xu_synced(t);
        return XT_MISMATCH;
    case XS_AWAIT:
        if (!xu_await(t, in->fp, b)) return XT_BLOCKED;
        xu_synced(t);
        if (t->verdict) return XT_MISMATCH;
        if (s->release.led) xu_left(t);
        break;
    case XS_FUSE: /* FUSE body... FUSE_END AWAIT */
        if (*sub == 0) {
            int last = xu_arrive(t, in->fp);
            int executor = s->fuse.executor;
            in->executor = executor >= 0 ? executor == t->me : t->mode == XU_COUNTER ? last : t->me == 0;
            *sub = 1;
        }
        if (!in->executor) {
            in->pc[lane] += s->fuse.body + 1;
            break;
        }
        {
            int32_t from = *sub - 1;
            int here = xu_gather(t, in->fp, &from, b);
            *sub = from + 1;
            if (!here) return XT_BLOCKED;
        }
        if (t->verdict) {
            xu_let_go(t, 1);
            xu_synced(t);
            return XT_MISMATCH;
        }
        break;
    case XS_FUSE_END:
        xu_let_go(t, 0);
        xu_synced(t);
        in->pc[lane]++; /* past the AWAIT */
        break;
    case XS_WAIT_TICKET:
        if (!in->tickets[s->ticket.ticket]) return XT_BLOCKED;
        break;
    case XS_SET_TICKET:
        in->tickets[s->ticket.ticket] = 1;
        break;
    default: /* messages: mpi_messages.h or Python runs them */
        return XT_PYTHON;
    }
    in->pc[lane]++;
    *sub = 0;
    return XT_NEXT;
}

/* Every lane as far as it goes, the net lane first; a copy gives the net lane a
 * turn. XU_PENDING: *b is what the last blocked lane waits for (word NULL: a ticket). */
static inline int xu_advance(xu_inst *in, xu_blocked *b, int *blocked_lanes) {
    int python, moved, blocked;
    do {
        moved = python = blocked = 0;
        for (int lane = XU_LANES - 1; lane >= 0; lane--) {
            while (in->pc[lane] < in->prog->end[lane]) {
                xu_blocked here;
                int kind = in->prog->steps[in->pc[lane]].kind;
                int copy = kind == XS_COPY || kind == XS_FOLD || kind == XS_SCAN ||
                           kind == XS_FUNCTION || kind == XS_SWAP;
                int r = xu_try(in, lane, &here);
                if (r == XT_NEXT) {
                    moved = 1;
                    if (copy && lane == 0 && in->pc[1] < in->prog->end[1]) {
                        blocked++; /* not blocked, but not done either */
                        b->word = NULL;
                        break;
                    }
                    continue;
                }
                if (r == XT_MISMATCH) return XU_MISMATCH;
                if (r == XT_PYTHON) {
                    python = 1;
                } else {
                    *b = here;
                    blocked++;
                }
                break;
            }
        }
    } while (moved && !python && blocked);
    *blocked_lanes = blocked;
    if (python) return XU_CALL_PYTHON;
    return blocked ? XU_PENDING : XU_DONE;
}

/* ---- recorded waits ---------------------------------------------------------- */
/* Return whom a blocked step waits for. */
static inline uint32_t xu_whom(const xu_team *t, const xu_blocked *b) {
    uintptr_t word = (uintptr_t)b->word, n = (uintptr_t)t->n;
    if (!word) return XT_NONE;
    if (b->word == &t->release->word || b->word == &t->counter->word) return XT_LAST;
    uintptr_t at = (word - (uintptr_t)t->arrival) / XU_LINE;
    if (at >= 2 * n) at = (word - (uintptr_t)t->slot) / XU_LINE;
    return XT_MEMBER | (uint32_t)(at % n);
}

static inline void xu_wait_begins(xu_inst *in, uint32_t whom) {
    if (!in->wait_from) {
        in->wait_from = xt_now(&in->team->trace->clock);
        in->wait_for = whom;
    } else if (whom) {
        in->wait_for = whom;
    }
}

static inline void xu_wait_ends(xu_inst *in, uint64_t now) {
    if (in->wait_from) xt_waited(in->record, in->wait_from, now, in->wait_for);
    in->wait_from = 0;
}

static inline uint64_t xu_position(const xu_inst *in) {
    uint64_t node = (uint64_t)in->pc[0] << 32 | (uint32_t)in->sub[0];
    uint64_t net = (uint64_t)in->pc[1] << 32 | (uint32_t)in->sub[1];
    return node * 0x9e3779b97f4a7c15u + net;
}

/* xu_advance of a recorded call. While it is posted and the program does something else, its waits are
 * none of the program's. */
static inline int xu_advance_recorded(xu_inst *in, xu_blocked *b, int *lanes) {
    uint64_t before = xu_position(in), now = 0;
    if (in->wait_from) now = xt_now(&in->team->trace->clock);
    int r = xu_advance(in, b, lanes);
    if (now && xu_position(in) != before) xu_wait_ends(in, now);
    if (r == XU_PENDING && in->record->state != XT_POSTED) xu_wait_begins(in, xu_whom(in->team, b));
    return r;
}

static inline int xu_move(xu_inst *in, xu_blocked *b, int *lanes) {
    return in->team->trace ? xu_advance_recorded(in, b, lanes) : xu_advance(in, b, lanes);
}

/* Whether a call waits at its team's barrier `epoch`, at which it has arrived. */
static inline int xu_arrived(const xu_inst *in) {
    if (in->pc[0] >= in->prog->end[0]) return 0;
    int kind = in->prog->steps[in->pc[0]].kind;
    if (kind == XS_BARRIER || kind == XS_FUSE) return in->sub[0] > 0;
    return kind == XS_AWAIT;
}

/* A waiter that sees a member at the same point with another fingerprint, or the
 * one it waits for gone past its operation, knows that the calls differ. */
static inline int xu_suspect(const xu_inst *in) {
    xu_team *t = in->team;
    if (t->giving_up) return 0;
    /* a verdict on a barrier at which this thread has not arrived: the node root gave up; if this
     * thread waits at the one before, that has been released since the last check, and was good */
    uint64_t released = atomic_load_explicit(&t->release->word, memory_order_acquire);
    if (released == ((t->epoch + 1) << 1 | 1) && !xu_arrived(in)) return 1;
    /* a member in the same operation with another fingerprint */
    const xu_slot *same = t->slot + (in->op % XU_SLOTS) * (uint64_t)t->n;
    for (int32_t j = 0; in->prog->barriers < 2 && j < t->n; j++)
        if (atomic_load_explicit(&same[j].entered, memory_order_acquire) == in->op + 1 &&
            atomic_load_explicit(&same[j].fp, memory_order_relaxed) != in->fp)
            return 1;
    for (int lane = 0; lane < XU_LANES; lane++) {
        if (in->pc[lane] >= in->prog->end[lane]) continue;
        const xu_step *s = &in->prog->steps[in->pc[lane]];
        if (s->kind == XS_AWAIT || s->kind == XS_FUSE || s->kind == XS_BARRIER) {
            if (s->kind != XS_AWAIT && in->sub[lane] == 0) continue;
            xu_arrival *line = xu_lines(t);
            for (int32_t j = 0; j < t->n; j++)
                if (atomic_load_explicit(&line[j].seq, memory_order_acquire) == t->epoch &&
                    atomic_load_explicit(&line[j].fp, memory_order_relaxed) != in->fp)
                    return 1;
        } else if (s->kind == XS_WAIT) {
            xu_slot *row = t->slot + (in->op % XU_SLOTS) * (uint64_t)t->n;
            xu_arrival *next = t->arrival + ((t->epoch + 1) & 1) * (uint64_t)t->n;
            int32_t j = s->wait.first + in->sub[lane];
            uint64_t target = in->op << XU_COUNT_BITS | (uint64_t)s->wait.value;
            /* read before the word: the writer signals, then goes on */
            xu_slot *later = t->slot + ((in->op + 1) % XU_SLOTS) * (uint64_t)t->n;
            int gone = atomic_load_explicit(&later[j].entered, memory_order_acquire) > in->op + 1;
            /* arrived at the next barrier with the fingerprint of other calls */
            if (atomic_load_explicit(&next[j].seq, memory_order_acquire) == t->epoch + 1 &&
                atomic_load_explicit(&next[j].fp, memory_order_relaxed) != in->fp)
                gone = 1;
            if (gone && atomic_load_explicit(&row[j].chan[s->wait.channel],
                                             memory_order_acquire) < target)
                return 1;
        }
    }
    return 0;
}

/* Write up to `most` members of this node that the call waits for to out; return how many. */
static inline int xu_awaited(const xu_inst *in, int32_t *out, int most) {
    xu_team *t = in->team;
    int n = 0;
    for (int lane = 0; lane < XU_LANES; lane++) {
        if (in->pc[lane] >= in->prog->end[lane]) continue;
        const xu_step *s = &in->prog->steps[in->pc[lane]];
        if (s->kind == XS_WAIT) {
            const xu_slot *row = t->slot + (in->op % XU_SLOTS) * (uint64_t)t->n;
            int32_t j = s->wait.first + in->sub[lane];
            uint64_t target = in->op << XU_COUNT_BITS | (uint64_t)s->wait.value;
            if (n < most && j != t->me &&
                atomic_load_explicit(&row[j].chan[s->wait.channel], memory_order_acquire) < target)
                out[n++] = j;
        } else if (s->kind == XS_AWAIT || s->kind == XS_GATHER ||
                   ((s->kind == XS_FUSE || s->kind == XS_BARRIER) && in->sub[lane])) {
            const xu_arrival *line = xu_lines(t);
            for (int32_t j = 0; j < t->n && n < most; j++)
                if (atomic_load_explicit(&line[j].seq, memory_order_acquire) < t->epoch)
                    out[n++] = j;
        }
    }
    return n;
}

#define XU_PATIENCE 64 /* pauses after which there is time for something else */
#define XU_BRIEF_NS 20000u

/* Before a sleep: no thread sleeps on the lines of a tree. */
static inline int xu_leave_tree(xu_inst *in, xu_blocked *b, int *lanes) {
    int r = XU_PENDING;
    while (r == XU_PENDING && b->word && !b->sleepers) {
        xu_go_alone(in->team);
        r = xu_move(in, b, lanes);
    }
    return r;
}

/* Spins, then yields, as the team's policy says. `brief`: spins for XU_BRIEF_NS at most, since the
 * caller holds the interpreter; it spins in full in the next run, when that is released. Across nodes a thread in a
 * single exchange does not yield: its looks would keep the core from its node root. */
static inline int xu_stay_awake(xu_inst *in, xu_blocked *b, int *lanes, int brief) {
    xu_team *t = in->team;
    uint64_t until = 0;
    int r;
    for (int i = 0; i < t->spins; i++) {
        if (i % XU_PATIENCE == 0 && i) {
            if (i == XU_PATIENCE) xu_probe(in);
            if (brief) {
                uint64_t now = xu_now_ns();
                if (!until) until = now + XU_BRIEF_NS;
                if (now >= until) return XU_PENDING;
            } else {
                xp_spin(&in->others);
            }
        }
        if (*lanes == 1 && b->word) {
            if (atomic_load_explicit(b->word, memory_order_acquire) < b->target) {
                xu_pause();
                continue;
            }
        } else {
            xu_pause();
        }
        r = xu_move(in, b, lanes);
        if (r != XU_PENDING) return r;
    }
    xu_probe(in);
    int yields = t->several && in->prog->exchange ? 0 : t->yields;
    for (int i = 0; i < yields && *lanes == 1 && b->word; i++) {
        sched_yield();
        r = xu_move(in, b, lanes);
        if (r != XU_PENDING) return r;
        if (!brief) xp_spin(&in->others);
    }
    return xu_leave_tree(in, b, lanes);
}

/* Sleeps in slices until about so much time has passed, and makes MPI's progress between them. */
static inline int xu_sleep_on(xu_inst *in, xu_blocked *b, int *lanes, uint64_t ns) {
    uint64_t now = xu_now_ns(), end = now + ns, slice = XU_SLICE_NS, look = now + slice;
    while (now < end) {
        if (!b->word) return XU_PENDING; /* a ticket: only Python can set it */
        int r = xu_leave_tree(in, b, lanes);
        if (r != XU_PENDING) return r;
        uint64_t rest = xp_rest(&in->others, now);
        uint64_t most = *lanes > 1 ? 100000u : look > now ? look - now : 1;
        if (end - now < most) most = end - now;
        if (rest)
            xu_sleep(b->word, b->sleepers, b->target, rest < most ? rest : most);
        else
            sched_yield();
        r = xu_move(in, b, lanes);
        if (r != XU_PENDING) return r;
        now = xu_now_ns();
        if (now < look) continue;
        if (in->team->trace) in->team->trace->head->seen = now;
        if (xu_suspect(in)) return XU_MISMATCH;
        if (slice < 64000000u) slice *= 2;
        look = now + slice;
    }
    in->slept = 1;
    return XU_PENDING;
}

/* Waits as the team's policy says; sleeps only if sleep_ns > 0. */
static inline int xu_go_on(xu_inst *in, uint64_t sleep_ns) {
    xu_blocked b;
    int lanes, r;
    r = xu_move(in, &b, &lanes);
    if (r != XU_PENDING) return r;
    if (sleep_ns) xp_go_on(&in->others, in->team->progress);
    int slept = in->slept && sleep_ns; /* all the time of the last run, for nothing */
    in->slept = 0;
    if (!slept) r = xu_stay_awake(in, &b, &lanes, !sleep_ns && in->team->progress);
    if (r != XU_PENDING) return r;
    if (xu_suspect(in)) return XU_MISMATCH;
    if (!sleep_ns) return XU_PENDING;
    return xu_sleep_on(in, &b, &lanes, sleep_ns);
}

/* Run all steps that can run. */
static inline int xu_run(xu_inst *in, uint64_t sleep_ns) {
    int r = xu_go_on(in, sleep_ns);
    if (r != XU_DONE) xu_probe(in);
    return r;
}

/* The time for reports: milliseconds are enough, at a third of the cost. */
static inline uint64_t xu_coarse_ns(void) {
    struct timespec now;
#if defined(CLOCK_MONOTONIC_COARSE)
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#elif defined(CLOCK_UPTIME_RAW) /* Python's monotonic clock on macOS */
    clock_gettime(CLOCK_UPTIME_RAW, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void xu_fence(void) { atomic_thread_fence(memory_order_seq_cst); }

/* ---- a call ---------------------------------------------------------------- */
static inline uint64_t xu_mix(uint64_t a, uint64_t b) {
    a ^= b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2);
    a *= 0xff51afd7ed558ccdu;
    return a ^ (a >> 32);
}

/* Only the thread itself writes its ring; readers compare the count before and after. */
static inline void xu_note_begin(xu_inst *in, uint64_t call) {
    xu_ring *ring = in->team->ring;
    if (!ring) return;
    uint64_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
    xu_call *mine = &ring->call[count % XU_RING];
    atomic_store_explicit(&mine->op, in->op, memory_order_relaxed);
    atomic_store_explicit(&mine->what, call | in->team->number << 32, memory_order_relaxed);
    uint64_t now = in->team->trace ? in->record->began : xu_coarse_ns();
    atomic_store_explicit(&mine->began, now, memory_order_relaxed);
    atomic_store_explicit(&mine->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&ring->count, count + 1, memory_order_release);
    in->noted = count;
}

static inline void xu_note_end(xu_inst *in) {
    xu_ring *ring = in->team->ring;
    /* a posted call may have left the ring before it ends */
    if (!ring || atomic_load_explicit(&ring->count, memory_order_relaxed) - in->noted > XU_RING)
        return;
    uint64_t now = in->team->trace ? in->record->ended : xu_coarse_ns();
    atomic_store_explicit(&ring->call[in->noted % XU_RING].ended, now, memory_order_relaxed);
}

static inline void xu_begin(xu_inst *in, uint64_t hash, uint64_t call) {
    xu_team *t = in->team;
    in->op = ++t->op;
    in->fp = t->fp = xu_mix(t->fp, hash);
    t->history[in->op % XU_SLOTS] = in->fp;
    if (in->slots) in->base[XU_SLOT] = in->slots + in->op % XU_SLOTS * XU_SLOT_BYTES;
    t->unsynced += !t->solo;
    in->unprobed = NULL;
    xp_begin(&in->others);
    in->slept = 0;
    in->kernel = in->prog->kernel;
    for (int lane = 0; lane < XU_LANES; lane++) {
        in->pc[lane] = in->prog->first[lane];
        in->sub[lane] = 0;
    }
    atomic_store_explicit(&t->status->op, in->op, memory_order_relaxed);
    atomic_store_explicit(&t->status->call, call, memory_order_relaxed);
    atomic_store_explicit(&t->status->team, t->number, memory_order_relaxed);
    if (t->trace) {
        in->wait_from = 0;
        in->record = xt_begin(t->trace, &in->row, in->op);
    }
    xu_note_begin(in, call);
    /* others may have to compare signals, or wait for messages while this thread is at a barrier */
    if (in->prog->barriers < 2 || t->several) {
        xu_slot *mine = t->slot + (in->op % XU_SLOTS) * (uint64_t)t->n + t->me;
        atomic_store_explicit(&mine->fp, in->fp, memory_order_relaxed);
        atomic_store_explicit(&mine->entered, in->op + 1, memory_order_release);
    }
}

static inline void xu_end(xu_inst *in) {
    atomic_store_explicit(&in->team->status->done, in->op, memory_order_relaxed);
    xt_log *log = in->team->trace;
    if (log) {
        if (in->wait_from) xu_wait_ends(in, xt_now(&log->clock));
        xt_end(log, in->record);
    }
    xu_note_end(in);
}

/* Record that a call ends by an exception. */
static inline void xu_record_failure(xu_inst *in) {
    xt_log *log = in->team->trace;
    if (!log || !in->record || in->record->op != in->op) return;
    if (in->wait_from) xu_wait_ends(in, xt_now(&log->clock));
    in->record->state |= XT_FAILED;
    xt_end(log, in->record);
}

static inline uint64_t xu_sync_bytes(uint64_t n) {
    return 2 * sizeof(xu_line) + (2 * sizeof(xu_arrival) + XU_SLOTS * sizeof(xu_slot) +
                                  2 * sizeof(xu_subtree) + sizeof(xu_line)) * n;
}

static inline void xu_attach(xu_team *t, char *area, int32_t n, int32_t me) {
    t->counter = (xu_line *)area;
    t->release = t->counter + 1;
    t->arrival = (xu_arrival *)(t->release + 1);
    t->slot = (xu_slot *)(t->arrival + 2 * (uint64_t)n);
    t->subtree = (xu_subtree *)(t->slot + XU_SLOTS * (uint64_t)n);
    t->relay = (xu_line *)(t->subtree + 2 * (uint64_t)n);
    t->n = n;
    t->me = me;
}

/* Have barriers go by levels, along a tree of which these are my relatives. */
static inline void xu_join_tree(xu_team *t, int32_t parent, const int32_t *children, int32_t n) {
    t->mode = XU_LEVELS;
    t->parent = parent;
    t->children = children;
    t->nchildren = n;
}

_Static_assert(sizeof(xu_line) == XU_LINE, "line");
_Static_assert(sizeof(xu_arrival) == XU_LINE, "arrival");
_Static_assert(sizeof(xu_slot) == 2 * XU_LINE, "slot");
_Static_assert(sizeof(xu_subtree) == XU_LINE, "subtree");
_Static_assert(sizeof(xu_status) == XU_LINE, "status");
_Static_assert(sizeof(xu_ring) == XU_LINE + 32 * XU_RING, "ring");

#endif
