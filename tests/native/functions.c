/* Folds and scans by functions, in every order and of many lengths, for the sanitizers.
 *
 * An element is a run of numbers, first << 32 | last; joining two that are not consecutive gives 0,
 * and 0 joined to anything is 0.  So a result shows whether all elements were joined once and in
 * their order.  The function takes one step, or three of which two change nothing.
 */
#include <stdio.h>

#include "user_functions.h"

static int join(void *context, char *const *data, const intptr_t *n, const intptr_t *s, void *aux)
{
    (void)context, (void)aux;
    for (intptr_t i = 0; i < *n; i++) {
        uint64_t a, b, both = 0;
        memcpy(&a, data[0] + i * s[0], 8);
        memcpy(&b, data[1] + i * s[1], 8);
        if (a && b && (uint32_t)a + 1 == b >> 32) both = (a >> 32) << 32 | (uint32_t)b;
        memcpy(data[2] + i * s[2], &both, 8);
    }
    return 0;
}

static int sum(void *context, char *const *data, const intptr_t *n, const intptr_t *s, void *aux)
{
    (void)context, (void)aux;
    for (intptr_t i = 0; i < *n; i++) {
        uint64_t a, b;
        memcpy(&a, data[0] + i * s[0], 8);
        memcpy(&b, data[1] + i * s[1], 8);
        a += b;
        memcpy(data[2] + i * s[2], &a, 8);
    }
    return 0;
}

static int same(void *context, char *const *data, const intptr_t *n, const intptr_t *s, void *aux)
{
    (void)context, (void)aux;
    for (intptr_t i = 0; i < *n; i++) memcpy(data[1] + i * s[1], data[0] + i * s[0], 8);
    return 0;
}

static uint64_t word(int64_t first, int64_t last)
{
    return (uint64_t)first << 32 | (uint64_t)last;
}

static int check(int right, const char *what, int64_t n, int steps, int way)
{
    if (!right) printf("%s of %lld, %d steps, way %d\n", what, (long long)n, steps, way);
    return !right;
}

static int all(int steps, int64_t n)
{
    int wrong = 0;
    uint64_t *x = malloc((size_t)n * 8), *y = malloc((size_t)n * 8), out;
    xf_function f;
    xf_begin(&f, 8, 1);
    f.steps = steps;
    for (int j = 0; j < 2 && steps > 1; j++)
        f.step[j] = (xf_step){same, NULL, NULL, 1, {j}, 0, 0, 8};
    f.step[steps - 1] = (xf_step){join, NULL, NULL, 2, {0, 1}, 0, 0, 8};
    if (steps > 1) f.step[2].from[0] = 2, f.step[2].from[1] = 3;
    for (int64_t i = 0; i < n; i++) x[i] = word(i + 2, i + 2);
    xf_fold(&f.kernel, &out, x, n);
    wrong += check(out == word(2, n + 1), "fold", n, steps, 0);
    for (int way = 0; way < 8; way++) { /* backward, with a carry, in place */
        int32_t reverse = way & 1;
        uint64_t edge = reverse ? word(n + 2, n + 2) : word(1, 1);
        uint64_t *to = y;
        if (way & 4) memcpy(to, x, (size_t)n * 8);
        xf_scan(&f.kernel, to, way & 4 ? to : x, n, way & 2 ? &edge : NULL, reverse);
        int right = 1;
        for (int64_t i = 0; i < n; i++) {
            int64_t first = reverse ? i + 2 : way & 2 ? 1 : 2;
            int64_t last = reverse ? way & 2 ? n + 2 : n + 1 : i + 2;
            right &= to[i] == word(first, last);
        }
        wrong += check(right, "scan", n, steps, way);
    }
    /* FUNC: each element once */
    uint64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += x[i];
    xf_begin(&f, 8, 0);
    f.steps = 1;
    f.step[0] = (xf_step){sum, NULL, NULL, 2, {0, 1}, 0, 0, 8};
    xf_fold(&f.kernel, &out, x, n);
    wrong += check(out == total, "sum", n, 1, 0);
    free(x), free(y);
    return wrong;
}

int main(void)
{
    const int64_t block = XF_BLOCK / 8;
    const int64_t lengths[] = {
        1, 2, 3, 4, 5, 7, 8, 9, 31, 511, 512, 513, XF_SHORT - 1, XF_SHORT, XF_SHORT + 1,
        2 * XF_SHORT, 2 * XF_SHORT + 1, 5000, block - 1, block, block + 1, block + XF_SHORT + 2,
        2 * block - 1, 2 * block, 2 * block + 1, 3 * block + 4097, 7 * block + 3, 33 * block + 5,
    };
    int wrong = 0, count = sizeof lengths / sizeof *lengths;
    if (!xf_room()) return 2;
    for (int i = 0; i < count; i++) wrong += all(1, lengths[i]) + all(3, lengths[i]);
    printf("%d lengths, %d wrong\n", count, wrong);
    return wrong != 0;
}
