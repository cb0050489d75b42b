/* arrays.h: the head of a numpy array, as in numpy's binary interface.
 *
 * It is the same in numpy 1 and 2. Repeated calls with private arrays read it, because numpy's
 * functions would cost more than the call. At import the core compares it with the attributes of an
 * array, and does not use it if they differ.
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
