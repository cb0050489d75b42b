/* exit_status.h: the exit status of the interpreter, for the atexit handlers.
 *
 * Python calls no hook for an uncaught SystemExit, and atexit handlers cannot read its value. The
 * code that ends the interpreter reads the attribute `code` once, while no Python function runs. This
 * header notes that access. A SystemExit that is caught, or that ends a Python thread, causes no such
 * access.
 */
#ifndef XUPC_EXITS_H
#define XUPC_EXITS_H

#include <Python.h>

static PyObject *xe_code; /* NULL: no exit so far */
static getattrofunc xe_plain;

static PyObject *xe_getattro(PyObject *self, PyObject *name) {
    PyObject *found = xe_plain(self, name);
    if (found && !PyEval_GetFrame() && PyUnicode_Check(name) &&
        !PyUnicode_CompareWithASCIIString(name, "code")) {
        Py_INCREF(found);
        Py_XSETREF(xe_code, found);
    }
    return found;
}

#if PY_VERSION_HEX < 0x030C0000
/* sys.exit may leave only its argument, without a SystemExit object whose `code` is read: make
 * one. */
static _PyCFunctionFast xe_exit;

static PyObject *xe_sys_exit(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    PyObject *type, *value, *traceback, *out = xe_exit(module, args, n);
    if (out || !PyErr_Occurred()) return out;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyErr_Restore(type, value, traceback);
    return NULL;
}

static void xe_normalize(void) {
    PyObject *function = PySys_GetObject("exit");
    if (!function || !PyCFunction_CheckExact(function)) return; /* it has been replaced */
    PyMethodDef *method = ((PyCFunctionObject *)function)->m_ml;
    if (method->ml_flags != METH_FASTCALL) return;
    xe_exit = (_PyCFunctionFast)(void (*)(void))method->ml_meth;
    method->ml_meth = (PyCFunction)(void (*)(void))xe_sys_exit;
}
#else
static void xe_normalize(void) {}
#endif

/* From now on; any number of times. */
static void xe_note_exits(void) {
    PyTypeObject *type = (PyTypeObject *)PyExc_SystemExit;
    if (xe_plain) return;
    xe_plain = type->tp_getattro;
    type->tp_getattro = xe_getattro;
    xe_normalize();
}

#endif
