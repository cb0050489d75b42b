# Collectives in the background as requests of MPI: the binding of mpi_requests.h.

cdef extern from *:
    """
    static void xg_retype(PyObject *object, PyObject *type) {
        Py_INCREF(type);
        PyTypeObject *before = Py_TYPE(object);
        Py_SET_TYPE(object, (PyTypeObject *)type);
        if (before->tp_flags & Py_TPFLAGS_HEAPTYPE) Py_DECREF(before);
    }
    #define XG_LIST_PLACE(list) ((void ***)&((PyListObject *)(list))->ob_item)
    """
    void xg_retype(object, object)
    void ***XG_LIST_PLACE(list)
    int Py_AddPendingCall(int (*)(void *) noexcept, void *) nogil
    int Py_IsInitialized() nogil
    int PyErr_CheckSignals() except -1

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "mpi_requests.h" nogil:
    ctypedef struct xg_mpi:
        uintptr_t byte
        size_t size
        int no_cancel
    ctypedef struct xg_queue
    ctypedef struct xg_call:
        xu_inst *in_ "in"
        uint64_t hash, call
        size_t tickets
        int barrier
        xg_queue *queue
        xg_call *after
        xg_call *freed
        int state, given_back
        int result, waits, python
        char request[8]
        void *owner
        void *record
        void *ahead_record
    ctypedef struct xg_queue:
        xu_team *team
        xg_call *first
        int stopped
        xg_call ahead
        int ahead_runs
        void ***records
    xg_mpi xg_of_mpi
    int XG_ENDED
    void xg_set_functions(const uintptr_t *)
    int xg_start(xg_call *, int (*)(void *, void *) noexcept nogil,
                 int (*)(void *) noexcept nogil, int (*)(void *, int) noexcept nogil)
    void xg_set_status(void *)
    void xg_end(xg_queue *, int)
    int xg_go_on(xg_queue *, const xg_call *, uint64_t, int *)
    void xg_add(xg_queue *, xg_call *)
    void xg_give_back(xg_call *)
    void xg_note_freed(xg_call *)
    xg_call *xg_find(const char *)
    void xg_unhook()
    void xg_drop(xg_queue *)
    void xg_note_fork()
    int xg_forked

cdef extern from *:
    """
    static inline int xg_any_freed(void) { return xg_freed != NULL; }
    static inline int xg_live_calls(void) { return xg_live != NULL; }
    static inline xg_call *xg_first_live(void) { return xg_live; }
    static inline int xg_try_queue(xg_queue *q) { return xg_try(&q->busy); }
    static inline void xg_hold_queue(xg_queue *q) { q->inside = 0, atomic_store(&q->by, xm_thread()); }
    static inline void xg_leave_queue(xg_queue *q) { atomic_store(&q->by, 0), xg_leave(&q->busy); }
    static inline int xg_held(xg_queue *q) { return atomic_load(&q->busy); }
    static inline int xg_state(xg_call *c) { return atomic_load(&c->state); }
    static inline xg_call *xg_take_freed(void) { return atomic_exchange(&xg_freed, NULL); }
    static inline int xg_free_again(xg_call *c) {
        return atomic_load(&c->given_back) && atomic_load(&c->state) == XG_ENDED;
    }
    """
    int xg_any_freed()
    int xg_live_calls()
    xg_call *xg_first_live()
    int xg_try_queue(xg_queue *)
    void xg_hold_queue(xg_queue *)
    void xg_leave_queue(xg_queue *)
    int xg_held(xg_queue *)
    int xg_state(xg_call *) nogil
    xg_call *xg_take_freed() nogil
    int xg_free_again(xg_call *) nogil

cdef object _request_class = None  # of the requests of calls that xupc carries
cdef object _awaited_classes = {}  # mpi4py's class of a request: the one that can be awaited
cdef Py_ssize_t _handle_at = 0  # bytes from the begin of a request to its handle
cdef object _request_failed = None  # makes the error number of an exception, for MPI

cdef enum:
    MOST_IN_FLIGHT = 16  # calls of one kind that are kept for the next ones


def set_requests(functions, uintptr_t byte, size_t size, int no_cancel, request_class,
                 Py_ssize_t handle_at, failed):
    """Set MPI's functions for requests, and the class of the requests.

    `functions`: the addresses of MPI_Grequest_start, MPI_Grequest_complete,
    MPI_Status_set_elements, MPI_Status_set_cancelled, and of those that MPICH or Open MPI has for
    its progress: MPIX_Async_start, opal_progress_register, opal_progress_unregister, and
    MPIX_Grequest_start (0: none).
    `byte`, `size`: the handle of the byte type, and the bytes of a handle. `no_cancel`: the error of
    `Cancel`. `handle_at`: bytes from the begin of a request object to its handle. `failed(error)`
    reports an error that no Python code gets, and returns its number.
    """
    global _request_class, _handle_at, _request_failed
    cdef uintptr_t found[8]
    cdef int k
    for k in range(8):
        found[k] = functions[k]
    xg_set_functions(found)
    xg_of_mpi.byte, xg_of_mpi.size, xg_of_mpi.no_cancel = byte, size, no_cancel
    _request_class, _handle_at, _request_failed = request_class, handle_at, failed


def no_requests():
    """Stop the part of MPI's progress that runs calls: the job is over."""
    with nogil:
        xg_unhook()


def note_fork():
    """Leave the calls in the background to the parent of this process."""
    xg_note_fork()


def requests_left():
    """Return the methods of the calls whose requests MPI still has: nothing has waited for them."""
    cdef RequestCall call
    cdef xg_call *c = xg_first_live()
    cdef list calls = []
    while c != NULL:  # no other Python code runs meanwhile, which could free a call
        calls.append(<RequestCall>c.owner)
        c = c.after
    return [call.instance.record.name for call in calls]


def set_awaited(classes):
    """Set the classes of requests that can be awaited, by mpi4py's class."""
    global _awaited_classes
    _awaited_classes = dict(classes)


def awaited_request(request):
    """Make a request of mpi4py's one that can be awaited, and return it."""
    found = _awaited_classes.get(type(request))
    if found is not None:
        xg_retype(request, found)
    return request


cdef class RequestCall:
    """A call that goes on in the background, with an instance of its own; used again and again."""

    cdef xg_call c
    cdef readonly Instance instance
    cdef object kept  # what the call uses
    cdef object unpack  # what brings the result to its place, or None
    cdef object error

    def __cinit__(self, Instance instance, bint barrier):
        memset(&self.c, 0, sizeof(xg_call))
        self.instance = instance
        self.c.in_ = &instance.i
        self.c.hash, self.c.call = instance.hash, instance.call
        self.c.tickets = instance.program.tickets
        self.c.barrier = barrier
        self.c.owner = <void *>self
        self.c.given_back = 1
        self.c.state = XG_ENDED

    @property
    def free(self):
        """Return whether another call can use it."""
        return bool(xg_free_again(&self.c)) and self.kept is None

    def start(self, kept, unpack=None):
        """Start the call, and return its request. `kept`: what it uses."""
        return _start(self, kept, unpack)


cdef object _start(RequestCall call, kept, unpack):
    call.kept = kept  # first: finalizers and the collector may make the same call meanwhile
    call.unpack, call.error = unpack, None
    try:
        return _started(call)
    except BaseException:
        call.kept = call.unpack = None
        raise


cdef object _started(RequestCall call):
    cdef Team team = call.instance.team
    cdef int error
    if _run_count:
        _check_not_inside(team, call.instance.record.name, True)
    _reap()
    if team.q.ahead.in_ == NULL:
        _prepare_queue(team, call.instance.owner.ahead_of_requests)
    request, record, ahead = _request_class(), call.instance.record, team.ahead.record
    call.c.python = call.unpack is not None
    with nogil:
        error = xg_start(&call.c, _query, _given_back, _cancel)
    if error:
        raise RuntimeError(f"MPI_Grequest_start: error {error}")
    Py_INCREF(call)
    _own(&call.c.record, record)
    _own(&call.c.ahead_record, ahead)
    with nogil:
        xg_add(&team.q, &call.c)
    memcpy(<char *><void *>request + _handle_at, call.c.request, xg_of_mpi.size)
    return request


cdef int _prepare_queue(Team team, Instance ahead) except -1:
    """Set the barrier of a team's queue that follows many calls without one."""
    team.ahead = ahead
    team.q.team = &team.t
    team.q.records = XG_LIST_PLACE(team.records)
    team.q.ahead.in_ = &ahead.i
    team.q.ahead.hash, team.q.ahead.call = ahead.hash, ahead.call
    team.q.ahead.tickets, team.q.ahead.barrier = ahead.program.tickets, True
    return 0


cdef int _own(void **place, object text) except -1:
    Py_INCREF(text)
    place[0] = <void *>text
    return 0


cdef int _disown(void **place) except -1:
    if place[0] != NULL:
        text = <object>place[0]
        place[0] = NULL
        Py_DECREF(text)
    return 0


cdef int _reap() except -1:
    """Drop what the calls used whose requests MPI has freed."""
    cdef xg_call *c
    cdef xg_call *following
    cdef RequestCall call
    if not xg_any_freed():
        return 0
    c = xg_take_freed()
    while c != NULL:
        following = c.freed
        if xg_state(c) != XG_ENDED:
            xg_note_freed(c)
        else:
            call = <RequestCall>c.owner
            _disown(&c.record)
            _disown(&c.ahead_record)
            call.kept = call.unpack = None
            Py_DECREF(call)
        c = following
    return 0


cdef int _reap_later(void *unused) noexcept:
    try:
        _reap()
    except BaseException:
        pass
    return 0


# -- functions that MPI calls ----------------------------------------------------------------------
cdef int _query(void *state, void *status) noexcept nogil:
    """Complete a request: set its status, and do what is left to do in Python."""
    cdef xg_call *c = <xg_call *>state
    xg_set_status(status)
    if not c.python:
        return 0
    with gil:
        return _finished(<RequestCall>c.owner)


cdef int _given_back(void *state) noexcept nogil:
    cdef xg_call *c = <xg_call *>state
    cdef int waits = c.waits
    xg_give_back(c)
    if not waits and Py_IsInitialized():
        Py_AddPendingCall(_reap_later, NULL)
    return 0


cdef int _cancel(void *state, int complete) noexcept nogil:
    return xg_of_mpi.no_cancel


cdef int _finished(RequestCall call) noexcept:
    """Bring the result of a call to its place, or go on from a difference between the calls.

    Returns the number of an error, for MPI. If the request itself waits, it raises the error.
    """
    try:
        if xg_state(&call.c) != XG_ENDED:
            _settle(call.instance.team, &call.c)
    except BaseException as error:
        if xg_state(&call.c) != XG_ENDED:
            return _mpi_error(error)  # it cannot be waited for here; it goes on later
        call.error = call.error or error
    try:
        if call.error is None and call.unpack is not None:
            unpack, call.unpack = call.unpack, None
            unpack()
    except BaseException as error:
        call.error = call.error or error
    return 0 if call.error is None or call.c.waits else _mpi_error(call.error)


cdef int _mpi_error(error) noexcept:
    """Report an error that no Python code gets, and return its number."""
    try:
        return _request_failed(error)
    except BaseException:
        return xg_of_mpi.no_cancel


# -- waits -----------------------------------------------------------------------------------------
def wait_for_request(request, run, status):
    """Wait for a request; `run` is mpi4py's method. Other requests than those of calls go to MPI."""
    cdef xg_call *c = NULL
    cdef RequestCall call = None
    if xg_live_calls():
        c = xg_find(<char *><void *>request + _handle_at)
    if c != NULL:
        call = <RequestCall>c.owner
        if xg_forked:
            call.instance.owner.job.check_there()
        c.waits = 1
        _settle(call.instance.team, c)
    found = run(request, status)
    if call is not None:
        error = call.error
        if xp_call_ends(&_progress):
            with nogil:
                xm_enter()  # to MPICH the end of the call counts as something that moved
                xp_catch_up(&_progress)
        _reap()
        if error is not None:
            raise error
    return found


cdef int _settle(Team team, xg_call *last) except -1:
    """Wait until the team's calls have ended, up to `last` (NULL: all of them)."""
    cdef xg_queue *q = &team.q
    cdef int r, ended = 0, tries = 0
    while xg_state(last) != XG_ENDED if last != NULL else q.first != NULL:
        if not xg_try_queue(q):
            _check_not_inside(team, "Wait", False)
            tries += 1
            if tries % 1024 == 0:
                PyErr_CheckSignals()
            with nogil:
                sched_yield()
            continue
        xg_hold_queue(q)
        try:
            if q.stopped:
                r = XU_MISMATCH
            else:
                with nogil:
                    r = xg_go_on(q, last, XM_LOOK_UP_NS, &ended)
            if r != XU_DONE:
                _go_on_in_python(team, r)
        finally:
            xg_leave_queue(q)
    return 0


cdef int _check_not_inside(Team team, call, bint starts) except -1:
    """Raise if this Python thread runs a call of the team further up.

    `starts`: raise also if another one does, and holds no queue that a new call could wait in.
    """
    cdef unsigned long me = PyThread_get_thread_ident()
    cdef int k
    for k in range(_run_count):
        if <PyObject *>(<Instance>_runs[k].instance).team == <PyObject *>team and (
                _runs[k].by == me or (starts and not xg_held(&team.q))):
            owner = (<Instance>_runs[k].instance).owner
            owner.job.callers.check(call, owner)
    return 0


cdef int _go_on_in_python(Team team, int status) except -1:
    """Finish the call that runs; its error is raised by its own request."""
    cdef xg_queue *q = &team.q
    cdef bint ahead = q.ahead_runs
    cdef RequestCall call = <RequestCall>q.first.owner
    cdef Instance instance = team.ahead if ahead else call.instance
    if _run_count and _conflict(team):
        instance.owner.job.callers.check(instance.record.name, instance.owner)
    _run_begins(instance)
    instance.active = True
    q.ahead_runs = False
    xr_allow(XR_DEPTH)
    try:
        _drive(instance, status)
        if not ahead:
            xg_end(q, XU_DONE)
        return 0
    except BaseException as error:
        _interrupted(instance, error)
        call.error = error
        call.c.python = True
        xg_end(q, XU_MISMATCH)
        if not isinstance(error, Exception) or call.instance.owner.job.broken is not None:
            _fail_all(team, error)
        if not isinstance(error, Exception):
            raise
    finally:
        xr_allow(-XR_DEPTH)
        _run_ends(instance)
    return 0


cdef int _fail_all(Team team, error) except -1:
    """End the calls that wait for one that will never end."""
    cdef RequestCall call
    while team.q.first != NULL:
        call = <RequestCall>team.q.first.owner
        call.error = error
        call.c.python = True
        xg_end(&team.q, XU_MISMATCH)
    return 0
