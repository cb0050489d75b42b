# The collective calls on a communicator in their order, and calls inside MPI: see xupc/mpi/journal.py.

from cpython.object cimport PyTypeObject, Py_TYPE
from sys import intern

from numpy import dtype as numpy_dtype

cdef extern from *:
    """
    /* A call that is inside MPI. Its arguments belong to its caller. Read and written under the GIL. */
    typedef struct xj_inside {
        struct xj_inside *before;
        PyObject *journal, *name, **args, *keywords;
        size_t given;
        PyThreadState *thread;
        void *frame; /* of Python's that was the innermost one; NULL if Python code makes the wait */
    } xj_inside;
    static xj_inside *xj_now;

    static inline void *xj_frame(PyThreadState *thread) {
    #if PY_VERSION_HEX < 0x030D0000
        return thread->cframe->current_frame;
    #else
        return thread->current_frame;
    #endif
    }

    /* Return whether Python code of the program runs inside the call: it pickles an object, or
       combines two. So MPI does not hold the thread, and the call may not have reached MPI. */
    static inline int xj_in_python(xj_inside *here) {
        return here->frame != NULL && xj_frame(here->thread) != here->frame;
    }

    /* Calls of other Python threads may end in another order than they began. */
    static void xj_leave_late(xj_inside *here) {
        xj_inside **link = &xj_now;
        while (*link && *link != here)
            link = &(*link)->before;
        if (*link)
            *link = here->before;
    }

    static PyObject *xj_call(PyObject *run, PyObject **args, size_t given, PyObject *keywords,
                             PyObject *journal, PyObject *name, int in_python) {
        PyThreadState *thread = PyThreadState_Get();
        xj_inside here = {
            xj_now, journal, name, args, keywords, given, thread,
            in_python ? NULL : xj_frame(thread)};
        PyObject *result;
        xj_now = &here;
        result = PyObject_Vectorcall(run, args, given, keywords);
        if (xj_now == &here)
            xj_now = here.before;
        else
            xj_leave_late(&here);
        return result;
    }

    static PyObject *xj_owned(PyObject *result) { return result; }

    /* Return the bytes of an array, -1 for anything else. */
    static inline int64_t xj_bytes(PyObject *given) {
        if (given == NULL || !PyArray_CheckExact(given))
            return -1;
        PyArrayObject *array = (PyArrayObject *)given;
        int64_t n = PyArray_ITEMSIZE(array);
        for (int k = 0; k < PyArray_NDIM(array); k++)
            n *= PyArray_DIMS(array)[k];
        return n;
    }

    static inline int xj_is_int(PyObject *given) { return PyLong_CheckExact(given); }

    /* Return an exact int from 0 on that can be a rank; -1 for any other. */
    static inline int32_t xj_rank(PyObject *number) {
        int beyond;
        long value;
    #if PY_VERSION_HEX < 0x030C0000
        Py_ssize_t digits = Py_SIZE(number);
        if (digits == 0 || digits == 1) /* without a call of Python's */
            return digits ? (int32_t)((PyLongObject *)number)->ob_digit[0] : 0;
    #else
        if (PyUnstable_Long_IsCompact((PyLongObject *)number)) {
            Py_ssize_t small = PyUnstable_Long_CompactValue((PyLongObject *)number);
            return small < 0 || small > INT32_MAX ? -1 : (int32_t)small;
        }
    #endif
        value = PyLong_AsLongAndOverflow(number, &beyond);
        return beyond || value < 0 || value > INT32_MAX ? -1 : (int32_t)value;
    }

    /* Return an argument; NULL if it is not given. The name of an unknown one can be in its place:
       Python keeps one object of most names, and others may be equal. */
    static inline PyObject *xj_argument(Py_ssize_t at, PyObject *name, PyObject **args,
                                        Py_ssize_t n, PyObject *keywords) {
        if (at < n)
            return args[at];
        if (keywords == NULL)
            return NULL;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(keywords); k++) {
            PyObject *each = PyTuple_GET_ITEM(keywords, k);
            if (each == name)
                return args[n + k];
            if (!PyUnicode_CHECK_INTERNED(each))
                return each;
        }
        return NULL;
    }
    """
    ctypedef struct xj_inside:
        xj_inside *before
        PyObject *journal
        PyObject *name
        PyObject **args
        PyObject *keywords
        size_t given
    xj_inside *xj_now
    bint xj_in_python(xj_inside *) noexcept
    PyObject *xj_call(object, PyObject **, size_t, PyObject *, object, object, bint)
    bint PyFunction_Check(object)
    object xj_owned(PyObject *)  # NULL: raises the error that is set
    int32_t xj_rank(PyObject *) noexcept
    int64_t xj_bytes(PyObject *) noexcept
    bint xj_is_int(PyObject *) noexcept
    PyObject *xj_argument(Py_ssize_t, PyObject *, PyObject **, Py_ssize_t, PyObject *) noexcept


cdef enum:
    PAST = 16  # calls of a journal that are kept
    SHOWN = 8  # arguments

cdef enum xj_sizes:
    SIZES_DIFFER
    FIRST_HAS_SIZE  # all threads give a first message of one size
    EITHER_HAS_SIZE  # or, in place, a second one

cdef struct xj_noted:
    int64_t nbytes  # of a message that has one size on all threads; -1: not known
    int32_t root  # -1: none, or not known
    unsigned char of  # twice the number of the method, and 1 if xupc carries the call


cdef str _root_kept = intern("root")
cdef PyObject *_root_name = <PyObject *>_root_kept
cdef tuple _integer_types = (bool, *(numpy_dtype(code).type for code in "bBhHiIlLqQ"))


cdef int32_t _other_rank(object given) noexcept:
    """Return a number from 0 on that is no exact int, but needs no code of the program; else -1."""
    cdef object kind
    for kind in _integer_types:
        if Py_TYPE(given) == <PyTypeObject *>kind:
            try:
                given = int(given)
            except OverflowError:
                return -1
            return xj_rank(<PyObject *>given)
    return -1


cdef inline int32_t _rank_in(PyObject *given) noexcept:
    """Return a root that needs no code of the program; -1 for any other."""
    return xj_rank(given) if xj_is_int(given) else _other_rank(<object>given)


cdef int64_t _size_in(Form form, PyObject **args, Py_ssize_t n, PyObject *keywords) noexcept:
    """Return the bytes of a message that has one size on all threads; -1 if they are not known."""
    cdef PyObject **names = XU_ITEMS(form.names)
    cdef PyObject *first = xj_argument(0, names[0], args, n, keywords)
    cdef int64_t found = xj_bytes(first)
    if (found < 0 and form.sizes == EITHER_HAS_SIZE
            and (first == <PyObject *>None or first == _in_place)):
        return xj_bytes(xj_argument(1, names[1], args, n, keywords))
    return found


cdef class Journal:
    """The collective calls on a communicator, numbered: threads that differ at a number differ.

    Attributes
    ----------
    epoch
        The operation of the team after which all threads went on from a difference: the numbers
        begin again then.
    unsure
        True after an error that may have left the numbers of the threads apart.
    """

    cdef uint64_t calls
    cdef xj_noted past[PAST]
    cdef readonly uint64_t epoch
    cdef readonly bint unsure

    cdef inline void begin(self, int number) noexcept:
        """Note a call that xupc carries."""
        self.past[self.calls % PAST].of = <unsigned char>(number * 2 + 1)
        self.calls += 1

    cdef inline void begin_in_mpi(self, Form form, PyObject **args, Py_ssize_t n,
                                  PyObject *keywords) noexcept:
        """Note a call that MPI carries; `n` positional arguments follow the communicator."""
        cdef xj_noted *noted = &self.past[self.calls % PAST]
        cdef PyObject *root
        noted.of = <unsigned char>(form.number * 2)
        noted.root = -1
        if form.root_at >= 0:
            root = xj_argument(form.root_at, _root_name, args, n, keywords)
            noted.root = 0 if root == NULL else _rank_in(root)
        noted.nbytes = -1
        if form.sizes != SIZES_DIFFER:
            if n > 0:
                noted.nbytes = xj_bytes(args[0])
            if noted.nbytes < 0:
                noted.nbytes = _size_in(form, args, n, keywords)
        self.calls += 1

    def begin_by_xupc(self, Form form):
        """Note a call that xupc carries."""
        self.begin(form.number)

    def failed_by_xupc(self, bint differ, uint64_t since):
        """Note an error of a call that xupc carries; `differ`: all threads raise it.

        `since`: the team's operation from which they go on.
        """
        if differ:
            self.epoch, self.calls = since, 0
        else:
            self.unsure = True

    def last_calls(self):
        """Return how many calls there were, and the last ones: (method, by_xupc, root, nbytes).

        `by_xupc`: whether xupc carried the call. `root` and `nbytes` are those of a call that MPI
        carried, None where they are not known. All threads have to give the same.
        """
        cdef uint64_t k, first = self.calls - min(self.calls, <uint64_t>PAST)
        cdef xj_noted noted
        cdef list found = []
        for k in range(first, self.calls):
            noted = self.past[k % PAST]
            by_xupc = bool(noted.of & 1)
            root = None if by_xupc or noted.root < 0 else noted.root
            nbytes = None if by_xupc or noted.nbytes < 0 else noted.nbytes
            found.append((_method_names[noted.of >> 1], by_xupc, root, nbytes))
        return self.calls, found


def inside_mpi():
    """Return (journal, method, arguments, names of the last ones) of the call inside MPI.

    None if there is none, if there are several, or while Python code of the program runs in it.
    """
    cdef xj_inside *now = xj_now
    cdef PyObject *held[SHOWN]
    cdef Py_ssize_t k, n, named
    if now == NULL or now.before != NULL or xj_in_python(now):
        return None
    # objects that are made here may start the collector, which runs other code: hold all first
    journal, name, keywords = <object>now.journal, <object>now.name, ()
    if now.keywords != NULL:
        keywords = <object>now.keywords
    n = PyVectorcall_NARGS(now.given)
    named = PyTuple_GET_SIZE(keywords)
    if n + named > SHOWN:
        return journal, name, [], ()
    for k in range(n + named):
        held[k] = now.args[k]
        Py_INCREF(<object>held[k])
    arguments = []
    for k in range(n + named):
        arguments.append(<object>held[k])
        Py_DECREF(<object>held[k])
    return journal, name, arguments, keywords
