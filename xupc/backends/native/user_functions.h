/* user_functions.h: kernels of user functions that consist of numpy's own loops.
 *
 * It compiles alone (C11).  ufunc_capture.py finds the loops of a function.  This code runs them
 * without Python, piece by piece, so that values between the steps stay in cache.  The loops are
 * those that numpy would call, so the bits are the same.  Folds and scans call the function in the
 * order of whole_arrays.py, `Associative`.
 *
 * Each thread has one set of buffers for all functions.
 */
#ifndef XUPC_FUNCTIONS_H
#define XUPC_FUNCTIONS_H

#include <fenv.h>
#include <pthread.h>
#include <stdlib.h>

#include "kernels.h"

#define XF_STEPS 16            /* the most steps of a function */
#define XF_CONSTANTS 16        /* the most constants of a function */
#define XF_INPUTS 3            /* the most inputs of a step */
#define XF_BLOCK (1 << 18)     /* bytes: whole_arrays.BLOCK */
#define XF_SHORT 1024          /* elements: whole_arrays.SHORT */
#define XF_PIECE 512           /* elements that all steps go through together */
#define XF_COLUMNS 2048        /* elements of all rows of a fold that are gone through together */
#define XF_MOST 16             /* bytes of an element */
#define XF_ROOM (2 * XF_BLOCK + 2 * XF_SHORT * XF_MOST) /* of what folds and scans keep */
#define XF_ERRORS (FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID)

/* numpy's, as `ufunc._get_strided_loop` fills it in */
typedef int (*xf_loop)(void *context, char *const *data, const intptr_t *n,
                       const intptr_t *strides, void *auxdata);
typedef struct {
    xf_loop loop;
    void *context, *auxdata;
    uint8_t requires_pyapi, no_floatingpoint_errors;
} xf_numpy_loop;

typedef struct {
    xf_loop loop;
    void *context, *auxdata;
    int32_t inputs, from[XF_INPUTS];
    int32_t reports; /* whether it may raise errors of floating point */
    int32_t errors;  /* those that came up, until Python asks */
    int32_t size;    /* bytes of an element of the result */
} xf_step;

/* A value is one of the two operands, then the result of a step, then a constant. */
enum { XF_RESULTS = 2, XF_FIXED = XF_RESULTS + XF_STEPS, XF_VALUES = XF_FIXED + XF_CONSTANTS };

typedef struct {
    xk_kernel kernel; /* first */
    int32_t ordered;  /* operands keep their order: NONCOMM_FUNC */
    int32_t steps;
    int32_t alert; /* a step has errors */
    xf_step step[XF_STEPS];
    const char *fixed[XF_CONSTANTS];
} xf_function;

/* ---- buffers --------------------------------------------------------------- */
static _Thread_local char *xf_own;
static pthread_key_t xf_key; /* frees it when its thread ends */
static pthread_once_t xf_once = PTHREAD_ONCE_INIT;
static int xf_keyless;

static void xf_make_key(void) { xf_keyless = pthread_key_create(&xf_key, free); }

/* My thread's buffers; NULL if there is no memory.  Pages that are not used cost nothing. */
static inline char *xf_room(void)
{
    if (xf_own) return xf_own;
    pthread_once(&xf_once, xf_make_key);
    char *own = xf_keyless ? NULL : malloc(XF_ROOM + (size_t)XF_STEPS * XF_PIECE * XF_MOST);
    if (own && pthread_setspecific(xf_key, own) != 0) free(own), own = NULL;
    return xf_own = own;
}

/* ---- errors of floating point ------------------------------------------------ */
/* To look for them takes as long as a short step: the only one is looked at in the end. */
static inline void xf_note(xf_function *f, xf_step *s)
{
    int errors = s->reports ? fetestexcept(XF_ERRORS) : 0;
    if (!errors) return;
    s->errors |= errors;
    f->alert = 1;
    feclearexcept(XF_ERRORS);
}

static inline void xf_forget_errors(void)
{
    if (fetestexcept(XF_ERRORS)) feclearexcept(XF_ERRORS);
}

static inline void xf_note_only(xf_function *f)
{
    if (f->steps == 1) xf_note(f, &f->step[0]);
}

/* ---- the function, on arrays ------------------------------------------------- */
/* out[i] = f(a[i], b[i]); strides in bytes.  out may be a or b, element by element. */
static inline void xf_apply(xf_function *f, char *out, intptr_t out_step, const char *a,
                            intptr_t a_step, const char *b, intptr_t b_step, int64_t n)
{
    char *between = xf_own + XF_ROOM;
    intptr_t most = f->steps > 1 ? XF_PIECE : n, m;
    for (int64_t i = 0; i < n; i += m) {
        m = n - i < most ? n - i : most;
        for (int32_t j = 0; j < f->steps; j++) {
            xf_step *s = &f->step[j];
            char *data[XF_INPUTS + 1];
            intptr_t strides[XF_INPUTS + 1];
            for (int32_t k = 0; k < s->inputs; k++) {
                int32_t v = s->from[k];
                if (v < XF_RESULTS) {
                    strides[k] = v ? b_step : a_step;
                    data[k] = (char *)(v ? b : a) + i * strides[k];
                } else if (v < XF_FIXED) {
                    strides[k] = f->step[v - XF_RESULTS].size;
                    data[k] = between + (intptr_t)(v - XF_RESULTS) * XF_PIECE * XF_MOST;
                } else {
                    strides[k] = 0;
                    data[k] = (char *)f->fixed[v - XF_FIXED];
                }
            }
            int last = j == f->steps - 1;
            strides[s->inputs] = last ? out_step : s->size;
            data[s->inputs] =
                last ? out + i * out_step : between + (intptr_t)j * XF_PIECE * XF_MOST;
            s->loop(s->context, data, &m, strides, s->auxdata);
            if (f->steps > 1) xf_note(f, s);
        }
    }
}

static inline void xf_in_line(xf_function *f, char *out, const char *a, const char *b, int64_t n)
{
    intptr_t size = f->kernel.size;
    xf_apply(f, out, size, a, size, b, size, n);
}

/* ---- folds ------------------------------------------------------------------- */
/* n elements joined to the beginning of `len` ones at `at`; where the result is: `acc`, or `at` if
 * there was nothing to join.  `at` may be `acc`. */
static inline const char *xf_onto(xf_function *f, char *acc, const char *at, int64_t len,
                                  const char *rest, int64_t n)
{
    int64_t size = f->kernel.size;
    if (!n) return at;
    xf_in_line(f, acc, at, rest, n);
    if (at != acc) memcpy(acc + n * size, at + n * size, (size_t)((len - n) * size));
    return acc;
}

/* Neighbours, again and again, a last odd one as it is: n elements, at most a block, to one. */
static inline const char *xf_neighbours(xf_function *f, const char *x, int64_t n)
{
    intptr_t size = f->kernel.size;
    char *to = xf_own, *other = xf_own + XF_BLOCK / 2;
    while (n > 1) {
        int64_t pairs = n / 2;
        xf_apply(f, to, size, x, 2 * size, x + size, 2 * size, pairs);
        if (n % 2) memcpy(to + pairs * size, x + (n - 1) * size, (size_t)size);
        n = pairs + n % 2;
        x = to, to = other, other = (char *)x;
    }
    return x;
}

/* Blocks are powers of two, so that what becomes of them is joined as their neighbours would be. */
static inline void xf_fold_ordered(xf_function *f, char *out, const char *x, int64_t n)
{
    int64_t size = f->kernel.size, block = XF_BLOCK / size, done = 0;
    _Alignas(XF_MOST) char stack[64][XF_MOST];
    int depth = 0;
    for (int64_t i = 0; i < n; i += block) {
        const char *one = xf_neighbours(f, x + i * size, n - i < block ? n - i : block);
        memcpy(stack[depth++], one, (size_t)size);
        done++;
        for (int64_t whole = done; depth > 1 && (whole % 2 == 0 || i + block >= n); whole /= 2) {
            depth--;
            xf_in_line(f, stack[depth - 1], stack[depth - 1], stack[depth], 1);
        }
    }
    memcpy(out, stack[0], (size_t)size);
}

static inline void xf_fold_rows(xf_function *f, char *out, const char *from, int64_t n)
{
    int64_t size = f->kernel.size, row = XF_BLOCK / size, whole = n < row ? n : n - n % row;
    int64_t len = n < row ? n : row;
    const char *x = from, *at = x;
    char *acc = xf_own;
    if (whole > row) { /* piece by piece through all rows */
        for (int64_t p = 0; p < row; p += XF_COLUMNS) {
            int64_t m = row - p < XF_COLUMNS ? row - p : XF_COLUMNS;
            const char *left = x + p * size;
            for (int64_t i = row; i < whole; i += row, left = acc + p * size)
                xf_in_line(f, acc + p * size, left, x + (i + p) * size, m);
        }
        at = acc;
    }
    at = xf_onto(f, acc, at, len, x + whole * size, n - whole);
    int64_t half = 1;
    while (2 * half <= len) half *= 2;
    at = xf_onto(f, acc, at, half, at + half * size, len - half);
    while (half > 1) {
        half /= 2;
        xf_in_line(f, acc, at, at + half * size, half);
        at = acc;
    }
    memcpy(out, at, (size_t)size);
}

static void xf_fold(const xk_kernel *k, void *out, const void *from, int64_t n)
{
    xf_function *f = (xf_function *)k;
    xf_forget_errors();
    (f->ordered ? xf_fold_ordered : xf_fold_rows)(f, out, from, n);
    xf_note_only(f);
}

static void xf_combine(const xk_kernel *k, void *out, const void *a, const void *b, int64_t n)
{
    xf_function *f = (xf_function *)k;
    xf_forget_errors();
    xf_in_line(f, out, a, b, n);
    xf_note_only(f);
}

/* ---- scans ------------------------------------------------------------------- */
typedef struct { uint64_t word[2]; } xf_two;

/* n elements to every second place. */
static inline void xf_spread(char *to, const char *from, int64_t n, int32_t size)
{
#define XF_SPREAD(T) \
    case sizeof(T): \
        for (int64_t i = 0; i < n; i++) ((T *)to)[2 * i] = ((const T *)from)[i]; \
        break;
    switch (size) {
        XF_SPREAD(uint8_t)
        XF_SPREAD(uint16_t)
        XF_SPREAD(uint32_t)
        XF_SPREAD(uint64_t)
        XF_SPREAD(xf_two)
    }
}

/* Running results of x, behind or (reverse) before those that `before` is the last of; out may be
 * x.  `room` is for what lies between. */
static inline void xf_running(xf_function *f, char *out, const char *x, int64_t n,
                              const char *before, int32_t reverse, char *room)
{
    intptr_t size = f->kernel.size;
    if (n <= XF_SHORT) {
        if (out != x) memcpy(out, x, (size_t)(n * size));
        char *end = reverse ? out + (n - 1) * size : out;
        xf_in_line(f, end, reverse ? end : before, reverse ? before : end, 1);
        for (int64_t apart = 1; apart < n; apart *= 2) {
            xf_in_line(f, room, out, out + apart * size, n - apart);
            memcpy(reverse ? out : out + apart * size, room, (size_t)((n - apart) * size));
        }
        return;
    }
    int64_t odd = n % 2, half = n / 2, first = reverse ? odd : 0;
    char *pairs = room, *line = pairs + half * size;
    char *inner = reverse ? line : line + size;
    room = line + (half + 1) * size;
    const char *even = x + first * size; /* what is left alone is at the far end */
    xf_apply(f, pairs, size, even, 2 * size, even + size, 2 * size, half);
    memcpy(reverse ? line + half * size : line, before, (size_t)size);
    xf_running(f, inner, pairs, half, before, reverse, room);
    int64_t lone = reverse ? 1 - odd : 0, settled = reverse ? odd : 1;
    const char *past = line + lone * size;
    x += lone * size;
    /* to one piece, as when it is called: some loops of numpy's depend on their steps */
    if (reverse)
        xf_apply(f, room, size, x, 2 * size, past, size, half + odd);
    else
        xf_apply(f, room, size, past, size, x, 2 * size, half + odd);
    xf_spread(out + lone * size, room, half + odd, (int32_t)size);
    xf_spread(out + settled * size, inner, half, (int32_t)size);
}

static void xf_scan(const xk_kernel *k, void *to, const void *from, int64_t n, const void *carry,
                    int32_t reverse)
{
    xf_function *f = (xf_function *)k;
    int64_t size = k->size, block = XF_BLOCK / size;
    char *dst = to;
    const char *src = from;
    _Alignas(XF_MOST) char before[XF_MOST];
    if (n < 1) return;
    if (!carry) {
        char *end = reverse ? dst + (n - 1) * size : dst;
        carry = reverse ? src + (n - 1) * size : src;
        memmove(end, carry, (size_t)size);
        carry = end, n--;
        if (!reverse) dst += size, src += size;
    }
    memcpy(before, carry, (size_t)size);
    xf_forget_errors();
    for (int64_t done = 0; done < n; done += block) {
        int64_t m = n - done < block ? n - done : block;
        int64_t at = (reverse ? n - done - m : done) * size;
        xf_running(f, dst + at, src + at, m, before, reverse, xf_own);
        memcpy(before, reverse ? dst + at : dst + at + (m - 1) * size, (size_t)size);
    }
    xf_note_only(f);
}

/* ---- what is no loop of numpy's ---------------------------------------------- */
/* numpy.where: data[0] is true or not, data[1] and data[2] are what to choose from. */
#define XF_WHERE(X, T) \
    static int xf_where_##X(void *context, char *const *data, const intptr_t *n, \
                            const intptr_t *s, void *auxdata) \
    { \
        (void)context, (void)auxdata; \
        const char *c = data[0], *x = data[1], *y = data[2]; \
        char *out = data[3]; \
        intptr_t size = sizeof(T); \
        if (s[0] == 1 && s[1] == size && s[2] == size && s[3] == size) { \
            const uint8_t *chosen = (const uint8_t *)c; \
            const T *p = (const T *)x, *q = (const T *)y; \
            T *r = (T *)out; \
            XK_INDEPENDENT \
            for (intptr_t i = 0; i < *n; i++) r[i] = chosen[i] ? p[i] : q[i]; \
            return 0; \
        } \
        for (intptr_t i = 0; i < *n; i++, c += s[0], x += s[1], y += s[2], out += s[3]) \
            *(T *)out = *c ? *(const T *)x : *(const T *)y; \
        return 0; \
    }
XF_WHERE(1, uint8_t)
XF_WHERE(2, uint16_t)
XF_WHERE(4, uint32_t)
XF_WHERE(8, uint64_t)
XF_WHERE(16, xf_two)

static inline xf_loop xf_where(int32_t size)
{
    switch (size) {
    case 1: return xf_where_1;
    case 2: return xf_where_2;
    case 4: return xf_where_4;
    case 8: return xf_where_8;
    case 16: return xf_where_16;
    }
    return NULL;
}

/* ---- as a kernel ------------------------------------------------------------- */
static inline void xf_begin(xf_function *f, int32_t size, int32_t ordered)
{
    memset(f, 0, sizeof *f);
    f->kernel.size = size;
    f->kernel.combine = xf_combine, f->kernel.fold = xf_fold, f->kernel.scan = xf_scan;
    f->ordered = ordered;
}

/* Whether errors of floating point came up that have not been reported yet. */
static inline int xf_alerts(const xk_kernel *k) { return ((const xf_function *)k)->alert; }

#endif
