/* mpi_messages.h against an MPI made up for it: every thread of a job in one process, one after the
 * other. Messages are matched by sender, receiver and tag; each operation comes to its end after a
 * number of looks drawn from the seed.
 *
 *   messages NODES STEPS SEED (int | pointer)
 *
 * NODES node roots meet STEPS times, by few or by many rounds; now and then with another
 * fingerprint, another value, a remote write, or a message that Python has taken already. Between,
 * each sends the next one a row of pieces as mail. Prints what was seen, and exits with 1 if
 * anything is not as it should be.
 */
#include "mpi_messages.h"

#include <stdio.h>

#define MOST 16
#define ROOM 256
#define DELIVERED 1024 /* where a node root's memory has what it got in exchanges, 64 bytes a peer */
#define REQUESTS 4096
#define CHECK(what)                                                             \
    do {                                                                        \
        if (!(what)) {                                                          \
            printf("line %d: not so: %s\n", __LINE__, #what);                   \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* ---- the MPI ------------------------------------------------------------------- */
typedef struct {
    int used, sends, from, to, tag, done, looks, called_off;
    int64_t n;
    char *data;
} request;

static request all[REQUESTS]; /* 0 stands for none */
static int me, handle_is_int;
static int64_t bytes_sent;
static unsigned draws = 1;

static unsigned draw(unsigned below) {
    draws = draws * 1664525u + 1013904223u;
    return (draws >> 8) % below;
}

static void put(char *at, int index) {
    if (handle_is_int) memcpy(at, &index, sizeof index);
    else {
        void *p = index ? &all[index] : NULL;
        memcpy(at, &p, sizeof p);
    }
}

static int get(const char *at) {
    if (handle_is_int) {
        int index;
        memcpy(&index, at, sizeof index);
        return index;
    }
    void *p;
    memcpy(&p, at, sizeof p);
    return p ? (int)((request *)p - all) : 0;
}

static int begin(int sends, char *data, int n, int rank, int tag, char *out) {
    int i = 1;
    while (i < REQUESTS && all[i].used) i++;
    CHECK(i < REQUESTS);
    all[i] = (request){1, sends, sends ? me : rank, sends ? rank : me, tag, 0, (int)draw(4), 0, n,
                       data};
    put(out, i);
    if (sends) bytes_sent += n;
    for (int j = 1; j < REQUESTS; j++) { /* its other end */
        request *a = &all[i], *b = &all[j];
        if (!b->used || b->done || b->sends == a->sends || b->from != a->from || b->to != a->to ||
            b->tag != a->tag || a->done)
            continue;
        request *sender = a->sends ? a : b, *receiver = a->sends ? b : a;
        CHECK(sender->n <= receiver->n);
        memcpy(receiver->data, sender->data, (size_t)sender->n);
        a->done = b->done = 1;
    }
    return 0;
}

#define BYTE 77
#define COMM 99
static int isend_i(void *d, int n, int type, int to, int tag, int comm, void *out) {
    CHECK(type == BYTE && comm == COMM);
    return begin(1, d, n, to, tag, out);
}
static int irecv_i(void *d, int n, int type, int of, int tag, int comm, void *out) {
    CHECK(type == BYTE && comm == COMM);
    return begin(0, d, n, of, tag, out);
}
static int isend_p(void *d, int n, void *type, int to, int tag, void *comm, void *out) {
    CHECK((uintptr_t)type == BYTE && (uintptr_t)comm == COMM);
    return begin(1, d, n, to, tag, out);
}
static int irecv_p(void *d, int n, void *type, int of, int tag, void *comm, void *out) {
    CHECK((uintptr_t)type == BYTE && (uintptr_t)comm == COMM);
    return begin(0, d, n, of, tag, out);
}

static size_t width(void) { return handle_is_int ? sizeof(int) : sizeof(void *); }

static int over(char *at) { /* and the request is given back */
    int i = get(at);
    if (!i) return 1;
    CHECK(all[i].used);
    if (!(all[i].done || all[i].called_off) || all[i].looks-- > 0) return 0;
    all[i].used = 0;
    put(at, 0);
    return 1;
}

static int failure; /* what every test returns */

static int testall(int count, void *requests, int *flag, void *statuses) {
    (void)statuses;
    if (failure) return failure;
    *flag = 0;
    for (int k = 0; k < count; k++) {
        int i = get((char *)requests + (size_t)k * width());
        if (i && (!(all[i].done || all[i].called_off) || all[i].looks-- > 0)) return 0;
    }
    for (int k = 0; k < count; k++) {
        char *at = (char *)requests + (size_t)k * width();
        if (get(at)) all[get(at)].used = 0;
        put(at, 0);
    }
    *flag = 1;
    return 0;
}

static int testsome(int count, void *requests, int *found, int *indices, void *statuses) {
    *found = 0;
    for (int k = 0; k < count; k++) {
        char *at = (char *)requests + (size_t)k * width();
        CHECK(get(at)); /* nothing that is over is asked for again */
        if (!over(at)) continue;
        memset((char *)statuses + (size_t)*found * XM_STATUS, 0, XM_STATUS);
        indices[(*found)++] = k;
    }
    return 0;
}

static int cancel(void *at) {
    all[get(at)].called_off = !all[get(at)].done;
    return 0;
}

/* ---- a job ---------------------------------------------------------------------- */
typedef struct {
    xm_wire wire;
    xm_call call;
    xu_inst in;
    xu_team team;
    xu_program prog;
    xu_step rows[1];
    int32_t numbers[3 * MOST + 8];
    char memory[4096];
    uint8_t tickets[4];
    xm_piece pieces[2 * MOST], got[2 * MOST];
    xm_message_of messages[16];
    xm_plan plan;
} node_root;

static node_root job[MOST];

static void make(node_root *r, int rank, int n, int flat) {
    xm_wire *w = &r->wire;
    memset(r, 0, sizeof *r);
    w->mpi = (xm_mpi){(uintptr_t)(handle_is_int ? (void *)isend_i : (void *)isend_p),
                      (uintptr_t)(handle_is_int ? (void *)irecv_i : (void *)irecv_p),
                      (uintptr_t)testall, (uintptr_t)testsome, (uintptr_t)cancel, BYTE,
                      (int64_t)width(), COMM};
    w->tag_bits = 12, w->low_bits = 15, w->turns = 2048, w->kinds = 8, w->barrier = 6, w->again = 7;
    xm_exchange *x = &w->x;
    int32_t rounds = 0, slots = 0;
    int32_t *end = r->numbers, *to = end + MOST, *of = to + MOST;
    if (flat) {
        for (int k = 1; k < n; k++, slots++) to[slots] = of[slots] = (rank + k) % n;
        end[rounds++] = slots;
    } else {
        for (int step = 1; step < n; step *= 2) {
            to[slots] = (rank + step) % n, of[slots++] = (rank - step + n) % n;
            end[rounds++] = slots;
        }
    }
    x->mpi = &w->mpi, x->rounds = rounds, x->slots = slots, x->room = ROOM;
    x->end = end, x->to = to, x->of = of;
    CHECK(xm_make(x));
    r->call.in = &r->in, r->call.wire = w;
    r->in.team = &r->team, r->in.prog = &r->prog, r->in.base[0] = r->memory;
    r->in.tickets = r->tickets;
    r->rows[0] = (xu_step){.kind = XS_EXCHANGE};
    r->prog.steps = r->rows, r->prog.end[0] = 1;
    r->call.plan = &r->plan, r->plan.messages = r->messages;
    r->call.mail.left = calloc(4, sizeof(int32_t));
    if (flat) { /* what each other one gets is of its own length */
        for (int i = 0; i < slots; i++) {
            r->pieces[2 * i] = (xm_piece){i, 0, 64 * to[i], 8 + to[i]};
            r->pieces[2 * i + 1] = (xm_piece){i, 0, 64 * to[i] + 32, 3};
            r->got[2 * i] = (xm_piece){i, 0, DELIVERED + 64 * of[i], 8 + rank};
            r->got[2 * i + 1] = (xm_piece){i, 0, DELIVERED + 64 * of[i] + 32, 3};
        }
        r->plan.sends = r->pieces, r->rows[0].exchange.sends = 2 * slots;
        r->plan.recvs = r->got, r->rows[0].exchange.recvs = 2 * slots;
    }
}

/* One meeting of all, in an order of looks by chance; whether they were found to differ. */
static int meet(int n, const uint64_t *fps, const uint64_t *values, uint64_t wrote) {
    int left = n, differs = 0;
    int over_for[MOST] = {0};
    int64_t head_and_data = 0, before = bytes_sent; /* in one pass of the exchange */
    for (int k = 0; k < n; k++) {
        node_root *r = &job[k];
        r->team.epoch++, r->in.op++;
        r->team.node_min = r->team.node_max = fps[k];
        r->team.node_value = values[k], r->team.node_conflict = 0;
        r->team.node_wrote = wrote >> k & 1;
        r->in.pc[0] = 0;
        head_and_data += r->wire.x.slots * (int64_t)sizeof(xm_head);
        for (int i = 0; r->rows[0].exchange.led && i < r->rows[0].exchange.sends; i++)
            head_and_data += r->pieces[i].n;
    }
    for (int guard = 0; left && guard < 100000; guard++) {
        me = (int)draw((unsigned)n);
        if (over_for[me]) continue;
        xm_call *c = &job[me].call;
        int state = xm_meet(c, &job[me].rows[0].exchange);
        CHECK(state != XM_FAILED);
        if (state != XM_OVER || c->in->pc[0] < 1) continue;
        over_for[me] = 1, left--;
        differs += c->in->team->verdict != 0;
    }
    CHECK(!left);
    CHECK(differs == 0 || differs == n);
    CHECK((bytes_sent - before) % head_and_data == 0 && bytes_sent - before <= 2 * head_and_data);
    for (int k = 0; k < n; k++) {
        CHECK(!xm_busy(&job[k].call));
        CHECK((job[k].team.verified == job[k].in.op) == !differs);
    }
    return differs != 0;
}

/* A node root has the data of an exchange from all others. */
static void delivered(int k, int n) {
    for (int from = 0; from < n; from++) {
        if (from == k) continue;
        const char *got = job[k].memory + DELIVERED + 64 * from, *its = job[from].memory + 64 * k;
        CHECK(!memcmp(got, its, (size_t)(8 + k)));
        CHECK(!memcmp(got + 32, its + 32, 3));
    }
}

/* What an MPI that looks before it makes progress has brought is seen at once. */
static void looks_twice(const xm_mpi *mpi) {
    char requests[2 * sizeof(void *)], statuses[2 * XM_STATUS], ours = 7, theirs = 0;
    int32_t indices[2];
    for (int some = 0; some < 2; some++) {
        int done = 0;
        me = 0;
        begin(1, &ours, 1, 1, 5, requests);
        me = 1;
        begin(0, &theirs, 1, 0, 5, requests + width());
        all[get(requests)].looks = 1, all[get(requests + width())].looks = 0;
        if (some) {
            CHECK(!xm_test_some(mpi, 1, requests, &done, indices, statuses) && done == 1);
            CHECK(!xm_test_some(mpi, 1, requests + width(), &done, indices, statuses) && done == 1);
        } else {
            CHECK(!xm_test_all(mpi, 2, requests, &done, statuses) && done);
        }
    }
    CHECK(theirs == 7);
}

/* A thread yields between messages if it only sends, has sent a part of it, and has more. */
static void leaves_when_ahead(void) {
    node_root *r = calloc(1, sizeof *r);
    int32_t sends[2] = {1, 0};
    int lane = XU_LANES - 1;
    r->call.in = &r->in, r->in.prog = &r->prog, r->call.mail.sends = sends;
    r->prog.first[lane] = 10, r->prog.end[lane] = 10 + 4 * XM_AHEAD;
    for (int32_t sent = 0; sent <= 4 * XM_AHEAD; sent++) {
        r->in.pc[lane] = 10 + sent;
        for (r->call.mail.open = 0; r->call.mail.open <= 2; r->call.mail.open++)
            CHECK(xm_ahead(&r->call) ==
                  (sent >= 4 && sent < 4 * XM_AHEAD && r->call.mail.open < 2));
    }
    free(r);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    int n = atoi(argv[1]), steps = atoi(argv[2]), flat = n <= 8;
    draws = (unsigned)atoi(argv[3]) * 2654435761u + 12345u;
    handle_is_int = !strcmp(argv[4], "int");
    CHECK(n >= 2 && n <= MOST);
    int differed = 0, repeated = 0, taken = 0, mails = 0, called_off = 0;
    for (int k = 0; k < n; k++) make(&job[k], k, n, flat);
    for (int step = 0; step < steps; step++) {
        uint64_t fps[MOST], values[MOST] = {0}, wrote = 0;
        int odd = draw(6) == 0, conflict = draw(6) == 0, led = flat && draw(2);
        for (int k = 0; k < n; k++) fps[k] = 1000 + (uint64_t)step;
        if (odd) fps[draw((unsigned)n)]++;
        if (conflict) { /* two values on two threads */
            unsigned a = draw((unsigned)n);
            values[a] = 5, values[(a + 1 + draw((unsigned)n - 1)) % (unsigned)n] = 6;
        } else if (draw(3) == 0) {
            values[draw((unsigned)n)] = 5;
        }
        if (led && draw(3) == 0) wrote = 1 + draw((1u << n) - 1);
        for (int k = 0; k < n; k++) {
            job[k].rows[0].exchange.led = led;
            for (int i = 0; i < (int)sizeof job[k].memory; i++)
                job[k].memory[i] = (char)(k * 31 + i + step);
        }
        if (!led && draw(4) == 0) { /* a peer's message came before */
            me = 0;
            xm_exchange *x = &job[0].wire.x;
            xm_head its = {fps[x->of[0]], fps[x->of[0]], values[x->of[0]], 0};
            char *request_of_its = calloc(1, sizeof(void *));
            char room[ROOM];
            /* the sender's own request meets this one */
            begin(0, room, ROOM, x->of[0], xm_tag(&job[0].wire, job[0].team.epoch + 1, 6),
                  request_of_its);
            memcpy(x->in, &its, sizeof its);
            x->taken[0] = 1, taken++;
            int i = get(request_of_its);
            CHECK(meet(n, fps, values, wrote) == (odd || conflict));
            CHECK(all[i].done);
            all[i].used = 0;
            free(request_of_its);
        } else {
            CHECK(meet(n, fps, values, wrote) == (odd || conflict));
        }
        differed += odd || conflict;
        if (led && wrote && !odd && !conflict) repeated++;
        if (led && !odd && !conflict) /* each has what the others had for it, by now */
            for (int k = 0; k < n; k++) delivered(k, n);
        /* mail to the next one: three pieces there, one of nothing; and perhaps one that never comes */
        int late = draw(4) == 0;
        for (me = 0; me < n; me++) {
            xm_call *c = &job[me].call;
            xm_begin(c);
            c->in->fp = 4095 & (unsigned)step;
            job[me].messages[0] = (xm_message_of){(me + 1) % n, 0, 0, 10, BYTE};
            job[me].messages[1] = (xm_message_of){(me + 1) % n, -1, 0, 0, BYTE};
            job[me].messages[2] = (xm_message_of){(me + n - 1) % n, 0, 2000, 10, BYTE};
            job[me].messages[3] = (xm_message_of){(me + n - 1) % n, -1, 0, 1, BYTE};
            job[me].messages[4] = (xm_message_of){(me + n - 1) % n, 0, 3000, 10, BYTE};
            memset(c->in->tickets, 0, 4);
            xu_messages_row send = {XS_SEND, 0, .first = 0, .count = 2, .ticket = 0, .tag = 1};
            xu_messages_row receive = {XS_RECV, 0, .first = 2, .count = 2, .ticket = 1, .tag = 1};
            xu_messages_row never = {XS_RECV, 0, .first = 4, .count = 1, .ticket = 2, .tag = 2};
            CHECK(xm_send_off(c, &send) == XM_OVER);
            CHECK(xm_send_off(c, &receive) == XM_OVER);
            if (late) CHECK(xm_send_off(c, &never) == XM_OVER);
            CHECK(!c->in->tickets[0] && !c->in->tickets[1]);
        }
        for (int guard = 0, left = n; left && guard < 100000; guard++) {
            me = (int)draw((unsigned)n);
            xm_call *c = &job[me].call;
            int open = c->mail.open;
            int state = xm_look(c);
            CHECK(state == (c->mail.open < open ? XM_OVER : XM_OPEN));
            left = 0;
            for (int k = 0; k < n; k++) left += !job[k].in.tickets[0] || !job[k].in.tickets[1];
            CHECK(guard < 99999);
        }
        for (int k = 0; k < n; k++) {
            xm_call *c = &job[k].call;
            CHECK(c->mail.open == late);
            CHECK(!memcmp(job[k].memory + 2000, job[(k + n - 1) % n].memory, 10));
            mails += 4;
            if (!late) continue;
            CHECK(c->mail.ranks[0] == (k + n - 1) % n);
            xm_call_off(c);
            while (c->mail.open) CHECK(xm_look(c) != XM_FAILED);
            CHECK(!c->in->tickets[2]);
            called_off++;
        }
    }
    for (int i = 1; i < REQUESTS; i++) CHECK(!all[i].used);
    looks_twice(&job[0].wire.mpi);
    leaves_when_ahead();
    /* an error that MPI returns while xm_missing looks for missing peers is kept */
    xm_exchange *x = &job[0].wire.x;
    me = 0, failure = 13;
    CHECK(xm_start(x, 1, (xm_head){0, 0, 0, 0}) == XM_OPEN);
    xm_missing(x, 0);
    failure = 0;
    CHECK(xm_test(x) == XM_FAILED && x->error == 13);
    x->round = -1;
    for (int k = 0; k < n; k++) {
        xm_free(&job[k].wire.x);
        xm_end_mail(&job[k].call.mail);
    }
    printf("%d exchanges, %d differed, %d repeated, %d taken before, %d messages, %d called off\n",
           steps, differed, repeated, taken, mails, called_off);
    return 0;
}
