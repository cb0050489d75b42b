# Calls of the drop-in communicator that repeat an earlier one: see xupc/mpi/repeated.py.

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.long cimport PyLong_AsSsize_t
from cpython.tuple cimport PyTuple_CheckExact


cdef class Method
cdef class ReturnsRequest


cdef extern from *:
    """
    #define XD_LIST_ITEMS(list) (((PyListObject *)(list))->ob_item)

    /* Instances of a type are called by a function whose address is at `offset` in them. They are
       functions of a class: `a.f(b)` calls f(a, b) without an object for `a.f`. */
    static void xd_callable(PyObject *object, Py_ssize_t offset) {
        PyTypeObject *type = (PyTypeObject *)object;
        type->tp_vectorcall_offset = offset;
        type->tp_call = PyVectorcall_Call;
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
        PyType_Modified(type);
    }
    """
    PyObject **XD_LIST_ITEMS(list)
    void xd_callable(object, Py_ssize_t)
    Py_ssize_t xd_offset_in_method "XC_OFFSET" (Method)
    Py_ssize_t xd_offset_in_request "XC_OFFSET" (ReturnsRequest)


cdef enum:
    PLACES = 128
    METHODS = 64
    MOST_ARGUMENTS = 4
    SCRATCH_LIMIT = 1 << 24  # bytes that a team keeps

cdef enum xd_scratch:
    NO_SCRATCH
    SCRATCH_RESULT  # the result is not the program's: it is dropped
    SCRATCH_OPERANDS  # the operands are a copy of a part of the program's result


cdef struct xd_message:
    char *data  # NULL: no array
    Py_ssize_t nbytes  # of the array; of a known call with a count: of the message
    Py_ssize_t count  # as given; -1: the whole array
    PyObject *dtype  # of the array; NULL: another buffer
    PyObject *given  # the datatype; without an array: None or IN_PLACE
    bint writeable


cdef struct xd_call:
    xd_message dst, src
    PyObject *op  # as given; NULL: the default
    Py_ssize_t root
    Py_ssize_t counts, count  # how many counts, each of them


cdef struct xd_views:
    # What a call keeps of its arguments. Of buffers that are no arrays, the owners must not resize
    # them meanwhile. Arrays in lists are not kept by the arguments: the program may change a list.
    bint arrays_only
    int count, listed
    Py_buffer view[2]
    PyObject *array[2]


cdef inline void _keep_nothing(xd_views *views, bint arrays_only) noexcept:
    views.arrays_only = arrays_only
    views.count = views.listed = 0


cdef inline void _release(xd_views *views) noexcept:
    while views.count:
        views.count -= 1
        PyBuffer_Release(&views.view[views.count])
    while views.listed:
        views.listed -= 1
        Py_DECREF(<object>views.array[views.listed])


cdef PyObject *_in_place = NULL
cdef object _error_for = None
cdef object _xupc_error = None
cdef list _method_names = []
from types import MethodType


cdef class Slots  # of _object_calls.pxi


def set_repeated(in_place, error_for, xupc_error):
    """Set mpi4py's IN_PLACE, and what returns the error to raise in place of another, or None.

    `xupc_error`: the class of the library's errors.
    """
    global _in_place, _error_for, _xupc_error
    _error_for = error_for, in_place  # keeps both
    _xupc_error = xupc_error
    _in_place = <PyObject *>in_place


cdef bint _array(object array, xd_message *m) noexcept:
    """Take a contiguous array; False if it is another object."""
    if not cnp.PyArray_CheckExact(array):
        return False
    cdef int flags = cnp.PyArray_FLAGS(<cnp.ndarray>array)
    if not flags & cnp.NPY_ARRAY_C_CONTIGUOUS:
        return False
    m.data = cnp.PyArray_BYTES(<cnp.ndarray>array)
    m.dtype = _descr(<cnp.ndarray>array)
    m.nbytes = _elements(<cnp.ndarray>array) * cnp.PyArray_ITEMSIZE(<cnp.ndarray>array)
    m.writeable = flags & cnp.NPY_ARRAY_WRITEABLE != 0
    return True


cdef bint _buffer(object given, xd_message *m, xd_views *views) noexcept:
    """Take any contiguous buffer; False if it is another object, or only arrays are taken."""
    cdef Py_buffer *view
    if views.arrays_only or views.count == 2 or not PyObject_CheckBuffer(given):
        return False
    view = &views.view[views.count]
    try:
        PyObject_GetBuffer(given, view, PyBUF_SIMPLE)
    except Exception:
        return False
    views.count += 1
    m.data, m.nbytes, m.writeable = <char *>view.buf, view.len, not view.readonly
    return m.data != NULL


cdef bint _message(PyObject *described, xd_message *m, xd_views *views) noexcept:
    """Take a message as a program describes it; False if it is not of a form known here."""
    cdef PyObject **items
    cdef Py_ssize_t n
    cdef bint listed
    cdef object given = <object>described
    if _array(given, m):
        return True
    listed = PyList_CheckExact(given)
    if listed:
        items, n = XD_LIST_ITEMS(given), PyList_GET_SIZE(given)
    elif PyTuple_CheckExact(given):
        items, n = XU_ITEMS(given), PyTuple_GET_SIZE(given)
    else:
        m.given = described
        return given is None or described == _in_place
    if not 2 <= n <= 3:
        return False
    m.given = items[n - 1]
    if n == 3 and not (_number(items[1], &m.count) and m.count >= 0):
        return False
    if _array(<object>items[0], m):
        if listed:
            views.array[views.listed] = items[0]
            Py_INCREF(<object>items[0])
            views.listed += 1
        return True
    given = <object>items[0]  # which may change the list as it gives its buffer
    return _buffer(given, m, views)


cdef bint _number(PyObject *given, Py_ssize_t *number) noexcept:
    """Take an exact int that fits; False for anything else."""
    if not PyLong_CheckExact(<object>given):
        return False
    try:
        number[0] = PyLong_AsSsize_t(<object>given)
    except OverflowError:
        return False
    return True


cdef bint _equal_counts(PyObject *given, xd_call *c) noexcept:
    """Take a list of equal counts; False for anything else."""
    cdef Py_ssize_t i, each
    if given == NULL or not PyList_CheckExact(<object>given):
        return False
    c.counts = PyList_GET_SIZE(<object>given)
    for i in range(c.counts):
        if not _number(XD_LIST_ITEMS(<object>given)[i], &each) or (i and each != c.count):
            return False
        c.count = each
    return True


cdef inline uint64_t _mixed(uint64_t h, xd_message *m) noexcept:
    h = h * 31 + <uint64_t>(m.nbytes if m.count < 0 else m.count)
    h = h * 31 + (<uintptr_t>m.given >> 4)
    return h * 31 + (<uintptr_t>m.dtype >> 4)


cdef inline bint _same(xd_message *m, xd_message *known) noexcept:
    return (m.given == known.given and m.dtype == known.dtype and m.count == known.count
            and (m.nbytes == known.nbytes or (m.count >= 0 and m.nbytes > known.nbytes)))


cdef class Form:
    """How a method of mpi4py takes its arguments.

    `messages`: how many come first, the result last; -1: no call is kept. `op`, `root`: whether
    these follow; `counts`: whether counts of blocks come before them. `ignored`: the message that
    only the root has: "src", "dst" or "". `obj`: the name of an object that comes first, in place
    of messages. `root_at`: the place of the root, also where no call is kept; -1: none. `sizes`:
    which message has one size on all threads (`journal`).
    """

    cdef readonly str name
    cdef readonly int messages
    cdef int number, ignored
    cdef int op, root, counts  # places among the arguments; -1: no argument
    cdef tuple names  # of the arguments
    cdef int arguments
    cdef readonly bint moves_object
    cdef int root_at
    cdef xj_sizes sizes

    def __cinit__(self, str name, int messages, bint op=False, bint root=False, str ignored="",
                  bint counts=False, str obj="", int root_at=-1, str sizes=""):
        cdef list names = [[], ["buf"], ["sendbuf", "recvbuf"]][max(messages, 0)]
        self.moves_object = bool(obj)
        if obj:
            names.append(obj)
        self.op = self.root = self.counts = -1
        if counts:
            self.counts = len(names)
            names.append("recvcounts")
        if op:
            self.op = len(names)
            names.append("op")
        if root:
            self.root = len(names)
            names.append("root")
        self.names, self.arguments = tuple(names), len(names)
        if name not in _method_names:
            if len(_method_names) == METHODS:
                raise ValueError(f"expected at most {METHODS} methods, got {name} too")
            _method_names.append(name)
        self.name = name
        self.number = _method_names.index(name)
        self.messages = messages
        self.root_at = root_at
        self.sizes = <xj_sizes>("", "first", "either").index(sizes)
        self.ignored = ("", "src", "dst").index(ignored)

    cdef bint take(self, PyObject **items, Py_ssize_t n, PyObject *keywords, int rank,
                   xd_call *c, xd_views *views) noexcept:
        """Take the arguments of a call; False if they are not of a form known here.

        `n` are positional; the values of `keywords`, a tuple of names or NULL, follow. `views`: to
        be released in any case.
        """
        cdef PyObject *given[MOST_ARGUMENTS]
        cdef int k
        memset(c, 0, sizeof(xd_call))
        c.dst.count = c.src.count = -1
        if self.messages < 0 or n > self.arguments:
            return False
        for k in range(self.arguments):
            given[k] = items[k] if k < n else NULL
        if keywords != NULL and not self.take_named(items + n, keywords, given):
            return False
        for k in range(self.messages):
            if given[k] == NULL:
                return False
        if self.op >= 0:
            c.op = given[self.op]
        if self.root >= 0 and given[self.root] != NULL and not _number(given[self.root], &c.root):
            return False
        if self.counts >= 0 and not _equal_counts(given[self.counts], c):
            return False
        if self.messages == 0:
            return True
        if not (self.ignored == 2 and c.root != rank):
            if not _message(given[self.messages - 1], &c.dst, views):
                return False
        if self.messages == 2 and not (self.ignored == 1 and c.root != rank):
            return _message(given[0], &c.src, views)
        return True

    cdef bint take_object(self, PyObject **items, Py_ssize_t n, PyObject *keywords,
                          PyObject **given) noexcept:
        """Take the arguments of a call that moves an object; NULL for those not given."""
        cdef int k
        if n > self.arguments:
            return False
        for k in range(self.arguments):
            given[k] = items[k] if k < n else NULL
        if keywords != NULL and not self.take_named(items + n, keywords, given):
            return False
        return given[0] != NULL

    cdef bint take_named(self, PyObject **values, PyObject *keywords, PyObject **given) noexcept:
        """Take arguments by their names, which are one object each: Python interns names."""
        cdef PyObject **names = XU_ITEMS(<object>keywords)
        cdef PyObject **known = XU_ITEMS(self.names)
        cdef Py_ssize_t i
        cdef int k
        for i in range(PyTuple_GET_SIZE(<object>keywords)):
            for k in range(self.arguments):
                if names[i] == known[k]:
                    break
            else:
                return False
            if given[k] != NULL:
                return False
            given[k] = values[i]
        return True

    cdef bint take_all(self, tuple args, dict keywords, int rank, xd_call *c, bint posted=False):
        """Take the arguments of a call of Python's, which is not `posted` if it has a buffer."""
        cdef tuple items = args + tuple(keywords.values())
        cdef tuple names = tuple(keywords)
        cdef xd_views views
        _keep_nothing(&views, posted)
        taken = self.take(XU_ITEMS(items), len(args), <PyObject *>names, rank, c, &views)
        _release(&views)
        return taken

    cdef inline uint64_t place(self, xd_call *c) noexcept:
        cdef uint64_t h = <uint64_t>self.number * 31 + <uint64_t>c.root + <uint64_t>c.count
        h = _mixed(_mixed(h * 31 + (<uintptr_t>c.op >> 4), &c.dst), &c.src)
        return (h ^ (h >> 7) ^ (h >> 14)) % PLACES


cdef class _Counter:
    """The calls of one method that went one way, for one reason."""

    cdef uint64_t calls, nbytes


cdef class _Repeated:
    """A call that was decided about, and the instance that carried it; None if MPI did."""

    cdef xd_call call
    cdef Form form
    cdef list keep  # what `call` points to
    cdef Instance instance
    cdef _Counter counter
    cdef bint one_address
    cdef xd_scratch scratch
    cdef list posted  # for calls in the background; None for others
    cdef RequestCall free
    cdef Py_ssize_t room_from, room_bytes  # the part of the result that is copied, or replaced
    cdef bint has_dst, has_src
    cdef Py_ssize_t dst_bytes, src_bytes
    cdef uintptr_t alignment
    cdef uint64_t generation
    cdef uint64_t counted
    cdef xj_noted noted  # of a call that MPI carries, for the journal
    cdef bint is_noted

    def __cinit__(self):
        self.alignment = 1

    cdef bint is_for(self, Form form, xd_call *c) noexcept:
        """Return whether another call is the same but for addresses."""
        return (self.form.number == form.number and self.generation == _generation
                and c.op == self.call.op and c.root == self.call.root
                and c.count == self.call.count and c.counts == self.call.counts
                and _same(&c.dst, &self.call.dst) and _same(&c.src, &self.call.src))

    cdef bint holds(self, xd_call *c):
        """Return whether another call is the same but for addresses, and bind it to them."""
        cdef char *dst = c.dst.data
        cdef char *src = c.src.data
        if (self.generation != _generation or c.op != self.call.op or c.root != self.call.root
                or c.count != self.call.count or c.counts != self.call.counts
                or not _same(&c.dst, &self.call.dst) or not _same(&c.src, &self.call.src)):
            return False
        if self.posted is not None:
            if not self.find_free():
                return False
        elif self.instance is None:  # mpi4py looks at all else
            return True
        elif _held(self.instance.team):
            return False
        elif self.instance.team.t.unsynced >= RUN_AHEAD:
            _catch_up(self.instance)  # before the binding: Python code runs in it
            if self.generation != _generation or _held(self.instance.team):
                return False
        if self.form.messages == 0:
            if self.posted is None:
                self.instance.team.t.value = 0
            return True
        if ((<uintptr_t>dst | <uintptr_t>src) % self.alignment
                or (self.has_dst and dst != NULL and not c.dst.writeable)):
            return False
        if self.scratch != NO_SCRATCH:
            return self.bind_scratch(dst, src)
        if self.one_address:
            if dst != src:
                return False
        elif self.has_dst and self.has_src:
            if dst < src + self.src_bytes and src < dst + self.dst_bytes:
                return False
        return self.bind(dst if self.has_dst else NULL, src if self.has_src else NULL)

    cdef bint find_free(self) noexcept:
        """Take an instance that no call in the background uses."""
        cdef RequestCall call
        for call in self.posted:
            if call.kept is None and xg_free_again(&call.c):
                self.free, self.instance = call, call.instance
                return not (self.instance.team.blocked or _calls_out or _engaged
                            or (_run_count and _conflict(self.instance.team)))
        return False

    cdef bint bind(self, char *dst, char *src):
        self.instance.i.base[0] = dst
        self.instance.i.base[1] = src
        if self.instance.net is not None:
            self.instance.rebind(<uintptr_t>dst, <uintptr_t>src)
        return True

    cdef bint bind_scratch(self, char *dst, char *src):
        cdef char *room = cnp.PyArray_BYTES(<cnp.ndarray>self.instance.team.room)
        if self.scratch == SCRATCH_RESULT:
            return self.bind(room, src)
        memcpy(room, dst + self.room_from, self.room_bytes)
        return self.bind(dst, room)

    cdef bint work_on_scratch(self, dst, src, Py_ssize_t begin):
        """Note the arrays of a call that works with one that is not the program's."""
        cdef xd_message *program = &self.call.dst
        self.has_dst, self.room_from = True, begin
        self.alignment = src.dtype.alignment
        if self.scratch == SCRATCH_OPERANDS:
            self.room_bytes = src.nbytes
            self.dst_bytes = max(dst.nbytes, begin + self.room_bytes)
            if cnp.PyArray_BYTES(<cnp.ndarray>dst) != program.data or self.call.src.data != NULL:
                return False
        else:
            self.room_bytes = dst.nbytes
            self.has_src, self.src_bytes = True, src.nbytes
            self.dst_bytes = dst.nbytes if program.data != NULL else 0
            if (cnp.PyArray_BYTES(<cnp.ndarray>src) != self.call.src.data
                    or self.src_bytes > self.call.src.nbytes):
                return False
            if self.call.src.count >= 0:
                self.call.src.nbytes = self.src_bytes
        if self.room_bytes > SCRATCH_LIMIT or self.dst_bytes > program.nbytes:
            return False
        if program.count >= 0:
            program.nbytes = self.dst_bytes
        return True

    cdef bint work_on(self, dst, src):
        """Note the arrays that the call works on; False if they are not the program's memory."""
        self.has_dst, self.has_src = dst is not None, src is not None
        if self.has_dst:
            self.dst_bytes = dst.nbytes
            self.alignment = dst.dtype.alignment
            if (cnp.PyArray_BYTES(<cnp.ndarray>dst) != self.call.dst.data
                    or self.dst_bytes > self.call.dst.nbytes):
                return False
            if self.call.dst.count >= 0:
                self.call.dst.nbytes = self.dst_bytes
        elif self.call.dst.data != NULL:
            return False
        if self.has_src:
            self.src_bytes = src.nbytes
            self.alignment = src.dtype.alignment
            if (cnp.PyArray_BYTES(<cnp.ndarray>src) != self.call.src.data
                    or self.src_bytes > self.call.src.nbytes):
                return False
            if self.call.src.count >= 0:
                self.call.src.nbytes = self.src_bytes
        elif self.call.src.data != NULL:
            self.one_address = True
            if self.call.src.data != self.call.dst.data or self.dst_bytes > self.call.src.nbytes:
                return False
            if self.call.src.count >= 0:
                self.call.src.nbytes = self.dst_bytes
        return True


cdef class CallTable(Journal):
    """The calls on a communicator that can be repeated, and counts of those that were.

    A communicator has one team, so a call is found by what the program gave alone. `left` is the
    number of calls that go to MPI before a team is tried; -1: all calls go there.
    """

    cdef list known
    cdef list slots_by_root  # of each method: a list of `Slots` or None
    cdef int rank
    cdef public long left
    cdef uint64_t generation
    cdef dict counters
    cdef uint64_t given[METHODS]
    cdef PyObject *always[METHODS]  # counters, in `counters`, of methods that MPI carries

    def __cinit__(self):
        self.counters = {}

    def forget(self):
        """Keep no call."""
        self.known = self.slots_by_root = None

    def keep_slots(self, Form form, Py_ssize_t root, Py_ssize_t size, Slots slots):
        """Keep the slots of a method that moves objects, of one of `size` roots."""
        if self.slots_by_root is None:
            self.slots_by_root = [None] * METHODS
        if self.slots_by_root[form.number] is None:
            self.slots_by_root[form.number] = [None] * size
        self.slots_by_root[form.number][root] = slots
        slots.counter = self.counter(form.name, "xupc", "")

    cdef inline Slots slots_for(self, Form form, PyObject **args, Py_ssize_t n,
                                PyObject *keywords, PyObject **items):
        """Return the slots for a call, whose arguments are then in `items`, or None."""
        cdef Py_ssize_t root = 0
        cdef list roots
        if self.slots_by_root is None or not form.take_object(args, n, keywords, items):
            return None
        if form.root >= 0 and items[form.root] != NULL and not _number(items[form.root], &root):
            return None
        roots = self.slots_by_root[form.number]
        return None if roots is None or not 0 <= root < len(roots) else roots[root]

    def take_counts(self):
        """Return (method, carrier, reason, calls, bytes) since the last request.

        These are calls that repeated an earlier one.
        """
        cdef _Counter counter
        found = []
        for key, counter in self.counters.items():
            if counter.calls:
                found.append((*key, counter.calls, counter.nbytes))
                counter.calls = counter.nbytes = 0
        return found

    def take_given(self):
        """Return (method, calls) of those given to MPI unseen since the last request."""
        cdef int k
        found = []
        for k in range(len(_method_names)):
            if self.given[k]:
                found.append((_method_names[k], self.given[k]))
                self.given[k] = 0
        return found

    cdef give(self, Method method, PyObject **args, size_t given, PyObject *keywords):
        """Have MPI carry a call; one that raises an error before it meets others is not counted."""
        cdef int number = method.form.number
        cdef PyObject *result
        self.begin_in_mpi(method.form, args + 1, PyVectorcall_NARGS(given) - 1, keywords)
        result = xj_call(method.run, args, given, keywords, self, method.form.name, False)
        if result == NULL:
            self.failed(method.form, method.met, args, given, keywords)
        self.given[number] += 1
        if self.left > 0:
            self.left -= 1
        return xj_owned(result)

    cdef inline carry_by_mpi(self, Method method, PyObject **args, size_t given,
                             PyObject *keywords):
        """Have MPI carry a call after the warm-up."""
        self.begin_in_mpi(method.form, args + 1, PyVectorcall_NARGS(given) - 1, keywords)
        return self.begun(method, args, given, keywords)

    cdef inline carry_again(self, _Repeated e, Method method, PyObject **args, size_t given,
                            PyObject *keywords):
        """Have MPI carry a call that is equal to an earlier one: the journal has the same for it."""
        cdef xj_noted *noted = &self.past[self.calls % PAST]
        if e.is_noted:
            noted[0] = e.noted
            self.calls += 1
        else:
            self.begin_in_mpi(method.form, args + 1, PyVectorcall_NARGS(given) - 1, keywords)
            e.noted, e.is_noted = noted[0], True
        return self.begun(method, args, given, keywords)

    cdef inline begun(self, Method method, PyObject **args, size_t given, PyObject *keywords):
        """Have MPI carry a call that the journal has."""
        cdef PyObject *result
        result = xj_call(method.run, args, given, keywords, self, method.form.name, False)
        if result == NULL:
            self.failed(method.form, method.met, args, given, keywords)
        return xj_owned(result)

    cdef int failed(self, Form form, met, PyObject **args, size_t given,
                    PyObject *keywords) except -1:
        """Raise the error of a call that MPI carried, after a correction of the counts."""
        try:
            xj_owned(NULL)
        except BaseException as error:
            if not met(form.name, error):
                self.calls -= 1
                (<object>self).failed_alone(form.name, error)
            else:
                if self.left > 0:
                    self.left -= 1
                (<object>self).failed_in_mpi(form.name, error, _tuple_of(
                    args, PyVectorcall_NARGS(given)), _dict_of(args, given, keywords))
            raise
        return 0

    def by_mpi(self, Form form, run, met, tuple args, dict keywords):
        """Have MPI carry a call that Python has decided about."""
        cdef tuple items = args + tuple(keywords.values())
        cdef tuple names = tuple(keywords)
        cdef PyObject *result
        cdef PyObject *keys = <PyObject *>names if names else NULL
        self.begin_in_mpi(form, XU_ITEMS(items) + 1, len(args) - 1, keys)
        result = xj_call(run, XU_ITEMS(items), len(args), keys, self, form.name,
                         PyFunction_Check(run))
        if result == NULL:
            self.failed(form, met, XU_ITEMS(items), len(args), keys)
        return xj_owned(result)

    cdef inline _Repeated find(self, Form form, PyObject **items, Py_ssize_t n,
                               PyObject *keywords, xd_views *views):
        """Return an earlier call that this one repeats, bound to its arrays, or None."""
        cdef xd_call c
        cdef _Repeated e
        cdef Py_ssize_t place
        cdef list known = self.known
        if known is None or not form.take(items, n, keywords, self.rank, &c, views):
            return None
        place = form.place(&c)
        e = <_Repeated>known[place]
        if e is None or e.form.number != form.number or not e.holds(&c):
            e = <_Repeated>known[place ^ 1]
            if e is None or e.form.number != form.number or not e.holds(&c):
                return None
        return e

    def give_method(self, Form form, str why):
        """Have MPI carry all calls of a method."""
        cdef _Counter counter = self.counter(form.name, "MPI", why)
        self.always[form.number] = <PyObject *>counter

    cdef _Counter counter(self, str method, str carrier, str why):
        key = method, carrier, why
        found = self.counters.get(key)
        if found is None:
            found = self.counters[key] = _Counter()
        return found

    def learn_given(self, Form form, tuple args, dict keywords, int rank, uint64_t nbytes,
                    str why):
        """Keep a call that goes to MPI for a reason that all threads have."""
        cdef _Repeated e = _Repeated()
        if form.take_all(args, keywords, rank, &e.call):
            e.counter = self.counter(form.name, "MPI", why)
            self.add(e, form, rank, nbytes)

    def learn_posted(self, Form form, tuple args, dict keywords, int rank, uint64_t nbytes,
                     RequestCall call, dst, src):
        """Keep the instance of a call in the background that works on the program's own arrays.

        Several such calls, each with its instance, may be under way.
        """
        cdef _Repeated e = _Repeated()
        cdef _Repeated known
        cdef Py_ssize_t place
        if not form.take_all(args, keywords, rank, &e.call, True) or not e.work_on(dst, src):
            return
        if self.known is not None and self.generation == _generation:
            place = form.place(&e.call)
            for k in (place, place ^ 1):
                known = <_Repeated>self.known[k]
                if known is not None and known.posted is not None and known.is_for(form, &e.call):
                    if len(known.posted) < MOST_IN_FLIGHT:
                        known.posted.append(call)
                    return
        e.posted = [call]
        e.instance = call.instance
        e.counter = self.counter(form.name, "xupc", "")
        self.add(e, form, rank, nbytes)

    def learn(self, Form form, tuple args, dict keywords, int rank, uint64_t nbytes, call,
              tuple ready, scratch=None):
        """Keep a call that `call(*ready)` carried, unless it worked on copies.

        For a method without messages `call` is the instance itself. `scratch` describes an array
        that is not the program's: ("result", 0), or ("operands", begin of their copy in the
        result).
        """
        cdef _Repeated e = _Repeated()
        cdef _Arrays arrays
        if not form.take_all(args, keywords, rank, &e.call):
            return
        if form.messages:
            if not isinstance(call, CachedArrays):
                return
            arrays = (<CachedArrays>call)._find(XU_ITEMS(ready), len(ready), False)
            if arrays is None:
                return
            dst = None if arrays.dst < 0 else ready[arrays.dst]
            src = None if arrays.src < 0 else ready[arrays.src]
            if scratch is None:
                known = e.work_on(dst, src)
            else:
                e.scratch = SCRATCH_RESULT if scratch[0] == "result" else SCRATCH_OPERANDS
                known = e.work_on_scratch(dst, src, scratch[1])
            if not known:
                return
            e.instance = arrays.instance
            if e.scratch != NO_SCRATCH:
                e.instance.team.make_room(e.room_bytes)
        elif isinstance(call, Instance):
            e.instance = call
        else:
            return
        e.counter = self.counter(form.name, "xupc", "")
        self.add(e, form, rank, nbytes)

    cdef int add(self, _Repeated e, Form form, int rank, uint64_t nbytes) except -1:
        """Keep a call at its first place, and what was there at its second one."""
        cdef Py_ssize_t place
        e.form, e.counted, e.generation = form, nbytes, _generation
        e.keep = _kept(&e.call)
        place = form.place(&e.call)
        if self.known is None or self.generation != _generation:
            self.known = [None] * PLACES
        self.generation, self.rank = _generation, rank
        self.known[place ^ 1] = self.known[place]
        self.known[place] = e
        return 0


cdef list _kept(xd_call *c):
    """Return the objects that a call points to, counted as references."""
    cdef list kept = []
    cdef PyObject *each[5]
    cdef int k
    each[0], each[1], each[2], each[3] = c.dst.dtype, c.dst.given, c.src.dtype, c.src.given
    each[4] = c.op
    for k in range(5):
        if each[k] != NULL:
            kept.append(<object>each[k])
    return kept


cdef class Method:
    """A method that runs repeated calls here, and gives all others to `slow`.

    Calls that MPI carries go to mpi4py's method `run`. If one raises an error,
    `met(name, error)` returns whether it met the other threads.
    """

    cdef void *called
    cdef Form form
    cdef object run, met, slow
    cdef dict __dict__  # name and description

    def __cinit__(self, Form form, run, met, slow, bint returns_request=False):
        self.called = <void *>_called_for_request if returns_request else <void *>_called
        self.form, self.run, self.met, self.slow = form, run, met, slow

    def __get__(self, on, kind):
        return self if on is None else MethodType(self, on)


cdef _called(PyObject *called, PyObject **args, size_t given, PyObject *keywords):
    cdef Method method = <Method>called
    cdef Py_ssize_t n = PyVectorcall_NARGS(given)
    cdef CallTable table
    cdef _Repeated e
    cdef xd_views views
    if n == 0:
        return PyObject_Vectorcall(method.run, args, given, keywords)
    record = (<object>args[0])._record
    if isinstance(record, CallTable):
        table = <CallTable>record
        if table.left:
            return table.give(method, args, given, keywords)
        if table.always[method.form.number] != NULL:
            (<_Counter>table.always[method.form.number]).calls += 1
            return table.carry_by_mpi(method, args, given, keywords)
        if method.form.moves_object:
            return _call_on_object(method, table, args, given, keywords)
        _keep_nothing(&views, False)
        try:
            e = table.find(method.form, args + 1, n - 1, keywords, &views)
            if e is not None:
                e.counter.calls += 1
                e.counter.nbytes += e.counted
                if e.instance is None:
                    return table.carry_again(e, method, args, given, keywords)
                table.begin(method.form.number)
                _carry(e.instance, table)
                _ended()
                return None
        finally:
            _release(&views)
    return _slowly(method, args, given, keywords)


cdef inline void _ended() noexcept:
    """Enter MPI after a call that took its place, as MPI's own call does."""
    if xp_call_ends(&_progress):
        with nogil:
            xp_catch_up(&_progress)


cdef _slowly(Method method, PyObject **args, size_t given, PyObject *keywords):
    """Make a call that Python decides about."""
    xr_allow(XR_DEPTH)
    try:
        return PyObject_Vectorcall(method.slow, args, given, keywords)
    finally:
        xr_allow(-XR_DEPTH)


cdef _called_for_request(PyObject *called, PyObject **args, size_t given, PyObject *keywords):
    """Make a call that returns a request."""
    cdef Method method = <Method>called
    cdef Py_ssize_t n = PyVectorcall_NARGS(given)
    cdef CallTable table
    cdef _Repeated e
    cdef xd_views views
    cdef list kept
    cdef Py_ssize_t k
    if n == 0:
        return PyObject_Vectorcall(method.run, args, given, keywords)
    record = (<object>args[0])._record
    if not isinstance(record, CallTable):
        return _slowly(method, args, given, keywords)
    table = <CallTable>record
    if table.left:
        return awaited_request(
            table.give(method, args, given, keywords))
    if table.always[method.form.number] != NULL:
        (<_Counter>table.always[method.form.number]).calls += 1
        return awaited_request(table.carry_by_mpi(method, args, given, keywords))
    _reap()
    # made before the call is bound: objects that are made may start the collector
    kept = [_tuple_of(args, n), _dict_of(args, given, keywords), None, None]
    _keep_nothing(&views, True)
    try:
        e = table.find(method.form, args + 1, n - 1, keywords, &views)
        if e is not None:
            e.counter.calls += 1
            e.counter.nbytes += e.counted
            if e.posted is None:
                return awaited_request(table.carry_again(e, method, args, given, keywords))
            table.begin(method.form.number)
            for k in range(views.listed):
                kept[2 + k] = <object>views.array[k]
            return _start(e.free, kept, None)
    finally:
        _release(&views)
    return _slowly(method, args, given, keywords)


xd_callable(Method, xd_offset_in_method(<Method>None))


cdef class ReturnsRequest:
    """A method of mpi4py whose request can be awaited."""

    cdef void *called
    cdef object run
    cdef dict __dict__  # name and description

    def __cinit__(self, run):
        self.called = <void *>_called_awaited
        self.run = run

    def __get__(self, on, kind):
        return self if on is None else MethodType(self, on)


cdef _called_awaited(PyObject *called, PyObject **args, size_t given, PyObject *keywords):
    return awaited_request(
        PyObject_Vectorcall((<ReturnsRequest>called).run, args, given, keywords))


xd_callable(ReturnsRequest, xd_offset_in_request(<ReturnsRequest>None))


cdef int _carry(Instance instance, CallTable table) except -1:
    """Run a call; `table`: that of its communicator, or None if the caller notes errors."""
    try:
        _go(instance)
    except Exception as error:
        other = _error_for[0](error)
        if table is not None:
            table.failed_by_xupc(other is not None, instance.team.since)
        if other is None:
            raise
        raise other from error
    return 0
