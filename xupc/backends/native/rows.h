/* rows.h: the rows of lowered plans. rows.py has the table of kinds and writes this file. */
#ifndef XUPC_ROWS_H
#define XUPC_ROWS_H

#include <stdint.h>

/* A block of an operand. */
typedef struct {
    int64_t offset;
    int32_t operand;
    int32_t thread;
} xu_block;

/* A row of blocks: where the first is, and the steps from each one to the next. */
typedef struct {
    int64_t offset;
    int32_t operand;
    int32_t thread;
    int64_t offset_step;
    int32_t thread_step;
} xu_blocks;

enum {
    /* Copy `count` blocks of `nbytes`. */
    XS_COPY,
    /* Swap `count` blocks of `nbytes`. */
    XS_SWAP,
    /* Raise my channel to `value`. */
    XS_SIGNAL,
    /* Wait until `count` threads from `first` on have raised their channel to `value`. */
    XS_WAIT,
    /* Run a whole barrier of a team on one node. */
    XS_BARRIER,
    /* Arrive at the barrier of my node. */
    XS_ARRIVE,
    /* Node root: wait until all threads of my node have arrived. */
    XS_GATHER,
    /* Node root: exchange fingerprints with other nodes, and pieces of memory if `led`.
     * `before` rows make the data; they run again if it is sent again. `step`: its number
     * for Python. */
    XS_EXCHANGE,
    /* Node root: release my node if calls differ. */
    XS_CHECK,
    /* Node root: release my node, which ends the call if `led`. */
    XS_RELEASE,
    /* Wait for the release of my node, which ends the call if `led`. */
    XS_AWAIT,
    /* Arrive; then `executor`, or with -1 any thread, runs `body` rows. FUSE_END and AWAIT
     * follow. */
    XS_FUSE,
    /* Release my node after the body of a FUSE. */
    XS_FUSE_END,
    /* Wait until a ticket is set. */
    XS_WAIT_TICKET,
    /* Set a ticket. */
    XS_SET_TICKET,
    /* Let my node access `nbytes` from `src` on; `thread` is mine. */
    XS_EXPOSE,
    /* Copy `count` blocks to `mine`, from `offset` bytes behind what `thread`, `thread +
     * thread_step` and so on expose. */
    XS_DIRECT_GET,
    /* Copy `count` blocks in the other direction. */
    XS_DIRECT_PUT,
    /* Copy `count` blocks that others put behind `offset` of what I expose to their place. */
    XS_COPY_BACK,
    /* Fold `nelems` elements of the `operands` rows behind it, to `copies` places; all that
     * `rows` times, `row_step` bytes apart. With no operands the result is the identity. */
    XS_FOLD,
    /* An operand of a FOLD, or the carry of a SCAN: `times` blocks, combined `joins` times
     * with the last value that is not yet combined. */
    XS_FOLD_OPERAND,
    /* Scan `rows` rows of `nelems` elements; `reverse`: from the end. With a `carry` a
     * FOLD_OPERAND follows. */
    XS_SCAN,
    /* Run the `rows` rows behind it, a FOLD or SCAN, if the call has a kernel; else the
     * step of Python's. */
    XS_FUNCTION,
    /* Send `count` messages of the plan from `first` on. `types`: the number of types freed
     * so far if one of theirs may be freed, else 0. Then Python describes its `step` again. */
    XS_SEND,
    /* Receive `count` messages likewise. */
    XS_RECV,
    /* Let Python run a step. */
    XS_PYTHON,
};

typedef struct {
    int32_t kind;
    int32_t count;
    int64_t nbytes;
    xu_blocks dst;
    xu_blocks src;
} xu_copy_row;

typedef struct {
    int32_t kind;
    int32_t count;
    int64_t nbytes;
    xu_blocks a;
    xu_blocks b;
} xu_swap_row;

typedef struct {
    int32_t kind;
    int32_t channel;
    int64_t value;
} xu_signal_row;

typedef struct {
    int32_t kind;
    int32_t channel;
    int32_t first;
    int32_t count;
    int64_t value;
} xu_wait_row;

typedef struct {
    int32_t kind;
    int32_t step;
    int32_t led;
    int32_t before;
    int32_t sends;
    int32_t recvs;
} xu_exchange_row;

typedef struct {
    int32_t kind;
    int32_t led;
} xu_release_row;

typedef struct {
    int32_t kind;
    int32_t executor;
    int32_t body;
} xu_fuse_row;

typedef struct {
    int32_t kind;
    int32_t ticket;
} xu_ticket_row;

typedef struct {
    int32_t kind;
    int32_t thread;
    int64_t nbytes;
    xu_block src;
} xu_expose_row;

typedef struct {
    int32_t kind;
    int32_t count;
    int64_t nbytes;
    xu_blocks mine;
    int64_t offset;
    int32_t thread;
    int32_t thread_step;
} xu_direct_row;

typedef struct {
    int32_t kind;
    int32_t count;
    int64_t nbytes;
    xu_blocks dst;
    int64_t offset;
    int32_t thread;
} xu_copy_back_row;

typedef struct {
    int32_t kind;
    int32_t operands;
    int32_t copies;
    int32_t rows;
    int64_t nelems;
    int64_t row_step;
    xu_blocks dst;
} xu_fold_row;

typedef struct {
    int32_t kind;
    int32_t joins;
    int64_t times;
    xu_block src;
    int64_t offset_step;
    int64_t row_step;
} xu_fold_operand_row;

typedef struct {
    int32_t kind;
    int32_t rows;
    int32_t reverse;
    int32_t carry;
    int64_t nelems;
    xu_block dst;
    xu_block src;
    int64_t dst_step;
    int64_t src_step;
} xu_scan_row;

typedef struct {
    int32_t kind;
    int32_t step;
    int32_t rows;
} xu_function_row;

typedef struct {
    int32_t kind;
    int32_t step;
    int32_t first;
    int32_t count;
    int32_t ticket;
    int32_t tag;
    uint32_t types;
} xu_messages_row;

typedef struct {
    int32_t kind;
    int32_t step;
} xu_python_row;

/* A row of any kind. */
typedef union {
    int32_t kind;
    xu_copy_row copy;
    xu_swap_row swap;
    xu_signal_row signal;
    xu_wait_row wait;
    xu_exchange_row exchange;
    xu_release_row release;
    xu_fuse_row fuse;
    xu_ticket_row ticket;
    xu_expose_row expose;
    xu_direct_row direct;
    xu_copy_back_row copy_back;
    xu_fold_row fold;
    xu_fold_operand_row fold_operand;
    xu_scan_row scan;
    xu_function_row function;
    xu_messages_row messages;
    xu_python_row python;
} xu_step;

_Static_assert(sizeof(xu_copy_row) == 80, "copy");
_Static_assert(sizeof(xu_swap_row) == 80, "swap");
_Static_assert(sizeof(xu_signal_row) == 16, "signal");
_Static_assert(sizeof(xu_wait_row) == 24, "wait");
_Static_assert(sizeof(xu_exchange_row) == 24, "exchange");
_Static_assert(sizeof(xu_release_row) == 8, "release");
_Static_assert(sizeof(xu_fuse_row) == 12, "fuse");
_Static_assert(sizeof(xu_ticket_row) == 8, "ticket");
_Static_assert(sizeof(xu_expose_row) == 32, "expose");
_Static_assert(sizeof(xu_direct_row) == 64, "direct");
_Static_assert(sizeof(xu_copy_back_row) == 64, "copy_back");
_Static_assert(sizeof(xu_fold_row) == 64, "fold");
_Static_assert(sizeof(xu_fold_operand_row) == 48, "fold_operand");
_Static_assert(sizeof(xu_scan_row) == 72, "scan");
_Static_assert(sizeof(xu_function_row) == 12, "function");
_Static_assert(sizeof(xu_messages_row) == 28, "messages");
_Static_assert(sizeof(xu_python_row) == 8, "python");
_Static_assert(sizeof(xu_step) == 80, "row");

#endif
