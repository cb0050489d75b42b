# Calls of the drop-in communicator that move objects: see xupc/mpi/slots.py, xupc/mpi/objects.py.

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.dict cimport PyDict_CheckExact, PyDict_Next


cdef extern from *:
    """
    typedef struct { PyObject *a, *b; int found; } xo_search;

    static int xo_look(PyObject *object, void *of) {
        xo_search *search = (xo_search *)of;
        search->found |= (object == search->a) | (object == search->b) << 1;
        return 0;
    }

    /* Return whether an object refers to two others, as its traverse function says. */
    static int xo_refers(PyObject *object, PyObject *a, PyObject *b) {
        xo_search search = {a, b, 0};
        traverseproc traverse = Py_TYPE(object)->tp_traverse;
        if (traverse != NULL)
            traverse(object, xo_look, &search);
        return search.found == 3;
    }
    """
    bint xo_refers(PyObject *, PyObject *, PyObject *) noexcept


cdef enum:
    SLOT_HEAD = 24  # bytes: the longest message, all and what is beside them, this one's number
    SLOT_LEAST = 512  # bytes
    MOST_LOOKED_AT = 64  # parts of an object
    LONG_BYTES = 1 << 16  # they may stay out of the pickle

cdef enum xo_kind:
    OF_ONE  # the result is one object
    LISTED  # a list of objects, None on a thread that gets none
    COMBINED  # what an operation makes of them

cdef object _pickle = None  # mpi4py's
cdef object _dumps = None, _loads = None  # those that it starts with
cdef object _in_band = None, _parcel = None, _parcel_of = None
cdef object _sum = None


def set_objects(pickle, dumps, loads, parcel, parcel_of, default_op):
    """Set mpi4py's pickle object, the functions that it starts with, and those of `pickles`.

    `parcel(object)` and `parcel_of(pickle, buffers, object)` return a `Parcel`. `default_op` is
    that of reductions.
    """
    global _pickle, _dumps, _loads, _in_band, _parcel, _parcel_of, _sum
    _pickle, _dumps, _loads, _parcel, _parcel_of = pickle, dumps, loads, parcel, parcel_of
    _in_band, _sum = pickle.dumps, default_op


cdef bint _standard() noexcept:
    """Return whether a program has left the functions of the pickle object as they are."""
    return _pickle is not None and xo_refers(
        <PyObject *>_pickle, <PyObject *>_dumps, <PyObject *>_loads)


cdef bint _alone(object x) noexcept:
    """Return whether an object is of a type that has no parts and cannot be changed."""
    kind = type(x)
    return (kind is int or kind is float or kind is str or kind is bytes or kind is bool
            or x is None or kind is complex)


cdef bint _without_buffers(object x, int *left):
    """Return whether an object is certainly without large buffers; look at so many parts."""
    cdef Py_ssize_t k, place = 0
    cdef PyObject *name
    cdef PyObject *value
    if _alone(x):
        return True
    if not left[0]:
        return False
    left[0] -= 1
    if PyList_CheckExact(x):
        for k in range(PyList_GET_SIZE(x)):
            if not _without_buffers(<object>XD_LIST_ITEMS(x)[k], left):
                return False
        return True
    if PyTuple_CheckExact(x):
        for k in range(PyTuple_GET_SIZE(x)):
            if not _without_buffers(<object>XU_ITEMS(x)[k], left):
                return False
        return True
    if PyDict_CheckExact(x):
        while PyDict_Next(x, &place, &name, &value):
            if not _without_buffers(<object>value, left):
                return False
        return True
    if cnp.PyArray_CheckExact(x):
        return (_elements(<cnp.ndarray>x) * cnp.PyArray_ITEMSIZE(<cnp.ndarray>x)
                < _pickle.THRESHOLD)
    return False


cdef object _pickled(object x):
    """Return the pickle of an object; a `Parcel` if it may have large buffers."""
    cdef int left = MOST_LOOKED_AT
    if PyBytes_CheckExact(x) and PyBytes_GET_SIZE(x) > LONG_BYTES:
        return _parcel(x)
    if not _without_buffers(x, &left):
        return _parcel(x)
    data = _in_band(x)
    return data if PyBytes_CheckExact(data) else _parcel(x)


cdef Py_ssize_t _slot_bytes(Py_ssize_t longest, Py_ssize_t limit) noexcept:
    """Return what `slots.slot_bytes` does."""
    cdef Py_ssize_t wanted = longest + SLOT_HEAD, size = SLOT_LEAST
    if wanted <= SLOT_LEAST or wanted > limit:
        return SLOT_LEAST
    while size < wanted:
        if wanted <= size + size // 2:
            return size + size // 2
        size *= 2
    return size


cdef class _Laid:
    """Slots of one size: memory, and the plan that moves them."""

    cdef CachedPlan plan
    cdef object out, into
    cdef char *sent
    cdef char *got
    cdef Py_ssize_t nbytes, sends, gets

    def __cinit__(self, Py_ssize_t nbytes, CachedPlan plan, out, into):
        self.nbytes, self.plan, self.out, self.into = nbytes, plan, out, into
        if out is not None:
            self.sent, self.sends = cnp.PyArray_BYTES(<cnp.ndarray>out), out.size // nbytes
        self.got, self.gets = cnp.PyArray_BYTES(<cnp.ndarray>into), into.size // nbytes

    cdef void put(self, Py_ssize_t k, Py_ssize_t most, Py_ssize_t total, Py_ssize_t number,
                  const char *data, Py_ssize_t nbytes) noexcept:
        cdef char *slot = self.sent + k * self.nbytes
        cdef int64_t *head = <int64_t *>slot
        head[0], head[1], head[2] = most, total, number
        memcpy(slot + SLOT_HEAD, data, min(nbytes, self.nbytes - SLOT_HEAD))

    cdef inline int64_t *head(self, Py_ssize_t k) noexcept:
        return <int64_t *>(self.got + k * self.nbytes)


cdef class Slots:
    """The slots of a method on a communicator, and the plans that move them.

    A subclass has them made: `laid(nbytes)` returns (plan, slots to send or None, slots to
    receive).
    """

    cdef Team team_core
    cdef dict made
    cdef _Laid now
    cdef Py_ssize_t limit, last, before
    cdef uint64_t since
    # of objects
    cdef _Counter counter
    cdef Py_ssize_t me, needed
    cdef bint listed, beside
    cdef xo_kind result
    cdef object combine
    cdef dict __dict__

    def attach(self, Team team, Py_ssize_t limit):
        """Set the team of the core, and the most bytes of a slot."""
        self.team_core, self.limit = team, limit
        self.since = team.since
        self.made = {}

    def for_objects(self, Py_ssize_t me, Py_ssize_t needed, bint listed, bint beside, str result,
                    combine):
        """Set what is done with the objects.

        `me`: the slot with this thread's own one; `needed`: how many of them, from the first one
        on, this thread needs. `listed`: the argument has one for each thread. `beside`: large
        buffers may stay out of the pickles. `result`: "one",
        "listed", or "combined" by `combine(objects, operation)`.
        """
        self.me, self.needed, self.listed, self.combine = me, needed, listed, combine
        self.beside = beside
        self.result = {"one": OF_ONE, "listed": LISTED, "combined": COMBINED}[result]

    def exchange(self, messages, Py_ssize_t beside=0):
        """Send messages, and return those for this thread: `slots.Received`.

        `beside`: bytes that belong to the messages, but are in none of them.
        """
        cdef Py_ssize_t number, most = 0, total = beside
        for _, number in messages:
            most, total = max(most, number >> 1), total + (number >> 1)
        self.prepare()
        for k, (data, number) in enumerate(messages):
            self.fill(k, most, total, number, data)
        _carry(self.now.plan.instance, None)
        return self.received()

    cdef int fill(self, Py_ssize_t k, Py_ssize_t most, Py_ssize_t total, Py_ssize_t number,
                  data) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self.now.put(k, most, total, number, <const char *>view.buf, min(view.len, number >> 1))
        PyBuffer_Release(&view)
        return 0

    cdef int prepare(self) except -1:
        """Choose the slots of this call; raise an error if it cannot begin.

        From here until the call runs no other Python thread may run: the slots are its memory.
        """
        cdef Py_ssize_t nbytes
        cdef CachedPlan plan
        cdef Instance instance
        if self.team_core.since != self.since:  # after a mismatch, which some threads have not seen
            self.since = self.team_core.since
            self.last = self.before = 0
        nbytes = _slot_bytes(max(self.last, self.before), self.limit)
        if self.now is None or self.now.nbytes != nbytes:
            self.now = self.made.get(nbytes)
            if self.now is None:
                self.now = self.made[nbytes] = _Laid(nbytes, *self.laid(nbytes))
        plan = self.now.plan
        if plan.instance is None or plan.generation != _generation or _held(self.team_core):
            plan.enter()
        instance = plan.instance
        if self.team_core.t.unsynced >= RUN_AHEAD:
            _catch_up(instance)
        if _run_count and _conflict(self.team_core):
            instance.owner.job.callers.check(instance.record.name, instance.owner)
        return 0

    cdef inline Py_ssize_t longest(self) noexcept:
        """Return the length of the longest message, and note it for the next call."""
        cdef Py_ssize_t k, most = 0
        for k in range(self.now.gets):
            most = max(most, self.now.head(k)[0])
        self.before, self.last = self.last, most
        return most

    cdef tuple received(self):
        cdef Py_ssize_t k, n, total = 0, most = self.longest(), room = self.now.nbytes - SLOT_HEAD
        cdef list numbers = [], bodies = []
        for k in range(self.now.gets):
            total += self.now.head(k)[1]
            numbers.append(self.now.head(k)[2])
            n = self.now.head(k)[2] >> 1
            bodies.append(self.body(k) if n <= room else None)
        return most <= room, most, total, numbers, bodies

    cdef inline bytes body(self, Py_ssize_t k):
        return PyBytes_FromStringAndSize(
            <char *>self.now.head(k) + SLOT_HEAD, self.now.head(k)[2] >> 1)

    # -- objects ---------------------------------------------------------------------------
    cdef list pickles(self, object x):
        """Return what this thread sends for the argument of a call, each by `_pickled`."""
        cdef list made = []
        if not self.now.sends:
            return made
        if not self.listed:
            made.append(_pickled(x) if self.beside else _in_band(x))
            return made
        for each in tuple(x):  # to pickle one of them may change the list
            made.append(_in_band(each))
        return made

    cdef bint takes(self, object x):
        """Return whether the argument of a call is of a form that is known here."""
        if self.now is None:
            return False
        if not self.listed or not self.now.sends:
            return True
        return (PyList_CheckExact(x) or PyTuple_CheckExact(x)) and len(x) == self.now.sends

    cdef object call(self, comm, x, op, list mine):
        """Make a call with this thread's pickles; return what the method returns."""
        cdef Py_ssize_t k, most = 0, total = 0, number, n
        cdef bint beside = False
        for data in mine:
            number = _number_of(data)
            most, total = max(most, number >> 1), total + (number >> 1)
            if not PyBytes_CheckExact(data):
                total += data.beside
        self.prepare()
        for k, data in enumerate(mine):
            if PyBytes_CheckExact(data):
                n = PyBytes_GET_SIZE(data)
                self.now.put(k, most, total, 2 * n, PyBytes_AS_STRING(data), n)
            else:
                self.fill(k, most, total, data.number, data.body)
        _carry(self.now.plan.instance, None)
        for k in range(self.now.gets):
            most = max(most, self.now.head(k)[0])
            beside |= self.now.head(k)[2] & 1
        if beside or most > self.now.nbytes - SLOT_HEAD:
            value = x if not self.listed and _alone(x) else None
            parcels = [_parcel_of(d, (), value) if PyBytes_CheckExact(d) else d for d in mine]
            return self.rest(comm, x, op, parcels, self.received())
        _ended()
        self.before, self.last = self.last, most
        return self.objects(x, op)

    cdef object objects(self, x, op):
        """Return the result of a call from the slots."""
        cdef Py_ssize_t k
        cdef list items = []
        if self.result == OF_ONE:
            return x if self.now.sends and not self.listed and _alone(x) else _loads(self.body(0))
        if not self.needed:
            return None
        for k in range(self.needed):  # all, before an object of the program's can make a call
            items.append(self.body(k))
        for k in range(self.needed):
            if k == self.me and not self.listed and _alone(x):
                items[k] = x
            else:
                items[k] = _loads(items[k])
        return items if self.result == LISTED else self.combine(items, op)


cdef inline Py_ssize_t _number_of(data):
    return 2 * PyBytes_GET_SIZE(data) if PyBytes_CheckExact(data) else data.number


cdef _call_on_object(Method method, CallTable table, PyObject **args, size_t given,
                     PyObject *keywords):
    """Make a call that moves objects and that xupc carries."""
    cdef Form form = method.form
    cdef PyObject *items[MOST_ARGUMENTS]
    cdef Slots slots = table.slots_for(form, args + 1, PyVectorcall_NARGS(given) - 1, keywords,
                                       items)
    cdef list mine
    if slots is None or not slots.takes(<object>items[0]) or not _standard():
        return _slowly(method, args, given, keywords)
    op = _sum
    if form.op >= 0 and items[form.op] != NULL:
        op = <object>items[form.op]
    xr_allow(XR_DEPTH)
    try:
        mine = slots.pickles(<object>items[0])  # an error is mpi4py's; an object may raise it once
        slots.counter.calls += 1
        table.begin(form.number)
        try:
            return slots.call(<object>args[0], <object>items[0], op, mine)
        except Exception as error:
            if isinstance(error, _xupc_error):
                differ = _error_for[0](error) is not None
                table.failed_by_xupc(differ, slots.team_core.since)
            raise
    finally:
        xr_allow(-XR_DEPTH)
