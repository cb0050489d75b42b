# Functions of the user's that consist of numpy's loops: see user_functions.h and ufunc_capture.py.

from cpython.pycapsule cimport PyCapsule_GetPointer


cdef extern from "user_functions.h" nogil:
    int XF_STEPS, XF_CONSTANTS, XF_INPUTS, XF_FIXED
    int FE_DIVBYZERO, FE_OVERFLOW, FE_UNDERFLOW, FE_INVALID
    ctypedef int (*xf_loop)(void *, char **, const Py_ssize_t *, const Py_ssize_t *, void *)
    ctypedef struct xf_numpy_loop:
        xf_loop loop
        void *context
        void *auxdata
        uint8_t requires_pyapi
        uint8_t no_floatingpoint_errors
    ctypedef struct xf_step:
        xf_loop loop
        void *context
        void *auxdata
        int32_t inputs
        int32_t from_ "from"[3]
        int32_t reports
        int32_t errors
        int32_t size
    ctypedef struct xf_function:
        xk_kernel kernel
        int32_t steps
        int32_t alert
        xf_step step[16]
        const char *fixed[16]
    char *xf_room()
    void xf_begin(xf_function *, int32_t, int32_t)
    xf_loop xf_where(int32_t)


cdef class Function:
    """A captured user function: `steps` of `ufunc_capture.Step`, `guards` of its globals."""

    cdef xf_function f
    cdef tuple names
    cdef object keep
    cdef list guards

    def __cinit__(self, int itemsize, bint ordered, list steps, list constants, list guards):
        cdef int j, k
        cdef xf_numpy_loop *found
        cdef xf_step *s
        if not 0 < len(steps) <= XF_STEPS or len(constants) > XF_CONSTANTS:
            raise ValueError("too many steps, or none")
        xf_begin(&self.f, itemsize, ordered)
        for j, (_, loop, inputs, size) in enumerate(steps):
            s = &self.f.step[j]
            if len(inputs) > XF_INPUTS:
                raise ValueError("too many inputs")
            s.inputs, s.size = len(inputs), size
            for k, value in enumerate(inputs):
                if not (0 <= value < j + 2 or XF_FIXED <= value < XF_FIXED + len(constants)):
                    raise ValueError("not known yet")
                s.from_[k] = value
            if loop is None:
                s.loop = xf_where(size)
            else:
                found = <xf_numpy_loop *>PyCapsule_GetPointer(
                    loop, b"numpy_1.24_ufunc_call_info")
                if not found.requires_pyapi:
                    s.loop, s.context, s.auxdata = found.loop, found.context, found.auxdata
                s.reports = not found.no_floatingpoint_errors
            if s.loop == NULL:
                raise ValueError("needs Python")
        for k, constant in enumerate(constants):
            self.f.fixed[k] = <const char *><uintptr_t>constant.ctypes.data
        self.f.steps = len(steps)
        self.names = tuple([step[0] for step in steps])
        self.keep = steps, constants
        self.guards = guards

    cdef bint holds(self) except -1:
        """Return whether the globals and cells of the function are unchanged."""
        for where, name, value in self.guards:
            if name is None:
                try:
                    now = where.cell_contents
                except ValueError:  # empty
                    return False
            elif isinstance(where, dict):
                now = (<dict>where).get(name)
            else:
                now = getattr(where, name)
            if now is not value:
                return False
        return True

    def errors(self):
        """Return the floating-point errors since the last call: a step's name, a flag per kind.

        The kinds are division by zero, overflow, underflow, and what is invalid.
        """
        cdef int j, e
        found = []
        for j in range(self.f.steps):
            e = self.f.step[j].errors
            if e:
                found.append((self.names[j], (
                    (e & FE_DIVBYZERO) != 0, (e & FE_OVERFLOW) != 0, (e & FE_UNDERFLOW) != 0,
                    (e & FE_INVALID) != 0)))
            self.f.step[j].errors = 0
        self.f.alert = 0
        return found

    def combine(self, uintptr_t out, uintptr_t a, uintptr_t b, int64_t n):
        """Compute ``out[i] = f(a[i], b[i])`` at addresses; False if there is no memory for it."""
        if xf_room() == NULL:
            return False
        self.f.kernel.combine(&self.f.kernel, <void *>out, <const void *>a, <const void *>b, n)
        return True

    def fold(self, uintptr_t out, uintptr_t x, int64_t n):
        """Fold as `Kernel.fold`, at addresses."""
        if xf_room() == NULL:
            return False
        self.f.kernel.fold(&self.f.kernel, <void *>out, <const void *>x, n)
        return True

    def scan(self, uintptr_t dst, uintptr_t src, int64_t n, uintptr_t carry, bint reverse):
        """Scan as `Kernel.scan`, at addresses; carry may be 0."""
        if xf_room() == NULL:
            return False
        self.f.kernel.scan(&self.f.kernel, <void *>dst, <const void *>src, n,
                           <const void *>carry, reverse)
        return True
