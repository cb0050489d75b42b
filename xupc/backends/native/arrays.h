/* arrays.h: the head of a numpy array, as numpy's binary interface has it.
 *
 * The same in numpy 1 and 2. Looked at by calls that are repeated with private arrays, where
 * to ask numpy would cost more than the call; the core compares it with what numpy says of
 * an array when it is imported, and does without if they differ.
 */
#ifndef XUPC_ARRAYS_H
#define XUPC_ARRAYS_H

#include <Python.h>

typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions;
    Py_ssize_t *strides;
    PyObject *base;
    PyObject *descr;
    int flags;
} xa_array;

enum { XA_CONTIGUOUS = 0x1, XA_ALIGNED = 0x100, XA_WRITEABLE = 0x400 };

static inline Py_ssize_t xa_size(const xa_array *a) {
    Py_ssize_t n = 1;
    for (int i = 0; i < a->nd; i++) n *= a->dimensions[i];
    return n;
}

#endif
