/* query_signal.h: a signal that requests the positions of all threads.
 *
 * The handler only writes the time to a field of the control segment: a handler may do no more in any
 * state of the process. The failure detector's thread reads it there.
 */
#ifndef XUPC_ASKED_H
#define XUPC_ASKED_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if defined(CLOCK_UPTIME_RAW)
#define XQ_CLOCK CLOCK_UPTIME_RAW /* Python's monotonic clock on macOS */
#else
#define XQ_CLOCK CLOCK_MONOTONIC
#endif

static _Atomic uint64_t *_Atomic xq_word;

static void xq_handler(int number) {
    (void)number;
    struct timespec now;
    _Atomic uint64_t *word = atomic_load(&xq_word);
    if (!word || clock_gettime(XQ_CLOCK, &now)) return;
    atomic_store(word, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
}

/* Install the handler if the signal has its default action; return 1 if so. */
static int xq_listen(int number, uint64_t *word) {
    struct sigaction ours, theirs;
    if (sigaction(number, NULL, &theirs)) return 0;
    if ((theirs.sa_flags & SA_SIGINFO) || theirs.sa_handler != SIG_DFL) return 0;
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = xq_handler;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    atomic_store(&xq_word, (_Atomic uint64_t *)word);
    return !sigaction(number, &ours, NULL);
}

/* Remove the handler and the address: the memory of the word will be unmapped. */
static void xq_leave(int number) {
    struct sigaction now;
    if (sigaction(number, NULL, &now)) return;
    if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == xq_handler) signal(number, SIG_DFL);
    atomic_store(&xq_word, NULL);
}

#endif
