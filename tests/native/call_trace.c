/* call_trace.c: rows of calls, as call_trace.h keeps them, against plain sums.
 *
 * Prints a line for each mistake; the last line says how many there were.
 */
#include "call_trace.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS 64
#define CALLS 5000

static int wrong;

static void check(int good, const char *what)
{
    if (!good) wrong++, printf("%s\n", what);
}

static xt_log *new_log(void)
{
    xt_log *log = calloc(1, sizeof *log);
    if (!log) exit(2);
    log->head = calloc(1, sizeof *log->head);
    log->totals = calloc(XT_TOTALS, sizeof *log->totals);
    log->rows = calloc(ROWS, sizeof *log->rows);
    if (!log->head || !log->totals || !log->rows) exit(2);
    log->head->capacity = ROWS;
    return log;
}

static void end_log(xt_log *log)
{
    free(log->head), free(log->totals), free(log->rows), free(log);
}

/* Add up what rows and totals say of all calls. */
static xt_total sum_of(const xt_log *log)
{
    xt_total sum = {0};
    for (int i = 0; i < XT_TOTALS; i++) {
        sum.calls += log->totals[i].calls;
        sum.waited += log->totals[i].waited;
    }
    for (uint64_t i = 0; i < log->head->count; i++) {
        sum.calls++;
        sum.waited += log->rows[i].waited;
    }
    return sum;
}

static void many_calls(uint32_t kinds)
{
    xt_log *log = new_log(), *other = new_log();
    xt_row own = {0};
    uint64_t waited = 0;
    for (uint64_t op = 1; op <= CALLS; op++) {
        xt_log *both[] = {log, other};
        for (int k = 0; k < 2; k++) {
            own.kind = 1 + (uint32_t)op % kinds, own.line = own.kind;
            xt_row *row = xt_begin(both[k], &own, op);
            xt_waited(row, 100, 100 + op, XT_MEMBER);
            xt_end(both[k], row);
        }
        waited += op;
    }
    xt_total sum = sum_of(log);
    check(sum.calls == CALLS && sum.waited == waited, "sum: calls or waits are lost");
    check(log->head->calls == CALLS, "sum: wrong count");
    check(log->head->count > 0 && log->head->count <= ROWS, "rows: too many or none");
    check(log->head->count == other->head->count, "rows: other ones on another thread");
    for (uint64_t i = 0; i < log->head->count; i++)
        check(log->rows[i].op == other->rows[i].op && xt_stays(log->rows[i].op, log->head->level),
              "rows: other ones on another thread");
    end_log(log), end_log(other);
}

static void calls_inside_others(void)
{
    xt_log *log = new_log();
    xt_row first = {.kind = 1}, second = {.kind = 2}, third = {.kind = 3};
    xt_row *a = xt_begin(log, &first, 1);
    a = xt_move_out(log, a, &first);
    check(a == &first && !log->head->open.op, "posted: it keeps the open row");
    xt_row *b = xt_begin(log, &second, 2);
    check(b == &log->head->open && log->head->open.op == 2, "open: it is not there");
    xt_row *c = xt_begin(log, &third, 3);
    check(c == &third, "inside: it takes the open row of another call");
    xt_end(log, c), xt_end(log, a);
    check(log->head->open.op == 2, "open: another call has ended it");
    xt_end(log, b);
    check(!log->head->open.op && log->head->count == 3, "open: it stays after its end");
    check(log->rows[0].kind == 3 && log->rows[1].kind == 1 && log->rows[2].kind == 2,
          "rows: not in the order of their ends");
    end_log(log);
}

static void waits(void)
{
    xt_row row = {0};
    xt_waited(&row, 10, 30, XT_MEMBER | 1);
    xt_waited(&row, 40, 90, XT_RANK | 2);
    xt_waited(&row, 95, 99, XT_LAST);
    xt_waited(&row, 99, 98, XT_LAST); /* the clock was set right */
    check(row.waited == 74 && row.longest == 50 && row.awaited == (XT_RANK | 2), "waits: wrong sum");
}

static void clock_of_the_counter(void)
{
    xt_clock clock;
    xt_start_clock(&clock, 1);
    if (!clock.mult) return; /* a processor without such a counter */
    clock.range /= 50; /* so that it is compared some times in this test */
    uint64_t end = xt_clock_ns() + 20000000u, worst = 0;
    while (xt_clock_ns() < end) {
        uint64_t before = xt_clock_ns(), now = xt_now(&clock), after = xt_clock_ns();
        uint64_t off = now < before ? before - now : now > after ? now - after : 0;
        if (off > worst) worst = off;
    }
    check(worst < 1000000, "clock: a millisecond off");
}

int main(void)
{
    many_calls(3);
    many_calls(XT_TOTALS + 100); /* more kinds than totals */
    calls_inside_others();
    waits();
    clock_of_the_counter();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
