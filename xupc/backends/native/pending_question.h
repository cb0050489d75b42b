/* pending_question.h: whether the main Python thread executes Python.
 *
 * A pending call runs as soon as the main thread executes Python. While it does not run, the thread
 * is in one call of C.
 */
#ifndef XUPC_PENDING_QUESTION_H
#define XUPC_PENDING_QUESTION_H

#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>

static _Atomic uint64_t xpq_answers;
static atomic_int xpq_open;

static int xpq_answer(void *unused) {
    (void)unused;
    atomic_store(&xpq_open, 0);
    atomic_fetch_add(&xpq_answers, 1);
    return 0;
}

/* Return 1 if `xpq_answers` will grow when the main thread executes Python next. */
static int xpq_ask(void) {
    if (atomic_exchange(&xpq_open, 1)) return 1;
    if (Py_AddPendingCall(xpq_answer, NULL) == 0) return 1;
    atomic_store(&xpq_open, 0);
    return 0;
}

static uint64_t xpq_count(void) { return atomic_load(&xpq_answers); }

#endif
