/* exit_timer.h: ends this process with a sentence, unless that is called off in time.
 *
 * For waits inside of code that keeps the interpreter, where no thread of Python's can look at
 * the clock: MPI's start. One sentence at a time; a later one takes the place of the earlier.
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

#define XL_LOOK_NS 20000000 /* between two looks at the clock */
#define XL_OTHERS_NS 300000000 /* for others of the job to say their sentences, too */

typedef struct {
    uint64_t number;
    double seconds;
    size_t length;
    char text[];
} xl_end;

static _Atomic uint64_t xl_number; /* of the one that counts */

static double xl_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *xl_watch(void *argument) {
    xl_end *end = argument;
    double until = xl_now() + end->seconds;
    struct timespec look = {0, XL_LOOK_NS};
    while (xl_now() < until && atomic_load(&xl_number) == end->number) nanosleep(&look, NULL);
    /* whoever takes the number has the last word: to end, or to be called off */
    if (atomic_compare_exchange_strong(&xl_number, &end->number, 0)) {
        if (write(2, end->text, end->length) < 0) { /* nobody may be there to read it */
        }
        /* by a signal: at an exit, whatever its status, hydra leaves others that are stopped */
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

/* 1 if the process will end. `number` is another one each time, and not 0. */
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
    sigfillset(&all); /* signals are for the program's own threads */
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
