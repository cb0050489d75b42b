/* protocol.c: the core's protocol with plain threads, for ThreadSanitizer and its like.
 *
 *   protocol THREADS CALLS SEED flat|counter|levels spin|yield|sleep
 *
 * The threads of one process share one sync area, as the processes of a node do, and make the
 * same random calls: signals with chunks, rings, scratch lines, barriers, fused calls, led ones,
 * folds, scans, swaps, and now and then calls that differ. Before each call a thread writes its
 * data, after it it looks at every byte. Random delays come between calls and in the middle. By
 * levels 8 threads are 2 x 2 x 2, and in some calls a program goes on meanwhile.
 *
 * Compiled with a long XU_SLICE_NS a lost wake-up lasts for seconds, and is an error.
 */
#include "shm_protocol.h" /* first: it enables what is not in C11 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 8, ROOM = 4096, STEPS = 64, RUN_AHEAD = XU_SLOTS / 2 };
#ifndef STALL_S
#define STALL_S 10 /* seconds without progress that are a lost wake-up */
#endif
static const uint64_t SECOND = 1000000000;
enum { RING, CHUNKS, SCRATCH, NOTHING, BARRIERS, FUSED, LED, FOLDED, SCANNED, SWAPPED, DIFFER,
       KINDS };
static const char *const KIND[KINDS] = {
    "ring", "chunks", "scratch", "nothing", "barriers", "fused", "led", "folded", "scanned",
    "swapped", "differ"};

typedef struct { /* one call, the same for all threads */
    uint64_t number, salt;
    int kind, root, way, odd;
    int64_t n; /* bytes of a block, a multiple of 8 */
} call;

typedef struct {
    xu_team team;
    xu_inst inst;
    xu_program prog;
    xu_step steps[STEPS];
    int count, me;
    uint64_t random;
    uint64_t ops, done[KINDS];
} worker;

static int threads, mode, spins, yields;
static uint64_t calls, seed;
static char *dst, *src, *lines; /* what all threads reach */
static xu_status statuses[MOST];
static _Atomic uint64_t left_words[MOST];
static uint64_t ops_of[MOST];
static pthread_barrier_t meeting;
static worker workers[MOST];
static int32_t children[MOST][MOST];

static uint64_t next(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fail(const worker *w, const call *c, const char *what) {
    fprintf(stderr, "thread %d, call %llu (%s, root %d, %lld bytes): %s\n", w->me,
            (unsigned long long)c->number, KIND[c->kind], c->root, (long long)c->n, what);
    _exit(3);
}

static void dawdle(worker *w) {
    uint64_t r = next(&w->random);
    switch (r % 16) {
    case 0: usleep((unsigned)(r >> 32) % 200); break;
    case 1: case 2: sched_yield(); break;
    case 3: case 4: case 5:
        for (volatile uint64_t i = (r >> 32) % 2000; i; i--) ;
        break;
    default: break;
    }
}

/* ---- steps ------------------------------------------------------------------ */
static xu_step *add(worker *w, int kind) {
    if (next(&w->random) % 8 == 0 && kind != XS_FOLD_OPERAND && kind != XS_FUSE_END) {
        w->steps[w->count++] = (xu_step){.kind = XS_PYTHON}; /* where Python would be called */
    }
    w->steps[w->count] = (xu_step){.kind = kind};
    return &w->steps[w->count++];
}

static void copy(worker *w, int to, int to_t, int of, int of_t, int64_t off, int64_t n) {
    xu_copy_row *s = &add(w, XS_COPY)->copy;
    s->dst.operand = to, s->dst.thread = to_t, s->dst.offset = to == XU_SLOT ? 0 : off;
    s->src.operand = of, s->src.thread = of_t, s->src.offset = of == XU_SLOT ? 0 : off;
    s->count = 1, s->nbytes = n;
}

static void signal_(worker *w, int channel, int value) {
    xu_signal_row *s = &add(w, XS_SIGNAL)->signal;
    s->channel = channel, s->value = value;
}

static void wait_(worker *w, int channel, int value, int first, int count) {
    xu_wait_row *s = &add(w, XS_WAIT)->wait;
    s->channel = channel, s->value = value, s->first = first, s->count = count;
}

static void to_all(worker *w, const call *c) { /* the root's block to all, one row */
    xu_copy_row *s = &add(w, XS_COPY)->copy;
    s->src.operand = 1, s->src.thread = c->root, s->dst.thread_step = 1, s->count = threads;
    s->nbytes = c->n;
}

static int plan(worker *w, const call *c) { /* this thread's steps; how many full barriers */
    int me = w->me, behind = (me + 1) % threads, before = (me + threads - 1) % threads;
    xu_step *s;
    w->count = 0;
    switch (c->kind) {
    case RING:
        signal_(w, 0, 1);
        wait_(w, 0, 1, behind, 1);
        copy(w, 0, me, 1, behind, 0, c->n);
        signal_(w, 1, 1);
        wait_(w, 1, 1, before, 1);
        return 0;
    case CHUNKS:
        for (int k = 0; k < 4; k++) {
            int64_t part = c->n / 32 * 8, off = part * k;
            if (k == 3) part = c->n - off;
            if (me == c->root) {
                copy(w, 0, me, 1, me, off, part);
                signal_(w, 0, k + 1);
            } else {
                wait_(w, 0, k + 1, c->root, 1);
                copy(w, 0, me, 1, c->root, off, part);
            }
        }
        signal_(w, 2, 1);
        if (me == c->root) wait_(w, 2, 1, 0, threads);
        return 0;
    case SCRATCH: /* as a value: no check whether the line is still in use */
        copy(w, XU_SLOT, me, 1, me, 0, 8);
        signal_(w, 3, 1);
        wait_(w, 3, 1, 0, threads);
        for (int j = 0; j < threads; j++) {
            copy(w, 0, me, XU_SLOT, j, 0, 8);
            w->steps[w->count - 1].copy.dst.offset = 8 * j;
        }
        return 0;
    case NOTHING: /* operand 3 is the whole memory: its offsets are addresses */
        copy(w, 0, me, 1, me, 0, c->n);
        s = &w->steps[w->count - 1];
        if (c->way % 2) s->copy.src = (xu_blocks){(intptr_t)(src + ROOM * me), 3, 0, 0, 0};
        return 0;
    case BARRIERS:
        add(w, XS_BARRIER);
        for (int j = 0; j < threads && c->way % 2 == 0; j++)
            if (j != me) copy(w, 0, me, 1, j, 0, c->n);
        copy(w, 0, me, 1, behind, 0, c->n);
        add(w, XS_BARRIER);
        return 2;
    case FUSED:
        s = add(w, XS_FUSE);
        s->fuse.executor = c->way % 2 ? c->root : -1;
        int at = w->count;
        to_all(w, c);
        if (w->steps[at].kind == XS_PYTHON) { /* no Python in a fused body */
            w->steps[at] = w->steps[at + 1];
            w->count--;
        }
        w->steps[at - 1].fuse.body = 1;
        add(w, XS_FUSE_END);
        w->steps[w->count++] = (xu_step){.kind = XS_AWAIT};
        return 1;
    case LED: /* thread 0 is the node root */
        w->steps[w->count++] = (xu_step){.kind = XS_ARRIVE};
        if (me) {
            add(w, XS_AWAIT)->release.led = 1;
            return 1;
        }
        add(w, XS_GATHER);
        w->steps[w->count++] = (xu_step){.kind = XS_EXCHANGE}; /* the nodes' verdict */
        to_all(w, c);
        add(w, XS_CHECK);
        add(w, XS_RELEASE)->release.led = 1;
        return 1;
    case FOLDED:
        add(w, XS_BARRIER);
        s = add(w, XS_FOLD);
        s->fold.operands = threads, s->fold.copies = s->fold.rows = 1, s->fold.nelems = c->n / 8;
        s->fold.dst.thread = me;
        for (int j = 0; j < threads; j++) {
            s = add(w, XS_FOLD_OPERAND);
            s->fold_operand.src = (xu_block){0, 1, j};
            s->fold_operand.times = 1, s->fold_operand.joins = j > 0;
        }
        add(w, XS_BARRIER);
        return 2;
    case SCANNED:
        add(w, XS_BARRIER);
        s = add(w, XS_SCAN);
        s->scan.rows = 1, s->scan.nelems = c->n / 8;
        s->scan.dst.thread = me, s->scan.src = (xu_block){0, 1, behind};
        add(w, XS_BARRIER);
        return 2;
    case SWAPPED: /* pairs of neighbours; an odd one out keeps its own */
        add(w, XS_BARRIER);
        if (me % 2 == 0 && me + 1 < threads) {
            s = add(w, XS_SWAP);
            s->swap.a = (xu_blocks){0, 1, me, 0, 0}, s->swap.b = (xu_blocks){0, 1, me + 1, 0, 0};
            s->swap.count = 1, s->swap.nbytes = c->n;
        }
        add(w, XS_BARRIER);
        return 2;
    default:
        add(w, XS_BARRIER);
        return 1;
    }
}

/* ---- running ---------------------------------------------------------------- */
static int run(worker *w, const call *c, int barriers, uint64_t hash) {
    xu_inst *in = &w->inst;
    uint64_t began = xu_now_ns();
    w->prog.end[0] = w->count;
    w->prog.barriers = barriers;
    xu_begin(in, hash, 1);
    w->ops++;
    dawdle(w);
    w->team.posted = next(&w->random) % 16 == 0;
    int r = xu_run(in, 0);
    if (w->team.posted) dawdle(w);
    w->team.posted = 0;
    while (r == XU_PENDING || r == XU_CALL_PYTHON) {
        if (r == XU_PENDING) {
            /* whose call differs is not woken: a waiter looks up now and then */
            r = xu_run(in, c->kind == DIFFER ? 1000000 : 2 * STALL_S * SECOND);
        } else if (w->steps[in->pc[0]].kind != XS_PYTHON && w->steps[in->pc[0]].kind != XS_EXCHANGE) {
            fail(w, c, "unknown step");
        } else {
            dawdle(w);
            xu_team *t = &w->team; /* of one node: its own is that of all */
            if (w->steps[in->pc[0]].kind == XS_EXCHANGE)
                t->verdict = t->node_min != t->node_max || t->node_conflict;
            in->pc[0]++;
            r = xu_run(in, 0);
        }
        if (xu_now_ns() - began > STALL_S * SECOND) fail(w, c, "a lost wake-up");
    }
    if (r == XU_DONE) xu_end(in);
    return r;
}

static int at_barrier(const worker *w) {
    const xu_inst *in = &w->inst;
    if (in->pc[0] >= w->count) return 0;
    int kind = w->steps[in->pc[0]].kind;
    return kind == XS_BARRIER || kind == XS_FUSE
               ? in->sub[0] > 0
               : kind == XS_GATHER || kind == XS_RELEASE || kind == XS_AWAIT || kind == XS_CHECK;
}

/* All have found a difference or will: come to a barrier, agree, go on. */
static void resync(worker *w, const call *c) {
    xu_team *t = &w->team;
    t->giving_up = 1;
    if (!at_barrier(w)) {
        w->count = 0;
        w->steps[w->count++] = (xu_step){.kind = XS_BARRIER};
        if (run(w, c, 1, 0xdead0000u + (uint64_t)w->me) != XU_MISMATCH)
            fail(w, c, "a barrier of a thread that gave up is good");
    }
    ops_of[w->me] = t->op;
    pthread_barrier_wait(&meeting);
    uint64_t most = 0;
    for (int j = 0; j < threads; j++)
        if (ops_of[j] > most) most = ops_of[j];
    if (t->epoch != workers[0].team.epoch) fail(w, c, "epochs differ after a mismatch");
    pthread_barrier_wait(&meeting);
    t->op = most;
    t->fp = xu_mix(0, most);
    t->giving_up = 0;
    t->unsynced = t->value = t->poison = 0;
    pthread_barrier_wait(&meeting);
}

static void differ(worker *w, const call *c) {
    call mine = *c;
    mine.kind = BARRIERS;
    if (c->way & 1) mine.kind = w->me == c->odd ? BARRIERS : RING;
    if (c->way & 2 && w->me == c->odd) mine.kind = (c->way & 4) ? LED : FUSED;
    if (mine.kind == LED) mine.kind = CHUNKS;
    int barriers = plan(w, &mine);
    int r = run(w, c, barriers, c->salt + (w->me == c->odd));
    if (r == XU_DONE) { /* it had nothing to wait for: the next barrier finds it */
        w->count = 0;
        w->steps[w->count++] = (xu_step){.kind = XS_BARRIER};
        r = run(w, c, 1, 7);
    }
    if (r != XU_MISMATCH) fail(w, c, "a difference is not noticed");
    resync(w, c);
}

/* ---- data ------------------------------------------------------------------- */
static uint64_t word_of(const call *c, int thread, int64_t i) {
    return (c->salt ^ (uint64_t)thread << 56) + (uint64_t)i * 0x100000001b3u;
}

static uint64_t wanted(const call *c, int me, int64_t i) {
    int behind = (me + 1) % threads;
    uint64_t sum = 0;
    switch (c->kind) {
    case RING: case BARRIERS: return word_of(c, behind, i);
    case CHUNKS: case FUSED: return word_of(c, c->root, i);
    case LED: return word_of(c, c->root, i);
    case SCRATCH: return word_of(c, (int)i, 0);
    case NOTHING: return word_of(c, me, i);
    case FOLDED:
        for (int j = 0; j < threads; j++) sum += word_of(c, j, i);
        return sum;
    case SCANNED:
        for (int64_t k = 0; k <= i; k++) sum += word_of(c, behind, k);
        return sum;
    default: return word_of(c, (me ^ 1) < threads ? me ^ 1 : me, i);
    }
}

static void fill(const worker *w, const call *c) {
    uint64_t *x = (uint64_t *)(src + (int64_t)ROOM * w->me);
    for (int64_t i = 0; i < c->n / 8; i++) x[i] = word_of(c, w->me, i);
}

static void check(const worker *w, const call *c) {
    const uint64_t *x = (const uint64_t *)((c->kind == SWAPPED ? src : dst) + (int64_t)ROOM * w->me);
    int64_t n = c->kind == SCRATCH ? threads : c->n / 8;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != wanted(c, w->me, i)) fail(w, c, "wrong bytes");
}

static void *work(void *arg) {
    worker *w = arg;
    uint64_t shared = seed; /* the same sequence in all threads */
    for (uint64_t i = 0; i < calls; i++) {
        call c = {.number = i, .salt = next(&shared)};
        uint64_t r = next(&shared);
        c.kind = (int)(r % 100 == 0 ? DIFFER : (r >> 8) % DIFFER);
        c.root = (int)((r >> 16) % (uint64_t)threads), c.odd = (int)((r >> 24) % (uint64_t)threads);
        c.way = (int)((r >> 32) % 8);
        c.n = 8 * (int64_t)(1 + (r >> 40) % ((r >> 60) ? 16 : ROOM / 8));
        if (c.n < 32 && c.kind == CHUNKS) c.n = 32;
        if (w->team.unsynced >= RUN_AHEAD) {
            w->count = 0;
            w->steps[w->count++] = (xu_step){.kind = XS_BARRIER};
            if (run(w, &c, 1, 99) != XU_DONE) fail(w, &c, "a false alarm");
        }
        dawdle(w);
        if (c.kind == DIFFER) {
            differ(w, &c);
        } else {
            fill(w, &c);
            int barriers = plan(w, &c);
            if (run(w, &c, barriers, c.salt) != XU_DONE) fail(w, &c, "a false alarm");
            check(w, &c);
        }
        w->done[c.kind]++;
    }
    return NULL;
}

static int parent_of(int thread) { return thread ? thread & (thread - 1) : -1; }

static void join_tree(xu_team *t) {
    int32_t n = 0;
    for (int j = t->me + 1; j < threads; j++) {
        int inner = 0;
        for (int i = j + 1; i < threads; i++) inner |= parent_of(i) == j;
        if (parent_of(j) == t->me) children[t->me][n++] = inner ? ~j : j;
    }
    xu_join_tree(t, parent_of(t->me), children[t->me], n);
}

static void attach(worker *w, int me, char *area) {
    xu_team *t = &w->team;
    xu_attach(t, area, threads, me);
    t->status = &statuses[me];
    t->left = (xu_word *)&left_words[me];
    t->mode = mode, t->spins = spins, t->yields = yields;
    if (mode == XU_LEVELS) join_tree(t);
    t->nt_min = 2048, t->number = 1;
    w->me = me;
    w->random = seed * 31 + (uint64_t)me;
    w->prog.steps = w->steps;
    w->prog.written = 2048; /* long copies go past the cache */
    w->prog.kernel = xk_find(XK_U64, XK_ADD);
    xu_inst *in = &w->inst;
    in->team = t, in->prog = &w->prog;
    in->base[0] = dst, in->base[1] = src, in->slots = lines;
    in->stride[0] = in->stride[1] = ROOM, in->stride[XU_SLOT] = XU_SLOTS * XU_SLOT_BYTES;
}

static uint64_t wakes(void) {
    const xu_team *t = &workers[0].team;
    uint64_t n = t->counter->sleepers.wakes + t->release->sleepers.wakes;
    for (int i = 0; i < 2 * threads; i++) n += t->arrival[i].sleepers.wakes;
    for (int i = 0; i < XU_SLOTS * threads; i++) n += t->slot[i].sleepers.wakes;
    return n;
}

static char *zeroed(size_t bytes) {
    char *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) exit(4);
    return memset(p, 0, bytes);
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    threads = atoi(argv[1]);
    if (threads < 1 || threads > MOST) return 2;
    calls = strtoull(argv[2], NULL, 10), seed = strtoull(argv[3], NULL, 10);
    mode = argv[4][0] == 'c' ? XU_COUNTER : argv[4][0] == 'l' ? XU_LEVELS : XU_FLAT;
    spins = argv[5][0] == 's' && argv[5][1] == 'p' ? 4000 : 0;
    yields = argv[5][0] == 'y' ? 2 * threads + 2 : 0;
    char *area = zeroed(xu_sync_bytes((uint64_t)threads));
    dst = zeroed((size_t)ROOM * MOST), src = zeroed((size_t)ROOM * MOST);
    lines = zeroed((size_t)MOST * XU_SLOTS * XU_SLOT_BYTES);
    pthread_barrier_init(&meeting, NULL, (unsigned)threads);
    pthread_t handles[MOST];
    for (int i = 0; i < threads; i++) attach(&workers[i], i, area);
    for (int i = 0; i < threads; i++) pthread_create(&handles[i], NULL, work, &workers[i]);
    for (int i = 0; i < threads; i++) pthread_join(handles[i], NULL);
    uint64_t ops = 0;
    for (int i = 0; i < threads; i++) ops += workers[i].ops;
    printf("%llu operations, %llu barriers, %llu wake-ups, %llu differences\n",
           (unsigned long long)ops, (unsigned long long)workers[0].team.epoch,
           (unsigned long long)wakes(), (unsigned long long)workers[0].done[DIFFER]);
    free(area), free(dst), free(src), free(lines);
    return 0;
}
