/* kernels.h: what the reductions compute, for the eleven UPC types, and for records of two numbers.
 *
 * Compiles alone (C11).  builtin_kernels.py computes the same in numpy, bit for bit.  This needs
 * -ffp-contract=off and no -ffast-math (gcc ignores the pragma for the former).
 *
 *   integers  wrap. The type is the unsigned one of the same width, or a wider one where C
 *             would promote to int.
 *   LOGAND    and LOGOR give 0 or 1 in the type
 *   MIN, MAX  give NaN if either operand is NaN; -0.0 is below 0.0
 *   NaN       any NaN that a kernel writes is NAN itself, whatever the operation: which operand's
 *             sign and payload the machine hands on depends on how the compiler placed them
 *   MINLOC    and MAXLOC give one of two records (value, index): the one whose value MIN or MAX
 *             gives, of two equal ones that with the lower index, padding zero.  What is of one
 *             record alone is that record as it is
 *
 * The order of a fold is part of its result:
 *   n < 32    left to right
 *   else      16 accumulators, acc[j] = x[j] op x[16 + j] op x[2 * 16 + j] ... over the whole
 *             rows; then neighbours are combined, (0,1) (2,3) ..., until one is left; then what
 *             is behind the last whole row, left to right
 */
#ifndef XUPC_KERNELS_H
#define XUPC_KERNELS_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "reductions need IEEE arithmetic: no -ffast-math"
#endif

#define XK_ROW 16

enum {
    XK_I8, XK_U8, XK_I16, XK_U16, XK_I32, XK_U32, XK_I64, XK_U64, XK_F32, XK_F64, XK_LD,
    XK_BOOL, XK_TYPES
};
enum {
    XK_ADD, XK_MULT, XK_AND, XK_OR, XK_XOR, XK_LOGAND, XK_LOGOR, XK_MIN, XK_MAX, XK_OPS,
    XK_MINLOC = 11, XK_MAXLOC
};

typedef struct xk_kernel xk_kernel;
struct xk_kernel { /* its functions are called with itself */
    int32_t size;  /* bytes of an element */
    /* out[i] = a[i] op b[i]; out may be a or b, but not overlap them otherwise */
    void (*combine)(const xk_kernel *k, void *out, const void *a, const void *b, int64_t n);
    /* n >= 1 elements to one, in the written order */
    void (*fold)(const xk_kernel *k, void *out, const void *x, int64_t n);
    /* dst[i] = carry op src[0] op ... op src[i], from the left; reverse: src[i] op ... op
     * src[n-1] op carry, from the right.  carry may be NULL, dst may be src. */
    void (*scan)(const xk_kernel *k, void *dst, const void *src, int64_t n, const void *carry,
                 int32_t reverse);
    /* out[i] = the identity of the operation; NULL if it has none */
    void (*fill)(const xk_kernel *k, void *out, int64_t n);
};

/* The iterations are independent: out is a or b, or apart from both. */
#if defined(__clang__)
#define XK_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define XK_INDEPENDENT _Pragma("GCC ivdep")
#else
#define XK_INDEPENDENT
#endif

/* With AVX2 combine is 2 to 4 times as fast in cache (fold and scan gain nothing).  The loader
 * chooses, which needs glibc; sanitizers are not ready yet when it does. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && \
    !defined(__AVX2__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(XK_NO_CLONES)
#define XK_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define XK_CLONES
#endif

/* ---- one element ------------------------------------------------------------- */
/* xk_put_X(p, v) stores a result. */
#define XK_PUT_INT(X, T) \
    static inline void xk_put_##X(T *p, T v) { *p = v; }
XK_PUT_INT(u8, uint8_t)
XK_PUT_INT(u16, uint16_t)
XK_PUT_INT(u32, uint32_t)
XK_PUT_INT(u64, uint64_t)
XK_PUT_INT(i8, int8_t)
XK_PUT_INT(i16, int16_t)
XK_PUT_INT(i32, int32_t)
XK_PUT_INT(i64, int64_t)

static inline void xk_put_f32(float *p, float v) { *p = v == v ? v : NAN; }
static inline void xk_put_f64(double *p, double v) { *p = v == v ? v : (double)NAN; }
static inline void xk_put_ld(long double *p, long double v)
{
    *p = v == v ? v : (long double)NAN;
#if LDBL_MANT_DIG == 64 /* x87: 10 bytes and padding */
    memset((char *)p + 10, 0, sizeof *p - 10);
#endif
}

/* xk_OP_X(a, b).  W is not promoted to int. */
#define XK_OP(OP, X, T, EXPR) \
    static inline T xk_##OP##_##X(T a, T b) { return (T)(EXPR); }
#define XK_OPS_UINT(X, T, W) \
    XK_OP(ADD, X, T, (W)a + (W)b) \
    XK_OP(MULT, X, T, (W)a * (W)b) \
    XK_OP(AND, X, T, a & b) \
    XK_OP(OR, X, T, a | b) \
    XK_OP(XOR, X, T, a ^ b) \
    XK_OP(LOGAND, X, T, (a != 0) & (b != 0)) \
    XK_OP(LOGOR, X, T, (a | b) != 0)
XK_OPS_UINT(u8, uint8_t, uint32_t)
XK_OPS_UINT(u16, uint16_t, uint32_t)
XK_OPS_UINT(u32, uint32_t, uint32_t)
XK_OPS_UINT(u64, uint64_t, uint64_t)
XK_OP(LOGXOR, u8, uint8_t, (a != 0) ^ (b != 0))

#define XK_OPS_ORDER(X, T) \
    XK_OP(MIN, X, T, a < b ? a : b) \
    XK_OP(MAX, X, T, a > b ? a : b)
XK_OPS_ORDER(u8, uint8_t)
XK_OPS_ORDER(u16, uint16_t)
XK_OPS_ORDER(u32, uint32_t)
XK_OPS_ORDER(u64, uint64_t)
XK_OPS_ORDER(i8, int8_t)
XK_OPS_ORDER(i16, int16_t)
XK_OPS_ORDER(i32, int32_t)
XK_OPS_ORDER(i64, int64_t)

#define XK_OPS_FLOAT(X, T) \
    XK_OP(ADD, X, T, a + b) \
    XK_OP(MULT, X, T, a * b) \
    XK_OP(LOGAND, X, T, ((a != 0) & (b != 0)) ? 1 : 0) \
    XK_OP(LOGOR, X, T, ((a != 0) | (b != 0)) ? 1 : 0)
XK_OPS_FLOAT(f32, float)
XK_OPS_FLOAT(f64, double)
XK_OPS_FLOAT(ld, long double)

/* Without branches: the two choices differ for NaN, and for equal operands, whose bits differ only
 * in the sign of zeros. */
#define XK_EXTREMUM(OP, X, T, U, BEFORE, JOIN) \
    static inline T xk_##OP##_##X(T a, T b) \
    { \
        union { T v; U bits; } p = {a BEFORE b ? a : b}, q = {b BEFORE a ? b : a}; \
        p.bits = p.bits JOIN q.bits; \
        return ((a == a) & (b == b)) ? p.v : (T)NAN; \
    }
XK_EXTREMUM(MIN, f32, float, uint32_t, <, |)
XK_EXTREMUM(MAX, f32, float, uint32_t, >, &)
XK_EXTREMUM(MIN, f64, double, uint64_t, <, |)
XK_EXTREMUM(MAX, f64, double, uint64_t, >, &)
XK_OP(MIN, ld, long double,
      a < b ? a : b < a ? b : a != b ? (long double)NAN : signbit(a) ? a : b)
XK_OP(MAX, ld, long double,
      a > b ? a : b > a ? b : a != b ? (long double)NAN : signbit(a) ? b : a)

/* ---- identities -------------------------------------------------------------- */
#define XK_LEAST_u8 0
#define XK_GREATEST_u8 UINT8_MAX
#define XK_LEAST_u16 0
#define XK_GREATEST_u16 UINT16_MAX
#define XK_LEAST_u32 0
#define XK_GREATEST_u32 UINT32_MAX
#define XK_LEAST_u64 0
#define XK_GREATEST_u64 UINT64_MAX
#define XK_LEAST_i8 INT8_MIN
#define XK_GREATEST_i8 INT8_MAX
#define XK_LEAST_i16 INT16_MIN
#define XK_GREATEST_i16 INT16_MAX
#define XK_LEAST_i32 INT32_MIN
#define XK_GREATEST_i32 INT32_MAX
#define XK_LEAST_i64 INT64_MIN
#define XK_GREATEST_i64 INT64_MAX
#define XK_LEAST_f32 -INFINITY
#define XK_GREATEST_f32 INFINITY
#define XK_LEAST_f64 -INFINITY
#define XK_GREATEST_f64 INFINITY
#define XK_LEAST_ld -INFINITY
#define XK_GREATEST_ld INFINITY
#define XK_LEAST_bool 0
#define XK_GREATEST_bool 1
/* XK_OP_ID(X, T) */
#define XK_ADD_ID(X, T) 0
#define XK_MULT_ID(X, T) 1
#define XK_AND_ID(X, T) (T)~(T)0
#define XK_OR_ID(X, T) 0
#define XK_XOR_ID(X, T) 0
#define XK_LOGAND_ID(X, T) 1
#define XK_LOGOR_ID(X, T) 0
#define XK_LOGXOR_ID(X, T) 0
#define XK_MIN_ID(X, T) XK_GREATEST_##X
#define XK_MAX_ID(X, T) XK_LEAST_##X
#define XK_MINLOC_ID(X, T) XK_GREATEST_##X
#define XK_MAXLOC_ID(X, T) XK_LEAST_##X

/* ---- whole arrays ------------------------------------------------------------ */
#define XK_KERNEL(OP, X, T) \
    XK_CLONES static void xk_combine_##OP##_##X(const xk_kernel *k, void *out, const void *a, \
                                                const void *b, int64_t n) \
    { \
        (void)k; \
        T *o = out; \
        const T *x = a, *y = b; \
        XK_INDEPENDENT \
        for (int64_t i = 0; i < n; i++) \
            xk_put_##X(o + i, xk_##OP##_##X(x[i], y[i])); \
    } \
    static void xk_fold_##OP##_##X(const xk_kernel *k, void *out, const void *from, int64_t n) \
    { \
        (void)k; \
        const T *x = from; \
        T r = x[0]; \
        int64_t i = 1; \
        if (n >= 2 * XK_ROW) { \
            T acc[XK_ROW]; \
            memcpy(acc, x, sizeof acc); \
            for (i = XK_ROW; i + XK_ROW <= n; i += XK_ROW) \
                for (int j = 0; j < XK_ROW; j++) \
                    acc[j] = xk_##OP##_##X(acc[j], x[i + j]); \
            for (int step = 1; step < XK_ROW; step *= 2) \
                for (int j = 0; j < XK_ROW; j += 2 * step) \
                    acc[j] = xk_##OP##_##X(acc[j], acc[j + step]); \
            r = acc[0]; \
        } \
        for (; i < n; i++) \
            r = xk_##OP##_##X(r, x[i]); \
        xk_put_##X((T *)out, r); \
    } \
    static void xk_scan_##OP##_##X(const xk_kernel *k, void *dst, const void *src, int64_t n, \
                                   const void *carry, int32_t reverse) \
    { \
        (void)k; \
        T *o = dst; \
        const T *x = src; \
        if (n < 1) \
            return; \
        int64_t i = reverse ? n - 1 : 0; \
        const T c = carry ? *(const T *)carry : x[i]; \
        T r = !carry ? c : reverse ? xk_##OP##_##X(x[i], c) : xk_##OP##_##X(c, x[i]); \
        xk_put_##X(o + i, r); \
        if (reverse) \
            while (i-- > 0) \
                xk_put_##X(o + i, r = xk_##OP##_##X(x[i], r)); \
        else \
            while (++i < n) \
                xk_put_##X(o + i, r = xk_##OP##_##X(r, x[i])); \
    } \
    static void xk_fill_##OP##_##X(const xk_kernel *k, void *out, int64_t n) \
    { \
        (void)k; \
        T *o = out; \
        for (int64_t i = 0; i < n; i++) \
            xk_put_##X(o + i, XK_##OP##_ID(X, T)); \
    }

#define XK_KERNELS_UINT(X, T) \
    XK_KERNEL(ADD, X, T) \
    XK_KERNEL(MULT, X, T) \
    XK_KERNEL(AND, X, T) \
    XK_KERNEL(OR, X, T) \
    XK_KERNEL(XOR, X, T) \
    XK_KERNEL(LOGAND, X, T) \
    XK_KERNEL(LOGOR, X, T)
#define XK_KERNELS_ORDER(X, T) \
    XK_KERNEL(MIN, X, T) \
    XK_KERNEL(MAX, X, T)
#define XK_KERNELS_FLOAT(X, T) \
    XK_KERNEL(ADD, X, T) \
    XK_KERNEL(MULT, X, T) \
    XK_KERNEL(LOGAND, X, T) \
    XK_KERNEL(LOGOR, X, T) \
    XK_KERNEL(MIN, X, T) \
    XK_KERNEL(MAX, X, T)

XK_KERNELS_UINT(u8, uint8_t)
XK_KERNELS_UINT(u16, uint16_t)
XK_KERNELS_UINT(u32, uint32_t)
XK_KERNELS_UINT(u64, uint64_t)
XK_KERNEL(LOGXOR, u8, uint8_t)
XK_KERNELS_ORDER(u8, uint8_t)
XK_KERNELS_ORDER(u16, uint16_t)
XK_KERNELS_ORDER(u32, uint32_t)
XK_KERNELS_ORDER(u64, uint64_t)
XK_KERNELS_ORDER(i8, int8_t)
XK_KERNELS_ORDER(i16, int16_t)
XK_KERNELS_ORDER(i32, int32_t)
XK_KERNELS_ORDER(i64, int64_t)
XK_KERNELS_FLOAT(f32, float)
XK_KERNELS_FLOAT(f64, double)
XK_KERNELS_FLOAT(ld, long double)

/* ---- the table --------------------------------------------------------------- */
#define XK_AS(OP, DO, X, T) \
    [XK_##OP] = {sizeof(T), xk_combine_##DO##_##X, xk_fold_##DO##_##X, xk_scan_##DO##_##X, \
                 xk_fill_##DO##_##X}
#define XK_ENTRY(OP, X, T) XK_AS(OP, OP, X, T)
/* The signed types share all but MIN and MAX with the unsigned ones: the bits are the same. */
#define XK_INTEGER(X, U, T) \
    {XK_ENTRY(ADD, U, T),   XK_ENTRY(MULT, U, T),  XK_ENTRY(AND, U, T), \
     XK_ENTRY(OR, U, T),    XK_ENTRY(XOR, U, T),   XK_ENTRY(LOGAND, U, T), \
     XK_ENTRY(LOGOR, U, T), XK_ENTRY(MIN, X, T),   XK_ENTRY(MAX, X, T)}
#define XK_FLOATING(X, T) \
    {XK_ENTRY(ADD, X, T),   XK_ENTRY(MULT, X, T),  XK_ENTRY(LOGAND, X, T), \
     XK_ENTRY(LOGOR, X, T), XK_ENTRY(MIN, X, T),   XK_ENTRY(MAX, X, T)}

static const xk_kernel xk_table[XK_TYPES][XK_OPS] = {
    [XK_I8] = XK_INTEGER(i8, u8, int8_t),
    [XK_U8] = XK_INTEGER(u8, u8, uint8_t),
    [XK_I16] = XK_INTEGER(i16, u16, int16_t),
    [XK_U16] = XK_INTEGER(u16, u16, uint16_t),
    [XK_I32] = XK_INTEGER(i32, u32, int32_t),
    [XK_U32] = XK_INTEGER(u32, u32, uint32_t),
    [XK_I64] = XK_INTEGER(i64, u64, int64_t),
    [XK_U64] = XK_INTEGER(u64, u64, uint64_t),
    [XK_F32] = XK_FLOATING(f32, float),
    [XK_F64] = XK_FLOATING(f64, double),
    [XK_LD] = XK_FLOATING(ld, long double),
    /* as in numpy; any byte but 0 is true */
    [XK_BOOL] = {XK_AS(ADD, LOGOR, u8, uint8_t),    XK_AS(MULT, LOGAND, u8, uint8_t),
                 XK_AS(AND, LOGAND, u8, uint8_t),   XK_AS(OR, LOGOR, u8, uint8_t),
                 XK_AS(XOR, LOGXOR, u8, uint8_t),   XK_AS(LOGAND, LOGAND, u8, uint8_t),
                 XK_AS(LOGOR, LOGOR, u8, uint8_t),  XK_AS(MIN, LOGAND, u8, uint8_t),
                 XK_AS(MAX, LOGOR, u8, uint8_t)},
};

/* The kernel, or NULL where there is none. */
static inline const xk_kernel *xk_find(int32_t type, int32_t op)
{
    if (type < 0 || type >= XK_TYPES || op < 0 || op >= XK_OPS || !xk_table[type][op].size)
        return NULL;
    return &xk_table[type][op];
}

/* ---- records of a value and an index ------------------------------------------ */
/* They lie anywhere in a record, aligned or not.  Indices are compared as unsigned numbers in which
 * the sign bit of signed ones is flipped. */
typedef struct {
    xk_kernel kernel;     /* first */
    int32_t value, index; /* where they begin */
    int32_t width;        /* bytes of the index */
    int32_t padded;       /* whether there are other bytes */
    uint64_t flip;
} xk_located;

static inline uint64_t xk_index(const xk_located *k, const char *record)
{
    const char *p = record + k->index;
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (k->width) {
    case 1: return memcpy(&one, p, 1), one ^ k->flip;
    case 2: return memcpy(&two, p, 2), two ^ k->flip;
    case 4: return memcpy(&four, p, 4), four ^ k->flip;
    default: return memcpy(&eight, p, 8), eight ^ k->flip;
    }
}

static inline void xk_put_index(const xk_located *k, char *record, uint64_t index)
{
    char *p = record + k->index;
    uint64_t eight = index ^ k->flip;
    uint8_t one = (uint8_t)eight;
    uint16_t two = (uint16_t)eight;
    uint32_t four = (uint32_t)eight;
    switch (k->width) {
    case 1: memcpy(p, &one, 1); break;
    case 2: memcpy(p, &two, 2); break;
    case 4: memcpy(p, &four, 4); break;
    default: memcpy(p, &eight, 8);
    }
}

/* Of values neither of which is before the other: NaN is before all others, and of zeros the
 * negative one is before (MIN) or behind (MAX) the positive one. */
#define XK_RANK_INT(a, negative) 0
#define XK_RANK_FLOAT(a, negative) ((a) != (a) ? 0 : (signbit(a) ? 0 : 1) == (negative) ? 2 : 1)
#define XK_AS_IT_IS(a) (a)
#define XK_TRUTH(a) ((a) != 0)

#define XK_LOCATED(OP, X, T, PUT, GET, BEFORE, RANK, NEGATIVE) \
    static inline T xk_value_##OP##_##X(const xk_located *k, const char *record) \
    { \
        T v; \
        memcpy(&v, record + k->value, sizeof v); \
        return GET(v); \
    } \
    static inline void xk_record_##OP##_##X(const xk_located *k, char *record, T v, uint64_t i) \
    { \
        T clean; \
        xk_put_##PUT(&clean, v); \
        if (k->padded) memset(record, 0, (size_t)k->kernel.size); \
        memcpy(record + k->value, &clean, sizeof clean); \
        xk_put_index(k, record, i); \
    } \
    /* (v, i) or the record that follows it */ \
    static inline void xk_join_##OP##_##X(const xk_located *k, T *v, uint64_t *i, \
                                          const char *record) \
    { \
        T w = xk_value_##OP##_##X(k, record); \
        if (*v BEFORE w) return; \
        uint64_t j = xk_index(k, record); \
        if (!(w BEFORE *v)) { \
            int here = RANK(*v, NEGATIVE), there = RANK(w, NEGATIVE); \
            if (here != there ? here < there : *i <= j) return; \
        } \
        *v = w, *i = j; \
    } \
    static void xk_combine_##OP##_##X(const xk_kernel *kernel, void *out, const void *a, \
                                      const void *b, int64_t n) \
    { \
        const xk_located *k = (const xk_located *)kernel; \
        const ptrdiff_t size = kernel->size; \
        char *o = out; \
        const char *x = a, *y = b; \
        for (int64_t m = 0; m < n; m++, o += size, x += size, y += size) { \
            T v = xk_value_##OP##_##X(k, x); \
            uint64_t i = xk_index(k, x); \
            xk_join_##OP##_##X(k, &v, &i, y); \
            xk_record_##OP##_##X(k, o, v, i); \
        } \
    } \
    static void xk_fold_##OP##_##X(const xk_kernel *kernel, void *out, const void *from, int64_t n) \
    { \
        const xk_located *k = (const xk_located *)kernel; \
        const char *x = from; \
        T v = xk_value_##OP##_##X(k, x); \
        uint64_t i = xk_index(k, x); \
        for (int64_t m = 1; m < n; m++) \
            xk_join_##OP##_##X(k, &v, &i, x += kernel->size); \
        xk_record_##OP##_##X(k, out, v, i); \
    } \
    static void xk_scan_##OP##_##X(const xk_kernel *kernel, void *dst, const void *src, int64_t n, \
                                   const void *carry, int32_t reverse) \
    { \
        const xk_located *k = (const xk_located *)kernel; \
        const ptrdiff_t size = kernel->size, step = reverse ? -size : size; \
        if (n < 1) \
            return; \
        const char *x = (const char *)src + (reverse ? (n - 1) * size : 0); \
        char *o = (char *)dst + (x - (const char *)src); \
        const char *first = carry ? (const char *)carry : x; \
        T v = xk_value_##OP##_##X(k, first); \
        uint64_t i = xk_index(k, first); \
        if (!carry) { /* of one record alone: itself, as where it is copied */ \
            if (o != x) memcpy(o, x, (size_t)size); \
            n--, x += step, o += step; \
        } \
        for (; n > 0; n--, x += step, o += step) { \
            xk_join_##OP##_##X(k, &v, &i, x); \
            xk_record_##OP##_##X(k, o, v, i); \
        } \
    } \
    static void xk_fill_##OP##_##X(const xk_kernel *kernel, void *out, int64_t n) \
    { \
        const xk_located *k = (const xk_located *)kernel; \
        for (char *o = out; n > 0; n--, o += kernel->size) \
            xk_record_##OP##_##X(k, o, XK_##OP##_ID(X, T), UINT64_MAX); \
    }

#define XK_LOCATED_BOTH(X, T, PUT, GET, RANK) \
    XK_LOCATED(MINLOC, X, T, PUT, GET, <, RANK, 1) \
    XK_LOCATED(MAXLOC, X, T, PUT, GET, >, RANK, 0)
XK_LOCATED_BOTH(u8, uint8_t, u8, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(u16, uint16_t, u16, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(u32, uint32_t, u32, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(u64, uint64_t, u64, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(i8, int8_t, i8, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(i16, int16_t, i16, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(i32, int32_t, i32, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(i64, int64_t, i64, XK_AS_IT_IS, XK_RANK_INT)
XK_LOCATED_BOTH(f32, float, f32, XK_AS_IT_IS, XK_RANK_FLOAT)
XK_LOCATED_BOTH(f64, double, f64, XK_AS_IT_IS, XK_RANK_FLOAT)
XK_LOCATED_BOTH(ld, long double, ld, XK_AS_IT_IS, XK_RANK_FLOAT)
XK_LOCATED_BOTH(bool, uint8_t, u8, XK_TRUTH, XK_RANK_INT)

#define XK_LOCATED_ENTRY(OP, X, T) \
    {sizeof(T), xk_combine_##OP##_##X, xk_fold_##OP##_##X, xk_scan_##OP##_##X, xk_fill_##OP##_##X}
#define XK_LOCATED_ENTRIES(X, T) \
    {XK_LOCATED_ENTRY(MINLOC, X, T), XK_LOCATED_ENTRY(MAXLOC, X, T)}
static const xk_kernel xk_located_table[XK_TYPES][2] = {
    [XK_I8] = XK_LOCATED_ENTRIES(i8, int8_t),   [XK_U8] = XK_LOCATED_ENTRIES(u8, uint8_t),
    [XK_I16] = XK_LOCATED_ENTRIES(i16, int16_t), [XK_U16] = XK_LOCATED_ENTRIES(u16, uint16_t),
    [XK_I32] = XK_LOCATED_ENTRIES(i32, int32_t), [XK_U32] = XK_LOCATED_ENTRIES(u32, uint32_t),
    [XK_I64] = XK_LOCATED_ENTRIES(i64, int64_t), [XK_U64] = XK_LOCATED_ENTRIES(u64, uint64_t),
    [XK_F32] = XK_LOCATED_ENTRIES(f32, float),   [XK_F64] = XK_LOCATED_ENTRIES(f64, double),
    [XK_LD] = XK_LOCATED_ENTRIES(ld, long double), [XK_BOOL] = XK_LOCATED_ENTRIES(bool, uint8_t),
};

/* Make the kernel for records of `size` bytes with a value of a type at `value` and an integer of
 * `width` bytes at `index`.  Returns 0 where there is none. */
static inline int xk_locate(xk_located *k, int32_t type, int32_t op, int32_t size, int32_t value,
                            int32_t index, int32_t width, int32_t has_sign)
{
    if (type < 0 || type >= XK_TYPES || op < XK_MINLOC || op > XK_MAXLOC || width < 1 ||
        width > 8 || (width & (width - 1)))
        return 0;
    const xk_kernel *found = &xk_located_table[type][op - XK_MINLOC];
    if (value < 0 || value + found->size > size || index < 0 || index + width > size)
        return 0;
    k->value = value, k->index = index, k->width = width;
    k->padded = found->size + width != size;
    k->flip = has_sign ? (uint64_t)1 << (8 * width - 1) : 0;
    k->kernel = *found;
    k->kernel.size = size;
    return 1;
}

#endif
