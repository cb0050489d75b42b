# Collectives as callables that find an earlier call of theirs: see xupc/api/call_cache.py.

from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_CheckExact


cdef class CachedCall
cdef class CachedArrays
cdef class CachedPlan


cdef extern from *:
    """
    /* Instances of a type are called by the function whose address is at `offset` in them, without
       a tuple and a dict of the arguments. Before Python 3.12 subclasses do not inherit this: each
       gets it with its first instance, but for one with a `__call__` of its own. */
    static void xc_called_at(PyObject *of, PyObject *base, Py_ssize_t offset) {
        PyTypeObject *type = (PyTypeObject *)of;
        if (PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL) ||
            type->tp_call != ((PyTypeObject *)base)->tp_call)
            return;
        type->tp_vectorcall_offset = offset;
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
        PyType_Modified(type);
    }

    /* Bytes from the begin of an object to its field `called`; the object is not looked at. */
    #define XC_OFFSET(object) ((Py_ssize_t)offsetof(__typeof__(*(object)), called))
    """
    void xc_called_at(object, object, Py_ssize_t)
    Py_ssize_t xc_offset_in_call "XC_OFFSET" (CachedCall)
    Py_ssize_t xc_offset_in_arrays "XC_OFFSET" (CachedArrays)
    Py_ssize_t xc_offset_in_plan "XC_OFFSET" (CachedPlan)


cdef enum:
    MOST_LAID_OUT = 32


cdef inline tuple _with_names(tuple args, dict kwargs):
    """Return the arguments of a call as caches compare them: names and values come last."""
    return args + tuple(kwargs) + tuple(kwargs.values()) if kwargs else args


cdef inline Py_ssize_t _laid_out(PyObject **args, Py_ssize_t n, PyObject *keywords,
                                 PyObject **out) noexcept:
    """Write what `_with_names` returns; return how many these are, -1 if there is no room."""
    cdef Py_ssize_t named = PyTuple_GET_SIZE(<object>keywords)
    if n + 2 * named > MOST_LAID_OUT:
        return -1
    memcpy(out, args, n * sizeof(PyObject *))
    memcpy(out + n, XU_ITEMS(<object>keywords), named * sizeof(PyObject *))
    memcpy(out + n + named, args + n, named * sizeof(PyObject *))
    return n + 2 * named


cdef list _interned(PyObject **args, Py_ssize_t n):
    """Replace strings by the interned ones equal to them; return these, None if all were such.

    ``algorithm=f"..."`` makes a new string for each call. A look-up by identity that finds nothing
    is repeated with these, so a call that is found at once does not pay for it.
    """
    cdef list kept = None
    cdef Py_ssize_t k
    for k in range(n):
        if PyUnicode_CheckExact(<object>args[k]):
            same = intern(<str>args[k])
            if <PyObject *>same != args[k]:
                kept = kept or []
                kept.append(same)
                args[k] = <PyObject *>same
    return kept


cdef dict _with_interned(dict kwargs):
    """Return the keyword arguments with interned strings; None if no string is another one."""
    cdef dict same
    if not kwargs:
        return None
    same = {name: intern(<str>x) if type(x) is str else x for name, x in kwargs.items()}
    return None if all([same[name] is x for name, x in kwargs.items()]) else same


cdef tuple _tuple_of(PyObject **args, Py_ssize_t n):
    """Return the positional arguments of a call."""
    cdef tuple made = PyTuple_New(n)
    cdef Py_ssize_t k
    for k in range(n):
        Py_INCREF(<object>args[k])
        PyTuple_SET_ITEM(made, k, <object>args[k])
    return made


cdef dict _dict_of(PyObject **args, size_t given, PyObject *keywords):
    """Return the keyword arguments of a call."""
    cdef Py_ssize_t k, n = PyVectorcall_NARGS(given)
    cdef dict made = {}
    if keywords != NULL:
        for k in range(PyTuple_GET_SIZE(<object>keywords)):
            made[<object>XU_ITEMS(<object>keywords)[k]] = <object>args[n + k]
    return made


cdef inline uint64_t _mixed_argument(uint64_t h, PyObject *a) noexcept:
    if PyLong_CheckExact(<object>a):
        return h * 31 + <uint64_t>(<uintptr_t>hash(<object>a))
    return h * 31 + (<uintptr_t>a >> 4)


cdef inline uint64_t _bucket(uint64_t h) noexcept:
    return (h ^ (h >> 8) ^ (h >> 16)) % BUCKETS


cdef inline bint _equal_ints(PyObject *a, object known):
    return PyLong_CheckExact(<object>a) and PyLong_CheckExact(known) and <object>a == known


cdef inline int _go(Instance instance) except -1:
    if instance.team.t.unsynced >= RUN_AHEAD:
        _catch_up(instance)
    instance.execute()
    return 0


cdef class _Entry:
    """A call in a cache: its arguments, and the instance bound to them."""

    cdef list args  # as `_arguments` keeps them
    cdef PyObject **given  # they themselves, not counted as references
    cdef Py_ssize_t n
    cdef Instance instance
    cdef uint64_t generation

    def __cinit__(self, tuple args, list table, Py_ssize_t place):
        cdef Py_ssize_t k
        self.n = len(args)
        self.given = <PyObject **>calloc(self.n + 1, sizeof(PyObject *))
        if not self.given:
            raise MemoryError
        for k in range(self.n):
            self.given[k] = <PyObject *>args[k]
        self.args = _arguments(args, table, place)

    def __dealloc__(self):
        free(self.given)

    def keeps(self, argument):
        return any(a is argument for a in self.args)


cdef class CachedCall:
    """A callable with a cache from argument identity to bound instance.

    Arguments match by identity, exact ints by value. Calls with keywords have a table of
    their own, in which the names and then the values follow the positional arguments. A call that
    is in neither may be one of a family (_call_families.pxi).
    """

    cdef void *called
    cdef list table
    cdef list named
    cdef list families
    cdef public bint phased  # families depend on the phases of pointers
    cdef uint64_t generation  # of all entries
    cdef object __weakref__
    cdef dict __dict__

    def __cinit__(self, *args, **kwargs):
        self.called = <void *>_called_by_identity
        xc_called_at(type(self), CachedCall, xc_offset_in_call(self))
        self.table = [None] * BUCKETS
        self.named = [None] * BUCKETS
        self.families = [None] * BUCKETS
        _caches.add(self)

    def empty(self):
        """Keep no call."""
        self.table[:] = self.named[:] = self.families[:] = [None] * BUCKETS

    cdef inline uint64_t _place(self, PyObject **args, Py_ssize_t n) noexcept:
        cdef uint64_t h = 0
        cdef Py_ssize_t k
        for k in range(n):
            h = _mixed_argument(h, args[k])
        return _bucket(h)

    cdef inline Instance _find(self, list table, PyObject **args, Py_ssize_t n):
        """Return the instance of an earlier call with the same arguments, or None."""
        cdef _Entry e
        cdef Py_ssize_t k
        found = table[self._place(args, n)]
        if found is None:
            return None
        e = <_Entry>found
        if e.generation != _generation or e.n != n:
            return None
        for k in range(n):
            if args[k] != e.given[k] and not _equal_ints(args[k], e.args[k]):
                return None
        return None if _held(e.instance.team) else e.instance

    def __call__(self, *args, **kwargs):
        cdef tuple items = args + tuple(kwargs.values())
        cdef tuple names = tuple(kwargs)
        return _called_by_identity(<PyObject *>self, XU_ITEMS(items), len(args), <PyObject *>names)

    def remember(self, tuple args, Instance instance, dict kwargs=None):
        cdef list table
        cdef dict same
        for a in args:
            if not _lasting(a):
                return
        for a in kwargs.values() if kwargs else ():
            if not _lasting(a):
                return
        if self.generation != _generation:  # older entries only keep what was freed alive
            self.empty()
            self.generation = _generation
        table = self.named if kwargs else self.table
        self._add(table, _with_names(args, kwargs), instance)
        same = _with_interned(kwargs)
        if same is not None:
            self._add(table, _with_names(args, same), instance)

    cdef _add(self, list table, tuple args, Instance instance):
        cdef Py_ssize_t place = self._place(XU_ITEMS(args), len(args))
        cdef _Entry e = _Entry(args, table, place)
        e.instance = instance
        e.generation = _generation
        table[place] = e

    def remember_family(self, tuple args, Instance instance, family, dict kwargs=None):
        """Keep a `CallFamily`, whose first call has these arguments; after `remember`."""
        cdef dict same = _with_interned(kwargs)
        if self.generation == _generation:
            _remember_family(self, _with_names(args, kwargs), len(kwargs or ()), instance, family)
            if same is not None:
                _remember_family(self, _with_names(args, same), len(same), instance, family)


cdef _called_by_identity(PyObject *called, PyObject **args, size_t given, PyObject *keywords):
    cdef CachedCall call = <CachedCall>called
    cdef PyObject *laid[MOST_LAID_OUT]
    cdef Py_ssize_t named, n = PyVectorcall_NARGS(given)
    cdef Instance instance = None
    cdef list kept
    if keywords == NULL or not PyTuple_GET_SIZE(<object>keywords):
        instance = call._find(call.table, args, n)
        if instance is None:
            instance = _of_family(call, args, n, 0)
    else:
        n = _laid_out(args, n, keywords, laid)
        if n >= 0:
            named = PyTuple_GET_SIZE(<object>keywords)
            instance = call._find(call.named, laid, n)
            if instance is None:
                instance = _of_family(call, laid, n, named)
            if instance is None:
                kept = _interned(laid + n - named, named)
                if kept is not None:
                    instance = call._find(call.named, laid, n)
                    if instance is None:
                        instance = _of_family(call, laid, n, named)
    if instance is None:
        return call.slow(_tuple_of(args, PyVectorcall_NARGS(given)), _dict_of(args, given, keywords))
    _go(instance)
    return None


cdef inline Py_ssize_t _elements(cnp.ndarray a) noexcept:
    """Return an array's number of elements, without the call that PyArray_SIZE makes."""
    cdef Py_ssize_t n = 1
    cdef int k
    for k in range(cnp.PyArray_NDIM(a)):
        n *= cnp.PyArray_DIMS(a)[k]
    return n


cdef inline PyObject *_descr(cnp.ndarray a) noexcept:
    """Return an array's dtype, not counted as a reference."""
    return <PyObject *>cnp.PyArray_DESCR(a)


cdef class _Arrays(_Entry):
    """A call on arrays of a kind: of an array, `args` has the dtype."""

    cdef Py_ssize_t *sizes  # an array: its elements; else -1
    cdef Py_ssize_t itemsize
    cdef int dst, src  # which arguments they are; -1: none
    cdef bint in_place
    cdef object note

    def __cinit__(self, tuple args, list table, Py_ssize_t place):
        self.sizes = <Py_ssize_t *>calloc(len(args) + 1, sizeof(Py_ssize_t))
        if not self.sizes:
            raise MemoryError

    def __dealloc__(self):
        free(self.sizes)


cdef class CachedArrays:
    """A callable on private arrays with a cache of bound instances.

    Arrays match by dtype and number of elements, and must be contiguous; the instance is
    bound to their memory anew. All else matches as in `CachedCall`. Where more than the instance
    is to be done, a subclass asks for the `note` that it left with it.
    """

    cdef void *called
    cdef list table
    cdef uint64_t generation  # of all entries
    cdef object __weakref__
    cdef dict __dict__

    def __cinit__(self, *args, **kwargs):
        self.called = <void *>_called_on_arrays
        xc_called_at(type(self), CachedArrays, xc_offset_in_arrays(self))
        self.table = [None] * BUCKETS
        _caches.add(self)

    def empty(self):
        """Keep no call."""
        self.table[:] = [None] * BUCKETS

    cdef inline uint64_t _place(self, PyObject **args, Py_ssize_t n) noexcept:
        cdef uint64_t h = 0
        cdef Py_ssize_t k
        for k in range(n):
            if cnp.PyArray_CheckExact(<object>args[k]):
                h = h * 31 + <uint64_t>_elements(<cnp.ndarray>args[k])
                h = h * 31 + (<uintptr_t>_descr(<cnp.ndarray>args[k]) >> 4)
            else:
                h = _mixed_argument(h, args[k])
        return _bucket(h)

    cdef inline _Arrays _find(self, PyObject **args, Py_ssize_t n, bint runs=True):
        """Return an earlier call of the kind, its instance bound to these arrays, or None.

        `runs`: the caller runs the instance now. Its team first meets if that is due: no Python
        code, which could bind the instance anew, runs between the binding and the call.
        """
        cdef _Arrays e
        cdef Py_ssize_t k, size
        cdef int flags
        cdef PyObject *a
        cdef char *dst = NULL
        cdef char *src = NULL
        cdef Py_ssize_t dst_bytes = 0, src_bytes = 0
        found = self.table[self._place(args, n)]
        if found is None:
            return None
        e = <_Arrays>found
        if e.generation != _generation or e.n != n or _held(e.instance.team):
            return None
        for k in range(n):
            a = args[k]
            size = e.sizes[k]
            if size >= 0:
                if not cnp.PyArray_CheckExact(<object>a):
                    return None
                flags = cnp.PyArray_FLAGS(<cnp.ndarray>a)
                if (_descr(<cnp.ndarray>a) != e.given[k] or _elements(<cnp.ndarray>a) != size
                        or not flags & cnp.NPY_ARRAY_C_CONTIGUOUS
                        or not flags & cnp.NPY_ARRAY_ALIGNED):
                    return None
                if k == e.dst:
                    if not flags & cnp.NPY_ARRAY_WRITEABLE:
                        return None
                    dst, dst_bytes = cnp.PyArray_BYTES(<cnp.ndarray>a), size
                elif k == e.src:
                    src, src_bytes = cnp.PyArray_BYTES(<cnp.ndarray>a), size
            elif a != e.given[k] and not _equal_ints(a, e.args[k]):
                return None
        if dst != NULL and src != NULL:
            if e.in_place:
                if dst != src:
                    return None
            else:
                size = e.itemsize
                if dst < src + src_bytes * size and src < dst + dst_bytes * size:
                    return None
        if runs and e.instance.team.t.unsynced >= RUN_AHEAD:
            _catch_up(e.instance)
            if e.generation != _generation or _held(e.instance.team):
                return None
        e.instance.i.base[0] = dst
        e.instance.i.base[1] = src
        if e.instance.net is not None:
            e.instance.rebind(<uintptr_t>dst, <uintptr_t>src)
        return e

    cdef inline _Arrays _find_all(self, tuple args, dict kwargs):
        cdef tuple all_ = _with_names(args, kwargs)
        cdef _Arrays e = self._find(XU_ITEMS(all_), len(all_))
        if e is None:
            kwargs = _with_interned(kwargs)
            if kwargs is not None:
                all_ = _with_names(args, kwargs)
                e = self._find(XU_ITEMS(all_), len(all_))
        return e

    def __call__(self, *args, **kwargs):
        cdef tuple items = args + tuple(kwargs.values())
        cdef tuple names = tuple(kwargs)
        return _called_on_arrays(<PyObject *>self, XU_ITEMS(items), len(args), <PyObject *>names)

    def note_of(self, tuple args, dict kwargs):
        """Return the note of an earlier call of the kind, now bound to these arrays, or None."""
        cdef _Arrays e = self._find_all(args, kwargs)
        return None if e is None else e.note

    def remember(self, tuple args, dict kwargs, Instance instance, dst, src, bint in_place,
                 note=None):
        """`dst` and `src` are the arrays that the call works on, or None."""
        cdef dict same
        if self.generation != _generation:  # older entries only keep what was freed alive
            self.empty()
            self.generation = _generation
        self._add(_with_names(args, kwargs), instance, dst, src, in_place, note)
        same = _with_interned(kwargs)
        if same is not None:
            self._add(_with_names(args, same), instance, dst, src, in_place, note)

    cdef _add(self, tuple args, Instance instance, dst, src, bint in_place, note):
        """Add one entry."""
        cdef _Arrays e
        cdef Py_ssize_t k, place
        cdef int to = -1, of = -1
        cdef list sizes = [-1] * len(args)
        known = list(args)
        for k, a in enumerate(args):
            if not cnp.PyArray_CheckExact(a):
                if a is not None and (a is dst or a is src or not _lasting(a)):
                    return
                continue
            if a is not dst and a is not src and not a.ndim:
                return  # a number, which may change
            known[k] = a.dtype
            sizes[k] = _elements(<cnp.ndarray>a)
            if a is dst and to < 0:
                to = k
            elif a is src and of < 0:
                of = k
        place = self._place(XU_ITEMS(args), len(args))
        e = _Arrays(tuple(known), self.table, place)
        e.dst, e.src = to, of
        for k in range(len(args)):
            e.sizes[k] = sizes[k]
        e.itemsize = 0 if dst is None else dst.itemsize
        e.instance = instance
        e.note = note
        e.generation = _generation
        e.in_place = in_place
        self.table[place] = e


cdef _called_on_arrays(PyObject *called, PyObject **args, size_t given, PyObject *keywords):
    cdef CachedArrays call = <CachedArrays>called
    cdef PyObject *laid[MOST_LAID_OUT]
    cdef Py_ssize_t named, n = PyVectorcall_NARGS(given)
    cdef _Arrays e = None
    cdef list kept
    if keywords == NULL or not PyTuple_GET_SIZE(<object>keywords):
        e = call._find(args, n)
    else:
        n = _laid_out(args, n, keywords, laid)
        if n >= 0:
            e = call._find(laid, n)
            if e is None:
                named = PyTuple_GET_SIZE(<object>keywords)
                kept = _interned(laid + n - named, named)
                if kept is not None:
                    e = call._find(laid, n)
    if e is None:
        return call.slow(_tuple_of(args, PyVectorcall_NARGS(given)), _dict_of(args, given, keywords))
    _go(e.instance)
    return None


cdef bint _lasting(a):
    """Return whether an argument certainly means the same at its next use."""
    return isinstance(a, (int, generic)) or not hasattr(type(a), "__index__")


cdef class CachedPlan:
    """The call of a plan object, without any look-up."""

    cdef void *called
    cdef Instance instance
    cdef uint64_t generation
    cdef object __weakref__
    cdef dict __dict__

    def __cinit__(self, *args, **kwargs):
        self.called = <void *>_called_plan
        xc_called_at(type(self), CachedPlan, xc_offset_in_plan(self))

    def bind(self, Instance instance):
        self.instance = instance
        self.generation = _generation

    def __call__(self):
        return _called_plan(<PyObject *>self, NULL, 0, NULL)


cdef _called_plan(PyObject *called, PyObject **args, size_t given, PyObject *keywords):
    cdef CachedPlan plan = <CachedPlan>called
    if PyVectorcall_NARGS(given) or (keywords != NULL and PyTuple_GET_SIZE(<object>keywords)):
        raise TypeError("expected no arguments: the plan has those of its call")
    if (plan.instance is None or plan.generation != _generation
            or _held(plan.instance.team)):
        return plan.slow()
    _go(plan.instance)
    return None
