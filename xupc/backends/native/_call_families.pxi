# Calls that differ from an earlier one only in the offsets of pointers: see xupc/api/call_family.py.

from cpython.long cimport PyLong_AsLongLongAndOverflow

cdef object _pointer_type = None


def set_pointer_type(type_):
    """Set the type of arguments that may have other offsets in other calls of a family."""
    global _pointer_type
    _pointer_type = type_


cdef struct xf_place:
    int64_t offset, phase


cdef class _MovedRecord:
    """The record of a call of a family, which is made when it is read.

    `record_at((offset, phase) of dst, (offset, phase) of src)` makes it.
    """

    cdef object record_at, made
    cdef xf_place places[2]

    cdef object read(self):
        if self.made is None:
            self.made = self.record_at(
                (self.places[0].offset, self.places[0].phase),
                (self.places[1].offset, self.places[1].phase))
        return self.made


cdef inline object _read_record(found):
    """Return the record of a call."""
    return (<_MovedRecord>found).read() if type(found) is _MovedRecord else found


cdef struct xf_pointer:
    Py_ssize_t at  # which argument it is
    PyObject *allocation
    int64_t rank, offset
    int64_t phase  # 0 if the families of the collective do not depend on it


cdef int _take_pointers(CachedCall call, PyObject **args, Py_ssize_t n,
                        xf_pointer *found) except -2:
    """Write the pointers among arguments; return how many, -1: more than two, or out of range."""
    cdef Py_ssize_t k
    cdef int count = 0, beyond = 0
    for k in range(n):
        pointer = <object>args[k]
        if type(pointer) is not _pointer_type:
            continue
        if count == 2:
            return -1
        allocation = pointer._allocation  # which the pointer keeps
        found[count].at = k
        found[count].allocation = <PyObject *>allocation
        found[count].rank = PyLong_AsLongLongAndOverflow(pointer._rank, &beyond)
        if not beyond:
            found[count].offset = PyLong_AsLongLongAndOverflow(pointer._addr, &beyond)
        found[count].phase = 0
        if call.phased and not beyond:
            found[count].phase = PyLong_AsLongLongAndOverflow(pointer._phase, &beyond)
        if beyond:
            return -1
        count += 1
    return count


cdef inline Py_ssize_t _family_place(PyObject **args, Py_ssize_t n, xf_pointer *found,
                                     int count) noexcept:
    cdef uint64_t h = 0
    cdef Py_ssize_t k
    cdef int p = 0
    for k in range(n):
        if p < count and found[p].at == k:
            h = h * 31 + (<uintptr_t>found[p].allocation >> 4)
            h = h * 31 + <uint64_t>found[p].rank
            h = h * 31 + <uint64_t>found[p].phase
            p += 1
        else:
            h = _mixed_argument(h, args[k])
    return <Py_ssize_t>_bucket(h)


cdef struct xf_operand:
    int64_t offset  # of an argument that is no pointer
    int64_t low, high  # the offsets at which all its bytes are in each thread's part
    int64_t begin, end  # the bytes that it takes, from its offset on
    Py_ssize_t place  # of its offset in the values of the fingerprint; -1: it is not there
    bint dealt  # a pointer's blocksize and dtype are the same in all calls
    int64_t phase, blocksize
    PyObject *dtype
    uintptr_t zero  # address of offset 0


cdef class _Family(_Entry):
    """Calls that differ only in the offsets of pointers: of a pointer, `args` has the allocation.

    `instance` belongs to the family alone: each call binds it to its own addresses.
    """

    cdef Team team
    cdef Py_ssize_t named  # how many arguments have names
    cdef int count  # of pointers
    cdef xf_pointer pointers[2]  # in the order of the arguments
    cdef int operand_of[2]  # dst 0, src 1
    cdef xf_operand operands[2]
    cdef bint together  # the two offsets always differ by `apart`; else their bytes must not meet
    cdef bint follows  # src is not given: it lies where dst does
    cdef int64_t apart
    cdef tuple values
    cdef object make, record_at
    cdef list dtypes  # of pointers: kept alive

    cdef bint holds(self, PyObject **args, Py_ssize_t n, Py_ssize_t named, xf_pointer *found,
                    int count) except -1:
        """Return whether a call has the same arguments, but for offsets, blocksizes and dtypes."""
        cdef Py_ssize_t k
        cdef int p = 0
        if (self.generation != _generation or self.n != n or self.named != named
                or self.count != count):
            return False
        for k in range(n):
            if p < count and found[p].at == k:
                if (self.pointers[p].at != k or found[p].allocation != self.given[k]
                        or found[p].rank != self.pointers[p].rank
                        or found[p].phase != self.pointers[p].phase):
                    return False
                p += 1
            elif args[k] != self.given[k] and not _equal_ints(args[k], self.args[k]):
                return False
        return True

    cdef bint takes(self, PyObject **args, xf_pointer *found, xf_place *to) except -1:
        """Write where the operands are; return whether a call of these passes all checks."""
        cdef int k, p, beyond = 0
        cdef xf_operand *operands = self.operands
        for k in range(2):
            to[k] = xf_place(operands[k].offset, operands[k].phase)
        for p in range(self.count):
            k = self.operand_of[p]
            to[k].offset = found[p].offset
            if operands[k].dealt:
                pointer = <object>args[found[p].at]
                dtype = pointer._dtype
                to[k].phase = PyLong_AsLongLongAndOverflow(pointer._phase, &beyond)
                if (beyond or <PyObject *>dtype != operands[k].dtype
                        or pointer._blocksize != operands[k].blocksize):
                    return False
        if not operands[0].low <= to[0].offset <= operands[0].high:
            return False
        if self.follows:
            to[1].offset = to[0].offset + self.apart
        if not operands[1].low <= to[1].offset <= operands[1].high:
            return False
        if self.together:
            return to[1].offset - to[0].offset == self.apart
        return (to[0].offset + operands[0].end <= to[1].offset + operands[1].begin
                or to[1].offset + operands[1].end <= to[0].offset + operands[0].begin)

    cdef int bind(self, xf_place *to) except -1:
        """Bind the instance to a call of the family."""
        cdef _MovedRecord record = _MovedRecord.__new__(_MovedRecord)
        cdef Instance instance = self.instance
        cdef Py_ssize_t k, n = len(self.values)
        cdef uintptr_t address
        cdef tuple values = PyTuple_New(n)
        for k in range(n):
            value = <object>XU_ITEMS(self.values)[k]
            if k == self.operands[0].place:
                value = to[0].offset
            elif k == self.operands[1].place:
                value = to[1].offset
            Py_INCREF(value)
            PyTuple_SET_ITEM(values, k, value)
        instance.hash = <uint64_t>hash(values)
        record.record_at = self.record_at
        instance.noted = record
        for k in range(2):
            record.places[k] = to[k]
            address = self.operands[k].zero + <uintptr_t>to[k].offset
            instance.i.base[k] = <char *>address
            if instance.net is not None:
                instance.operands[k].address = address
                instance.operands[k].offset = to[k].offset
        return 0


cdef inline _Family _family_of(CachedCall call, PyObject **args, Py_ssize_t n, Py_ssize_t named,
                               xf_pointer *found, int count, Py_ssize_t *place):
    """Return the family whose arguments a call has, and its place; or None, and the place for one.

    A family has two possible places, so that two families rarely displace each other.
    """
    cdef Py_ssize_t first = _family_place(args, n, found, count)
    cdef int k
    for k in range(2):
        place[0] = first ^ k
        known = call.families[first ^ k]
        if known is not None and (<_Family>known).holds(args, n, named, found, count):
            return <_Family>known
    for k in range(2):
        known = call.families[first ^ k]
        if known is None or (<_Family>known).generation != _generation:
            place[0] = first ^ k
            break
    return None


cdef Instance _of_family(CachedCall call, PyObject **args, Py_ssize_t n, Py_ssize_t named):
    """Return the instance for a call that differs from an earlier one only in offsets, or None."""
    cdef xf_pointer found[2]
    cdef xf_place to[2]
    cdef _Family family
    cdef Py_ssize_t place
    cdef int count = _take_pointers(call, args, n, found)
    if count < 1:
        return None
    family = _family_of(call, args, n, named, found, count, &place)
    if family is None or _held(family.team) or not family.takes(args, found, to):
        return None
    if family.instance is None or family.team.t.unsynced >= RUN_AHEAD:
        if family.instance is None:
            family.instance = family.make()
        if family.team.t.unsynced >= RUN_AHEAD:
            _catch_up(family.instance)
        # other Python threads may have run meanwhile
        if family.generation != _generation or _held(family.team):
            return None
    family.bind(to)
    return family.instance


cdef _remember_family(CachedCall call, tuple args, Py_ssize_t named, Instance instance, family):
    """Keep a `CallFamily`, unless an argument is no operand of it and may change."""
    cdef xf_pointer found[2]
    cdef int count = _take_pointers(call, XU_ITEMS(args), len(args), found)
    cdef int p, which
    cdef list kept = list(args), dtypes = []
    cdef int operand_of[2]
    cdef Py_ssize_t k, place
    cdef _Family e
    cdef int beyond = 0
    if count < 1:
        return
    for k, a in enumerate(args):
        if type(a) is not _pointer_type and not _lasting(a):
            return
    operands = family.operands
    operand_of[0] = operand_of[1] = -1
    for p in range(count):
        pointer = args[found[p].at]
        for which in range(2):
            if operands[which].given is pointer and (p == 0 or operand_of[0] != which):
                operand_of[p] = which
                break
        if operand_of[p] < 0:
            return
        kept[found[p].at] = pointer._allocation
    _family_of(call, XU_ITEMS(args), len(args), named, found, count, &place)
    e = _Family(tuple(kept), call.families, place)
    e.team, e.generation, e.named, e.count = instance.team, _generation, named, count
    for p in range(count):
        e.pointers[p] = found[p]
        e.operand_of[p] = operand_of[p]
    for which in range(2):
        x = operands[which]
        e.operands[which].offset, e.operands[which].place = x.offset, x.place
        e.operands[which].low, e.operands[which].high = x.low, x.high
        e.operands[which].begin, e.operands[which].end = x.begin, x.end
        e.operands[which].zero = <uintptr_t>instance.i.base[which] - <uintptr_t><int64_t>x.offset
        e.operands[which].dealt = x.dealt
        if x.dealt and type(x.given) is _pointer_type:
            dtype = x.given._dtype
            dtypes.append(dtype)
            e.operands[which].dtype = <PyObject *>dtype
            e.operands[which].phase = PyLong_AsLongLongAndOverflow(x.given._phase, &beyond)
            if not beyond:
                blocksize = x.given._blocksize
                e.operands[which].blocksize = PyLong_AsLongLongAndOverflow(blocksize, &beyond)
            if beyond:
                return
    e.together, e.follows = family.apart is not None, operands[1].given is None
    e.apart = family.apart if e.together else 0
    e.values, e.dtypes = family.values, dtypes
    e.make, e.record_at = family.make, family.texts.record_at
    call.families[place] = e
