/* mpi_progress.h: MPI's progress for the program's own messages while a call waits.
 *
 * MPI moves a process's messages on only while that process is inside MPI. A program may have posted
 * sends, started collectives or exposed windows before it makes a call here; a thread that waits for
 * others in shared memory would keep their partners waiting, and these may be the ones it waits for.
 * So each wait that lasts enters MPI: at first soon, then at intervals that grow with the wait.
 *
 * Whether MPI had something to do cannot be asked. But a step of progress that moved something takes
 * longer than one that found nothing, so steps are timed: after a long one the thread stays awake and
 * looks again at once, as a thread inside MPI would, until MPI has had nothing to do for XP_AWAKE_NS.
 * That time doubles each time MPI had something to do again, up to XP_LONG_AWAKE_NS. On a busy machine
 * the system takes the core away in the middle of idle steps so often that they look like the traffic
 * of 20,000 sends, one burst in ten: so a wait that lasts is awake for one part in XP_SHARE of it and
 * XP_CREDIT_NS at most. What an idle step takes is measured when the job starts. With fewer cores
 * than threads it is the processor time that counts, since Open MPI yields inside a step then.
 *
 * What an idle look costs a sleeping thread: some 6 us, of which 3 are the wake-up and 3 the first
 * step in cold caches [2 cores, MPICH 5.0.2 and Open MPI 5.0.11].
 *
 * Knows no MPI: `enter` is mpi_messages.h's.
 */
#ifndef XUPC_MPI_PROGRESS_H
#define XUPC_MPI_PROGRESS_H

#include <stdint.h>
#include <time.h>

#include "call_trace.h"

#define XP_AWAKE_NS 200000u /* so long after MPI had something to do the thread does not sleep */
#define XP_LONG_AWAKE_NS 3200000u /* the most that this time becomes */
#define XP_CREDIT_NS 50000000u    /* so long a wait may be awake at once */
#define XP_SHARE 4          /* and for this part of its time beside that */
#define XP_COLD_NS 30000u   /* the first step after a sleep has moved something if it takes longer */
#define XP_COOL_NS 1500u    /* what the steps after that may take longer than in warm caches */
#define XP_WARM_STEPS 2     /* steps after the first one, by which the others are judged */
#define XP_BURST 16         /* steps in a row while the thread is awake: some 5 us */
#define XP_TRIED 65         /* steps of which the median is what an idle one takes */
#define XP_AT_ONCE 64       /* steps after a call, at most */
#define XP_TWICE 8          /* of so many calls one makes two steps */
/* From one call's end to the next one's: no call of MPI fits in between, but a step after the other
 * thread's. */
#define XP_BUSY_NS 600u

typedef struct { /* of the process */
    void (*enter)(void); /* one step of MPI's progress; NULL: there is none to make */
    clockid_t clock;     /* by which a step is timed */
    uint64_t step_ns;    /* a step in warm caches that takes longer has moved something */
    uint64_t soon_ns;    /* the first look, and the shortest interval */
    uint64_t most_ns;    /* the longest one */
    uint64_t part;       /* an interval is this part of the wait so far */
    uint64_t busy, idle; /* XP_BUSY_NS and an idle step, in counts of `xp_count` */
    uint64_t least;      /* no step is shorter */
    uint64_t times;      /* that the end of a call entered MPI */
    uint64_t left;       /* the count at the end of the last call */
} xp_policy;

typedef struct { /* of one wait; all in ns of the monotonic clock */
    const xp_policy *policy; /* NULL: no looks */
    uint64_t begin;
    uint64_t since;          /* the wait's beginning, or when MPI last had something to do */
    uint64_t next;           /* the next look */
    uint64_t awake_ns;       /* so long it stays awake now */
    uint64_t awake_from, awake_until;
    uint64_t awake_before;   /* so long it was awake, up to awake_from */
} xp_wait;

static inline uint64_t xp_clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t xp_now_ns(void) { return xp_clock_ns(CLOCK_MONOTONIC); }

/* A count that grows at a constant rate, the cheapest one of the machine. */
static inline uint64_t xp_count(void) {
    uint64_t count = xt_counter();
    return count ? count : xp_now_ns();
}

/* Whether a call in place of one of MPI's, which has just ended, is to enter MPI. Programs look, without
 * a wait, for what other threads have done in MPI before a call that brought them together, and MPI may
 * make its progress after the look only (Iprobe; MPICH's Win_test). Calls in close succession leave the
 * others no time for that. */
static inline int xp_call_ends(xp_policy *policy) {
    uint64_t now = xp_count(), passed = now - policy->left;
    policy->left = now; /* and after the steps, which the next call is not to count */
    return passed > policy->busy && policy->enter;
}

/* Enter MPI until it has nothing to do: one step takes one message. What an idle step takes follows
 * the machine, whose frequency may change. If it is taken for too long, a second step now and then
 * shows that. */
static inline void xp_catch_up(xp_policy *policy) {
    uint64_t took = 0, idle = policy->idle;
    int twice = ++policy->times % XP_TWICE == 0;
    for (int i = 0; i < XP_AT_ONCE; i++) {
        uint64_t begin = xp_count();
        policy->enter();
        took = xp_count() - begin;
        if (i >= twice && took <= idle + idle / 8) break;
    }
    policy->left = xp_count();
    if (took > idle)
        policy->idle += (took - idle + 63) / 64;
    else if (took > policy->least)
        policy->idle = took;
}

/* A call begins; it may wait several times, and come back to the interpreter in between. */
static inline void xp_begin(xp_wait *w) { w->policy = NULL, w->since = 0; }

/* It waits, or does so again. */
static inline void xp_go_on(xp_wait *w, const xp_policy *policy) {
    if (w->since || !policy || !policy->enter) return;
    w->policy = policy;
    w->since = xp_now_ns();
    w->next = w->since + policy->soon_ns;
    w->begin = w->since;
    w->awake_ns = XP_AWAKE_NS;
    w->awake_before = w->awake_until = 0;
}

/* For a thread that spins: enter MPI if it is time to. */
static inline void xp_spin(xp_wait *w) {
    if (!w->policy) return;
    uint64_t now = xp_now_ns();
    if (now < w->next) return;
    w->policy->enter();
    w->next = now + w->policy->soon_ns;
}

/* What a step takes, on the policy's clock. */
static inline uint64_t xp_timed(const xp_policy *policy) {
    uint64_t begin = xp_clock_ns(policy->clock);
    policy->enter();
    return xp_clock_ns(policy->clock) - begin;
}

/* Enter MPI after a sleep; whether it had something to do. */
static inline int xp_cold_step(const xp_policy *policy) {
    int found = xp_timed(policy) > XP_COLD_NS;
    uint64_t idle = policy->step_ns + XP_COOL_NS;
    for (int i = 0; i < XP_WARM_STEPS; i++) found |= xp_timed(policy) > idle;
    return found;
}

/* Enter MPI some times in a row while the thread is awake, since the other side needs the steps at
 * once; whether MPI had something to do. One long step may be the system's doing. */
static inline int xp_warm_steps(const xp_policy *policy) {
    int found = 0;
    for (int i = 0; i < XP_BURST; i++) found += xp_timed(policy) > policy->step_ns;
    return found > 1;
}

/* Return the median. */
static inline uint64_t xp_median(uint64_t *of, int n) {
    for (int i = 1; i < n; i++) {
        uint64_t t = of[i];
        int k = i;
        for (; k && of[k - 1] > t; k--) of[k] = of[k - 1];
        of[k] = t;
    }
    return of[n / 2];
}

/* Find out what an idle step takes, and how fast `xp_count` counts. */
static inline void xp_try(xp_policy *policy) {
    uint64_t took[XP_TRIED], counts[XP_TRIED], begin = xp_count(), ns = xp_now_ns();
    for (int i = 0; i < XP_TRIED; i++) took[i] = xp_timed(policy);
    for (int i = 0; i < XP_TRIED; i++) {
        uint64_t before = xp_count();
        policy->enter();
        counts[i] = xp_count() - before;
    }
    uint64_t all = xp_count() - begin;
    ns = xp_now_ns() - ns;
    policy->busy = ns ? XP_BUSY_NS * all / ns : 0;
    policy->step_ns = 2 * xp_median(took, XP_TRIED) + 200;
    policy->least = xp_median(counts, XP_TRIED) / 4;
    policy->idle = counts[0]; /* the shortest */
}

/* MPI had something to do: stay awake, unless the wait has been awake for too much of its time. */
static inline void xp_found(xp_wait *w, int cold) {
    w->since = xp_now_ns();
    if (cold)
        w->awake_from = w->since;
    else if (w->awake_ns < XP_LONG_AWAKE_NS)
        w->awake_ns *= 2;
    uint64_t awake = w->awake_before + (w->since - w->awake_from);
    if (awake < XP_CREDIT_NS + (w->since - w->begin) / XP_SHARE)
        w->awake_until = w->since + w->awake_ns;
}

/* For a thread that is about to sleep: enter MPI if it is time to, and return for how many ns the
 * thread may sleep then; 0: it should only yield. */
static inline uint64_t xp_rest(xp_wait *w, uint64_t now) {
    if (!w->policy) return UINT64_MAX;
    if (now < w->next) return w->next - now;
    int cold = !w->awake_until;
    if (cold ? xp_cold_step(w->policy) : xp_warm_steps(w->policy))
        xp_found(w, cold);
    else if (cold)
        w->awake_ns = XP_AWAKE_NS;
    if (now < w->awake_until) return 0;
    if (!cold) {
        w->awake_before += now - w->awake_from;
        w->awake_until = 0;
    }
    uint64_t rest = now > w->since ? (now - w->since) / w->policy->part : 0;
    if (rest < w->policy->soon_ns) rest = w->policy->soon_ns;
    if (rest > w->policy->most_ns) rest = w->policy->most_ns;
    w->next = now + rest;
    return rest;
}

#endif
