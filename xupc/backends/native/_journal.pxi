# The collective calls on a communicator in their order, and calls inside MPI: see xupc/mpi/journal.py.

cdef extern from *:
    """
    /* A call that is inside MPI. Its arguments belong to its caller. Read and written under the GIL. */
    typedef struct xj_inside {
        struct xj_inside *before;
        PyObject *journal, *name, **args, *keywords;
        size_t given;
    } xj_inside;
    static xj_inside *xj_now;

    /* Calls of other Python threads may end in another order than they began. */
    static void xj_leave_late(xj_inside *here) {
        xj_inside **link = &xj_now;
        while (*link && *link != here)
            link = &(*link)->before;
        if (*link)
            *link = here->before;
    }

    static PyObject *xj_call(PyObject *run, PyObject **args, size_t given, PyObject *keywords,
                             PyObject *journal, PyObject *name) {
        xj_inside here = {xj_now, journal, name, args, keywords, given};
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
    """
    ctypedef struct xj_inside:
        xj_inside *before
        PyObject *journal
        PyObject *name
        PyObject **args
        PyObject *keywords
        size_t given
    xj_inside *xj_now
    PyObject *xj_call(object, PyObject **, size_t, PyObject *, object, object)
    object xj_owned(PyObject *)  # NULL: raises the error that is set


cdef enum:
    PAST = 16  # calls of a journal that are kept
    SHOWN = 8  # arguments


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
    cdef unsigned char past[PAST]
    cdef readonly uint64_t epoch
    cdef readonly bint unsure

    cdef inline void begin(self, int number, int by_xupc) noexcept:
        self.past[self.calls % PAST] = <unsigned char>(number * 2 + by_xupc)
        self.calls += 1

    def begin_by_xupc(self, Form form):
        """Note a call that xupc carries."""
        self.begin(form.number, 1)

    def failed_by_xupc(self, bint differ, uint64_t since):
        """Note an error of a call that xupc carries; `differ`: all threads raise it.

        `since`: the team's operation from which they go on.
        """
        if differ:
            self.epoch, self.calls = since, 0
        else:
            self.unsure = True

    def last_calls(self):
        """Return how many calls there were, and the last ones: (method, whether by xupc)."""
        cdef uint64_t k, first = self.calls - min(self.calls, <uint64_t>PAST)
        cdef list found = []
        for k in range(first, self.calls):
            of = self.past[k % PAST]
            found.append((_method_names[of >> 1], bool(of & 1)))
        return self.calls, found


def inside_mpi():
    """Return (journal, method, arguments, names of the last ones) of the call inside MPI.

    None if there is none, or if there are several.
    """
    cdef xj_inside *now = xj_now
    cdef PyObject *held[SHOWN]
    cdef Py_ssize_t k, n, named
    if now == NULL or now.before != NULL:
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
