/* exit_timer.h: end this process with a message after a time, unless that is called off.
 *
 * For waits in code that holds the interpreter, such as MPI's start, where no Python thread can check
 * the time. There is one message at a time; a later one replaces the earlier one.
 */
#ifndef XUPC_LAST_RESORT_H
#define XUPC_LAST_RESORT_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define XL_LOOK_NS 20000000 /* between two checks of the time */
#define XL_GAP 1.0 /* seconds between two checks: beyond that this process was stopped */
#define XL_OTHERS_NS 300000000 /* for other threads of the job to print their messages, too */

typedef struct {
    uint64_t number;
    double seconds;
    size_t length;
    char text[];
} xl_end;

static _Atomic uint64_t xl_number; /* of the message that counts */

static double xl_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *xl_watch(void *argument) {
    xl_end *end = argument;
    double seen = xl_now(), until = seen + end->seconds;
    struct timespec look = {0, XL_LOOK_NS};
    while (seen < until && atomic_load(&xl_number) == end->number) {
        nanosleep(&look, NULL);
        double now = xl_now();
        if (now - seen > XL_GAP) until += now - seen - XL_GAP;
        seen = now;
    }
    /* the exchange of the number decides: the process ends, or that is called off */
    if (atomic_compare_exchange_strong(&xl_number, &end->number, 0)) {
        if (write(2, end->text, end->length) < 0) { /* stderr may be closed */
        }
        /* by a signal: after an exit with any status, hydra does not end stopped processes */
        struct timespec others = {0, XL_OTHERS_NS};
        nanosleep(&others, NULL);
        signal(SIGTERM, SIG_DFL);
        kill(getpid(), SIGTERM);
        nanosleep(&others, NULL);
        _exit(1);
    }
    free(end);
    return NULL;
}

static void xl_call_off(void) { atomic_store(&xl_number, 0); }

/* Return 1 if the process will end. `number` is new each time, and not 0. */
static int xl_end_in(double seconds, uint64_t number, const char *text, size_t length) {
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, before;
    xl_end *end = malloc(sizeof *end + length);
    if (!end) return 0;
    end->number = number;
    end->seconds = seconds;
    end->length = length;
    memcpy(end->text, text, length);
    atomic_store(&xl_number, number);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* the program's own threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &detached, xl_watch, end);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (!failed) return 1;
    xl_call_off();
    free(end);
    return 0;
}

#endif
