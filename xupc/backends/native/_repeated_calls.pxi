# Calls of the drop-in communicator that repeat an earlier one: see xupc/mpi/repeated.py.

from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.long cimport PyLong_AsSsize_t
from cpython.tuple cimport PyTuple_CheckExact


cdef extern from *:
    """
    #define XD_LIST_ITEMS(list) (((PyListObject *)(list))->ob_item)
    """
    PyObject **XD_LIST_ITEMS(list)


cdef enum:
    PLACES = 128
    METHODS = 16


cdef struct xd_message:
    char *data  # NULL: no array
    Py_ssize_t nbytes  # of the array; of a known call with a count: of the message
    Py_ssize_t count  # as given; -1: the whole array
    PyObject *dtype  # of the array
    PyObject *given  # the datatype; without an array: None or IN_PLACE
    bint writeable


cdef struct xd_call:
    xd_message dst, src
    PyObject *op  # as given; NULL: the default
    Py_ssize_t root


cdef PyObject *_in_place = NULL
cdef object _error_for = None
cdef list _method_names = []


def set_repeated(in_place, error_for):
    """Set mpi4py's IN_PLACE, and what returns the error to raise in place of another, or None."""
    global _in_place, _error_for
    _error_for = error_for, in_place  # keeps both
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


cdef bint _message(PyObject *described, xd_message *m) noexcept:
    """Take a message as a program describes it; False if it is not of a form known here."""
    cdef PyObject **items
    cdef Py_ssize_t n
    cdef object given = <object>described
    if _array(given, m):
        return True
    if PyList_CheckExact(given):
        items, n = XD_LIST_ITEMS(given), PyList_GET_SIZE(given)
    elif PyTuple_CheckExact(given):
        items, n = XU_ITEMS(given), PyTuple_GET_SIZE(given)
    else:
        m.given = described
        return given is None or described == _in_place
    if not 2 <= n <= 3 or not _array(<object>items[0], m):
        return False
    m.given = items[n - 1]
    return n == 2 or (_number(items[1], &m.count) and m.count >= 0)


cdef bint _number(PyObject *given, Py_ssize_t *number) noexcept:
    """Take an exact int that fits; False for anything else."""
    if not PyLong_CheckExact(<object>given):
        return False
    try:
        number[0] = PyLong_AsSsize_t(<object>given)
    except OverflowError:
        return False
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

    `messages`: how many come first, the result last. `op`, `root`: whether these follow.
    `ignored`: the message that only the root has: "src", "dst" or "".
    """

    cdef readonly str name
    cdef readonly int messages
    cdef int number, ignored
    cdef bint op, root

    def __cinit__(self, str name, int messages, bint op=False, bint root=False, str ignored=""):
        if name not in _method_names:
            if len(_method_names) == METHODS:
                raise ValueError(f"expected at most {METHODS} methods, got {name} too")
            _method_names.append(name)
        self.name = name
        self.number = _method_names.index(name)
        self.messages = messages
        self.op, self.root = op, root
        self.ignored = ("", "src", "dst").index(ignored)

    cdef bint take(self, tuple args, dict keywords, int rank, xd_call *c) noexcept:
        """Take the arguments of a call; False if they are not of a form known here."""
        cdef PyObject **items = XU_ITEMS(args)
        cdef Py_ssize_t n = PyTuple_GET_SIZE(args)
        cdef Py_ssize_t k = self.messages, named = len(keywords)
        cdef PyObject *root = NULL
        memset(c, 0, sizeof(xd_call))
        c.dst.count = c.src.count = -1
        if n < k:
            return False
        if self.op:
            k += _next(items, n, k, keywords, "op", &c.op, &named)
        if self.root:
            k += _next(items, n, k, keywords, "root", &root, &named)
            if root != NULL and not _number(root, &c.root):
                return False
        if n > k or named:
            return False
        if self.messages == 0:
            return True
        if not (self.ignored == 2 and c.root != rank):
            if not _message(items[self.messages - 1], &c.dst):
                return False
        if self.messages == 2 and not (self.ignored == 1 and c.root != rank):
            return _message(items[0], &c.src)
        return True

    cdef inline uint64_t place(self, xd_call *c) noexcept:
        cdef uint64_t h = <uint64_t>self.number * 31 + <uint64_t>c.root
        h = _mixed(_mixed(h * 31 + (<uintptr_t>c.op >> 4), &c.dst), &c.src)
        return (h ^ (h >> 7) ^ (h >> 14)) % PLACES


cdef inline int _next(PyObject **items, Py_ssize_t n, Py_ssize_t k, dict keywords, str name,
                      PyObject **found, Py_ssize_t *named) noexcept:
    """Find an optional argument; return 1 if it is a positional one."""
    if n > k:
        found[0] = items[k]
        return 1
    if named[0]:
        found[0] = PyDict_GetItemWithError(keywords, name)
        if found[0] != NULL:
            named[0] -= 1
    return 0


cdef class _Repeated:
    """A call that went to xupc, and the instance that carried it."""

    cdef xd_call call
    cdef Form form
    cdef list keep  # what `call` points to
    cdef Instance instance
    cdef bint in_place, one_address
    cdef bint has_dst, has_src
    cdef Py_ssize_t dst_bytes, src_bytes
    cdef uintptr_t alignment
    cdef uint64_t generation
    cdef uint64_t counted

    def __cinit__(self):
        self.alignment = 1

    cdef bint holds(self, xd_call *c):
        """Return whether another call is the same but for addresses, and bind it to them."""
        cdef char *dst = c.dst.data
        cdef char *src = c.src.data
        if (self.generation != _generation or c.op != self.call.op or c.root != self.call.root
                or not _same(&c.dst, &self.call.dst) or not _same(&c.src, &self.call.src)
                or _held(self.instance.team)):
            return False
        if self.form.messages == 0:
            self.instance.team.t.value = 0
            return True
        if ((<uintptr_t>dst | <uintptr_t>src) % self.alignment
                or (self.has_dst and not c.dst.writeable)):
            return False
        if self.one_address:
            if dst != src:
                return False
        elif self.has_dst and self.has_src:
            if dst < src + self.src_bytes and src < dst + self.dst_bytes:
                return False
        return self.bind(dst if self.has_dst else NULL, src if self.has_src else NULL)

    cdef bint bind(self, char *dst, char *src):
        self.instance.i.base[0] = dst
        self.instance.i.base[1] = src
        if self.instance.net is not None:
            self.instance.rebind(<uintptr_t>dst, <uintptr_t>src)
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


cdef class CallTable:
    """The calls on a communicator that can be repeated, and counts of those that were.

    A communicator has one team, so a call is found by what the program gave alone.
    """

    cdef list known
    cdef int rank
    cdef uint64_t generation
    cdef uint64_t calls[METHODS]
    cdef uint64_t nbytes[METHODS]

    def forget(self):
        """Keep no call."""
        self.known = None

    def take_counts(self):
        """Return (method, calls, bytes) of the repeated calls since the last request."""
        cdef int k
        found = []
        for k in range(len(_method_names)):
            if self.calls[k]:
                found.append((_method_names[k], self.calls[k], self.nbytes[k]))
                self.calls[k] = self.nbytes[k] = 0
        return found

    cdef inline _Repeated find(self, Form form, tuple args, dict keywords):
        """Return an earlier call that this one repeats, bound to its arrays, or None."""
        cdef xd_call c
        cdef _Repeated e
        cdef Py_ssize_t place
        if self.known is None or not form.take(args, keywords, self.rank, &c):
            return None
        place = form.place(&c)
        e = <_Repeated>self.known[place]
        if e is None or e.form.number != form.number or not e.holds(&c):
            e = <_Repeated>self.known[place ^ 1]
            if e is None or e.form.number != form.number or not e.holds(&c):
                return None
        return e

    def learn(self, Form form, tuple args, dict keywords, int rank, uint64_t nbytes, call,
              tuple ready):
        """Keep a call that `call(*ready)` carried, unless it worked on copies.

        For a method without messages `call` is the instance itself.
        """
        cdef _Repeated e = _Repeated()
        cdef _Arrays arrays
        if not form.take(args, keywords, rank, &e.call):
            return
        if form.messages:
            if not isinstance(call, CachedArrays):
                return
            arrays = (<CachedArrays>call)._find(ready)
            if arrays is None or not e.work_on(
                    None if arrays.dst < 0 else ready[arrays.dst],
                    None if arrays.src < 0 else ready[arrays.src]):
                return
            e.instance = arrays.instance
        elif isinstance(call, Instance):
            e.instance = call
        else:
            return
        e.form, e.counted, e.generation = form, nbytes, _generation
        e.keep = _kept(&e.call)
        self.add(e, rank)

    cdef int add(self, _Repeated e, int rank) except -1:
        """Keep a call at its first place, and what was there at its second one."""
        cdef Py_ssize_t place = e.form.place(&e.call)
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


def repeating(Form form, slow):
    """Return a method that runs repeated calls here, and gives all others to `slow`."""

    def method(self, *arguments, **keywords):
        cdef _Repeated e
        record = self._record
        if isinstance(record, CallTable):
            e = (<CallTable>record).find(form, arguments, keywords)
            if e is not None:
                (<CallTable>record).calls[form.number] += 1
                (<CallTable>record).nbytes[form.number] += e.counted
                _carry(e.instance)
                return None
        return slow(self, *arguments, **keywords)

    return method


cdef int _carry(Instance instance) except -1:
    try:
        if instance.team.t.unsynced >= RUN_AHEAD:
            _catch_up(instance)
        instance.execute()
    except Exception as error:
        other = _error_for[0](error)
        if other is None:
            raise
        raise other from error
    return 0
