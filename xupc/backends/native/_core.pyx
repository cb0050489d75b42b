# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The native core's binding: teams, programs and instances; other parts are in _*.pxi.

The protocol itself is in shm_protocol.h; here are only Python objects around it.  A call
that finds its bound instance in the cache (_cached_calls.pxi) runs from argument check to return
without a line of Python; anything else goes to ``slow`` or ``drive``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_GET_SIZE
from cpython.long cimport PyLong_CheckExact
cimport numpy as cnp

from weakref import WeakSet, ref

from numpy import generic

cnp.import_array()


cdef extern from "shm_protocol.h" nogil:
    ctypedef struct xt_row:
        uint64_t op
        uint32_t kind, line, state
    ctypedef struct xp_policy:
        void (*enter)() noexcept
        int clock
        uint64_t soon_ns, most_ns, part
    int xp_cold_step(const xp_policy *)
    void xp_try(xp_policy *)
    bint xp_call_ends(xp_policy *)
    void xp_catch_up(xp_policy *)
    int CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC
    ctypedef struct xu_function_row:
        int32_t step, rows
    ctypedef struct xu_exchange_row:
        int32_t step
    ctypedef struct xu_messages_row:
        int32_t step, first, count
        uint32_t types
    ctypedef struct xu_python_row:
        int32_t step
    ctypedef struct xu_step:
        int32_t kind
        xu_function_row function
        xu_exchange_row exchange
        xu_messages_row messages
        xu_python_row python
    ctypedef struct xu_status:
        uint64_t op
        uint64_t call
    ctypedef struct xu_ring:
        uint64_t count
    ctypedef struct xu_team:
        xu_status *status
        xu_ring *ring
        int32_t n
        int32_t me
        int32_t mode
        int32_t posted
        int32_t spins
        int32_t yields
        int32_t verdict
        int32_t giving_up
        int32_t solo
        int32_t several
        uint64_t number
        uint64_t epoch
        uint64_t op
        uint64_t fp
        uint64_t value
        uint64_t unsynced
        uint64_t node_min
        uint64_t node_max
        uint64_t node_value
        uint64_t node_conflict
        uint64_t node_wrote
        uint64_t wrote
        uint64_t poison
        int32_t unread
        uint64_t led_epoch
        uint64_t verified
        void *left
        uint64_t nt_min
        const int32_t *pids
        const xp_policy *progress
        uint64_t *history
        void *trace
    ctypedef struct xk_kernel:
        int32_t size
        void (*combine)(const xk_kernel *, void *, const void *, const void *, int64_t)
        void (*fold)(const xk_kernel *, void *, const void *, int64_t)
        void (*scan)(const xk_kernel *, void *, const void *, int64_t, const void *, int32_t)
    ctypedef struct xk_located:
        xk_kernel kernel
    ctypedef struct xu_program:
        const xu_step *steps
        int32_t first[2]
        int32_t end[2]
        int32_t barriers
        int32_t exchange
        int64_t written
        const xk_kernel *kernel
    ctypedef struct xu_inst:
        xu_team *team
        const xu_program *prog
        const xk_kernel *kernel
        char *base[4]
        int64_t stride[4]
        char *slots
        uint8_t *tickets
        int32_t pc[2]
        int32_t sub[2]
        uint64_t op
        uint64_t fp
        char *offered
        xt_row row
        xt_row *record
    ctypedef struct xu_blocked:
        void *word
    int XU_SLOTS, XU_SLOT
    int XU_DONE, XU_PENDING, XU_CALL_PYTHON, XU_MISMATCH
    int XS_PYTHON, XS_FUNCTION, XS_BARRIER, XS_GATHER, XS_RELEASE, XS_AWAIT, XS_FUSE, XS_CHECK
    int XS_EXCHANGE, XS_SEND, XS_RECV
    const xk_kernel *xk_find(int32_t, int32_t)
    int xk_locate(xk_located *, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t)
    void xu_begin(xu_inst *, uint64_t, uint64_t)
    void xu_end(xu_inst *)
    void xu_record_failure(xu_inst *)
    int XT_POSTED, XT_CLAIMED
    int xu_run(xu_inst *, uint64_t)
    int xu_advance(xu_inst *, xu_blocked *, int *)
    int xu_suspect(const xu_inst *)
    int xu_awaited(const xu_inst *, int32_t *, int)
    uint64_t xu_sync_bytes(uint64_t)
    void xu_attach(xu_team *, char *, int32_t, int32_t)
    void xu_join_tree(xu_team *, int32_t, const int32_t *, int32_t)
    int XU_FLAT, XU_COUNTER
    uint64_t xu_mix(uint64_t, uint64_t)
    void xu_release(xu_team *, int)
    void xu_fence()
    void xu_copy_bytes(char *, const char *, int64_t, int)
    void xu_probe(xu_inst *)
    void xu_withdraw(xu_inst *)
    int xu_across(int32_t, char *, char *, int64_t, int)
    uint64_t xu_now_ns()

cdef extern from *:
    """
    #define XU_ITEMS(tuple) (((PyTupleObject *)(tuple))->ob_item)
    """
    PyObject **XU_ITEMS(tuple)
    object PyObject_Vectorcall(object, PyObject **, size_t, PyObject *)
    Py_ssize_t PyVectorcall_NARGS(size_t)

cdef extern from "query_signal.h" nogil:
    int xq_listen(int, uint64_t *)
    void xq_leave(int)

cdef extern from "exit_timer.h" nogil:
    int xl_end_in(double, uint64_t, const char *, size_t)
    void xl_call_off()

cdef extern from "pending_question.h":
    int xpq_ask()
    uint64_t xpq_count()

cdef extern from "exit_status.h":
    PyObject *xe_code
    void xe_note_exits()

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() nogil

DONE = XU_DONE
PENDING = XU_PENDING
CALL_PYTHON = XU_CALL_PYTHON
MISMATCH = XU_MISMATCH

cdef enum:
    BUCKETS = 256
    MOST_TRACES = 8
    RUN_AHEAD = 32  # calls without a full barrier; half of XU_SLOTS

cdef extern from *:
    """
    /* Let the running Python thread call so many functions more than its recursion limit says. */
    static inline void xr_allow(int more) {
        PyThreadState *thread = PyThreadState_Get();
    #if PY_VERSION_HEX < 0x030C0000
        thread->recursion_remaining += more;
    #else
        thread->py_recursion_remaining += more;
    #endif
    }
    """
    void xr_allow(int) noexcept

cdef enum:
    # Functions of the library in one another, at most. MPI needs none: a call must not fail, least
    # of all in its middle, where a program has used up nearly all that the limit allows.
    XR_DEPTH = 400

cdef uint64_t _generation = 1
cdef object _drive = None
cdef object _catch_up = None
cdef object _interrupted = None
cdef bint _calls_out = False
cdef bint _engaged = False

cdef enum:
    MOST_RUNS = 64

cdef struct _Run:
    PyObject *instance  # an instance that `execute` runs
    unsigned long by  # the Python thread that has called it

cdef _Run _runs[MOST_RUNS]
cdef int _run_count = 0
cdef bint _threads_apart = False


def set_drive(drive, interrupted, catch_up):
    """Set `drive(instance, status)`: it completes a call that did not complete at once.

    `catch_up(instance)` makes its team meet after many calls without a barrier.

    `interrupted(instance, error)` is called with an error, which may have been raised before the
    first line of `drive`.
    """
    global _drive, _interrupted, _catch_up
    _catch_up = catch_up
    _drive = drive
    _interrupted = interrupted


def calls_out(bint running):
    """Set whether a user function is running: no cached call may run meanwhile."""
    global _calls_out
    _calls_out = running


def engage(bint engaged):
    """Set whether a Python thread waits outside of `execute`: no cached call may run."""
    global _engaged
    _engaged = engaged


def let_threads(bint apart):
    """Set whether several Python threads may run calls at once, each on a team of its own."""
    global _threads_apart
    _threads_apart = apart


def running():
    """Return the instances that run, each with the Python thread that runs it."""
    cdef int k
    return [(<object>_runs[k].instance, _runs[k].by) for k in range(_run_count)]


cdef bint _conflict(Team team) noexcept:
    """Return whether a call on a team would be inside another one, or beside it on this team."""
    cdef unsigned long me = PyThread_get_thread_ident()
    cdef int k
    if not _threads_apart or _run_count == MOST_RUNS:
        return True
    for k in range(_run_count):
        if _runs[k].by == me or <PyObject *>(<Instance>_runs[k].instance).team == <PyObject *>team:
            return True
    return False


cdef inline void _run_begins(Instance instance) noexcept:
    global _run_count
    _runs[_run_count] = _Run(<PyObject *>instance, PyThread_get_thread_ident())
    _run_count += 1


cdef inline void _run_ends(Instance instance) noexcept:
    """Forget a run; those of other Python threads may have begun since."""
    global _run_count
    cdef int k = _run_count - 1
    while _runs[k].instance != <PyObject *>instance:
        k -= 1
    _run_count -= 1
    _runs[k] = _runs[_run_count]


def note_exits():
    """Note the exit status of the interpreter from now on."""
    xe_note_exits()


def exit_code():
    """Return the exit status in a tuple when the interpreter ends by SystemExit, else None."""
    return None if xe_code == NULL else (<object>xe_code,)


def invalidate():
    """Invalidate all cached calls after memory was freed or the state of the job changed."""
    global _generation
    _generation += 1


cdef object _caches = WeakSet()


def empty_caches():
    """Drop all cached calls, and the objects that only they refer to."""
    for cache in _caches:
        cache.empty()


class _Argument(ref):
    """A reference to an argument of a cached call, which does not keep it alive.

    The call is dropped before another object can get the same address.
    """

    __slots__ = ("table", "place")


cdef list _arguments(tuple args, list table, Py_ssize_t place):
    """Return what an entry keeps of arguments: references, or objects without weak references."""
    cdef list kept = []

    def gone(argument):
        entry = argument.table[argument.place]
        if entry is not None and entry.keeps(argument):
            argument.table[argument.place] = None

    for a in args:
        try:
            watched = _Argument(a, gone)
        except TypeError:
            kept.append(a)
            continue
        watched.table, watched.place = table, place
        kept.append(watched)
    return kept


def sync_bytes(int n):
    """Return the size of the shared sync area of a team with `n` members on a node."""
    return xu_sync_bytes(n)


def mix(uint64_t a, uint64_t b):
    """Return the fingerprint `a` after the call `b`."""
    return xu_mix(a, b)


def copy_bytes(uintptr_t dst, uintptr_t src, int64_t nbytes, bint past):
    """Copy between two addresses, without the GIL when large; `past`: bypass the cache."""
    if nbytes < 65536:
        xu_copy_bytes(<char *>dst, <const char *>src, nbytes, past)
    else:
        with nogil:
            xu_copy_bytes(<char *>dst, <const char *>src, nbytes, past)


def across(int pid, uintptr_t here, uintptr_t there, int64_t nbytes, bint out):
    """Copy from or (`out`) to the memory of another process of this machine.

    Returns 0 or an error's number.
    """
    return xu_across(pid, <char *>here, <char *>there, nbytes, out)


def timed(function, tuple arguments):
    """Call a function as ``function(a, b)`` does; the clock before and after, in ns.

    The clock is CLOCK_MONOTONIC. Only the call is between the two looks at it.
    """
    cdef Py_ssize_t n = PyTuple_GET_SIZE(arguments)
    cdef uint64_t begin = xu_now_ns()
    found = PyObject_Vectorcall(function, XU_ITEMS(arguments), n, NULL)
    cdef uint64_t end = xu_now_ns()
    return begin, end


def listen(int number, uintptr_t word):
    """Have a signal write the time into a word, if it would end the process now; whether it does.

    The handler is C's: it runs whatever this process computes, and on any of its threads.
    """
    return bool(xq_listen(number, <uint64_t *>word))


def leave(int number):
    """Restore the signal's handler from before `listen`, unless it was replaced since."""
    xq_leave(number)


cdef uint64_t _ends = 0


def end_in(double seconds, bytes text):
    """End this process with a message on stderr in so many seconds, unless called off before.

    Whatever keeps the interpreter meanwhile. A later call takes the place of an earlier one.
    """
    global _ends
    _ends += 1
    return bool(xl_end_in(seconds, _ends, text, len(text)))


def call_off():
    """Call `end_in` off."""
    xl_call_off()


def ask_python():
    """Ask whether the main thread executes Python; return False if that cannot be asked."""
    return bool(xpq_ask())


def answers():
    """Return how many questions of `ask_python` the main thread has answered."""
    return xpq_count()


def fence():
    """Order this thread's loads and stores."""
    xu_fence()


include "_call_trace.pxi"
include "_mpi_messages.pxi"
include "_user_functions.pxi"
include "_mpi_requests.pxi"


cdef class Team:
    """This thread's side of a team's sync area on its node."""

    cdef xu_team t
    cdef object keep
    cdef readonly uint64_t since  # the operation after which all threads continued from a mismatch
    cdef list records  # of the last calls, by operation: read after a mismatch
    cdef public bint blocked  # `Job.blocks`, as between notify and wait: no cached call may run
    cdef xg_queue q  # calls in the background
    cdef Instance ahead  # the barrier in it that follows many calls without one
    cdef object room  # an array of bytes, for calls that work on one that is not the program's

    def __cinit__(self, uintptr_t area, int n, int me, uintptr_t status, bint solo,
                  bint several,
                  bint counted, int spins, int yields, uint64_t nt_min, uintptr_t left,
                  uint64_t number, keep, uintptr_t ring=0, uintptr_t pids=0,
                  uintptr_t relatives=0, int nchildren=0):
        memset(&self.t, 0, sizeof(xu_team))
        memset(&self.q, 0, sizeof(xg_queue))
        xu_attach(&self.t, <char *>area, n, me)
        self.t.status = <xu_status *>status
        self.t.ring = <xu_ring *>ring
        self.t.solo = solo
        self.t.several = several
        self.t.mode = XU_COUNTER if counted else XU_FLAT
        cdef const int32_t *line = <const int32_t *>relatives
        if relatives:  # of the tree of barriers by levels: parent, children
            xu_join_tree(&self.t, line[0], line + 1, nchildren)
        self.t.spins = spins
        self.t.yields = yields
        self.t.nt_min = nt_min
        self.t.pids = <const int32_t *>pids
        self.t.left = <void *>left
        self.t.number = number
        self.t.progress = &_progress
        if _recording:
            self.t.trace = &_log
        self.keep = keep
        self.forget()

    def __dealloc__(self):
        xg_drop(&self.q)

    cdef int make_room(self, Py_ssize_t nbytes) except -1:
        """Have an array of at least so many bytes in `room`: calls in turn use the same one."""
        cdef cnp.npy_intp length = nbytes
        if self.room is None or self.room.nbytes < nbytes:
            self.room = cnp.PyArray_SimpleNew(1, &length, cnp.NPY_UINT8)
        return 0

    @property
    def op(self):
        return self.t.op

    @property
    def fp(self):
        return self.t.fp

    @property
    def epoch(self):
        return self.t.epoch

    @property
    def unsynced(self):
        return self.t.unsynced

    def wrote(self):
        """Note a write to another node's memory."""
        self.t.wrote = 1

    def spoil(self, uint64_t poison):
        """Make the fingerprint of this thread differ from all others, from the next barrier on."""
        self.t.poison = poison

    @property
    def unread(self):
        """Return the node index of a member whose array was not accessible, or None."""
        return self.t.unread - 1 if self.t.unread else None

    @property
    def debt(self):
        """Return the epoch of a led call that others may not have left yet; 0 if none."""
        # between notify and wait, the current epoch is not complete and proves nothing yet
        if self.t.led_epoch and self.t.led_epoch + self.blocked >= self.t.epoch:
            return self.t.led_epoch
        return 0

    @property
    def verified(self):
        """Return the last operation known to be the same call on all threads."""
        return self.t.verified

    def give_up(self):
        """Note a mismatch: until `restart` only a barrier's verdict ends a wait."""
        self.t.giving_up = 1

    def release_early(self):
        """Publish a mismatch for the current epoch before all threads have arrived."""
        xu_release(&self.t, 1)

    def set_value(self, uint64_t value):
        """Set the value that the next barrier carries; 0 matches any."""
        self.t.value = value

    def restart(self, uint64_t op, uint64_t epoch):
        """Continue after a mismatch from an operation number that all threads agree on."""
        self.t.op = self.since = op
        self.t.epoch = epoch
        self.t.fp = xu_mix(0, op)  # so that no tag equals an earlier one
        self.t.giving_up = 0
        self.t.poison = 0
        self.t.unread = 0
        self.t.unsynced = 0
        self.t.value = 0

    def fp_after(self, uint64_t op):
        """Return the running fingerprint after one of the last operations; 0 if not known."""
        if op <= self.since or op > self.t.op or self.t.op - op >= XU_SLOTS:
            return 0
        return self.t.history[op % XU_SLOTS]

    def record_of(self, uint64_t op):
        """Return the record of one of the last operations; None if not known."""
        return _read_record(self.records[op % XU_SLOTS]) if self.fp_after(op) else None

    def forget(self):
        """Keep no record of any call."""
        with nogil:
            xg_drop(&self.q)
        self.records = [None] * XU_SLOTS
        self.ahead = None
        self.q.ahead.in_ = NULL

    @property
    def in_flight(self):
        """Return whether calls in the background have not ended."""
        return self.q.first != NULL

    def settle(self):
        """Wait until the calls in the background have ended; each request has its error."""
        _settle(self, NULL)

    def mix(self, uint64_t hash):
        """Mix something into the running fingerprint without a call."""
        self.t.fp = xu_mix(self.t.fp, hash)


cdef class Program:
    """A lowered plan."""

    cdef xu_program p
    cdef xk_located located  # the kernel of a reduction of records
    cdef xu_step *steps
    cdef readonly int tickets
    cdef readonly bint large
    cdef readonly bint alone  # no step needs Python, and no other thread needs this one's polling
    cdef bint alone_if_traced
    cdef Function function  # the plan's function of the user's, if the core can run it
    cdef int traces  # how often it was traced
    cdef readonly object plan
    cdef readonly tuple python_steps
    cdef xm_plan messages

    def __cinit__(self, lowered, MessageEngine wire=None):
        plan = lowered.plan
        lanes = lowered.lanes
        cdef bytes first = b"".join(lanes[0]), both = first + b"".join(lanes[1])
        cdef Py_ssize_t size = sizeof(xu_step)
        self.steps = <xu_step *>calloc(len(both) // size + 1, size)
        if not self.steps:
            raise MemoryError
        memcpy(self.steps, <const char *>both, len(both))
        self.p.first[0] = 0
        self.p.end[0] = self.p.first[1] = len(first) // size
        self.p.end[1] = len(both) // size
        self.plan = plan
        if lowered.functions:
            self.trace()
        elif plan.kernel is not None and plan.kernel.code is not None:
            self.find(plan.kernel.code)
        self.p.steps = self.steps
        self.p.barriers = plan.barriers
        self.p.exchange = plan.led or len(plan.lanes[0]) == self.p.barriers == 1
        self.p.written = lowered.written
        self.tickets = plan.tickets
        self.python_steps = lowered.python_steps
        if wire is not None:
            _describe(&self.messages, wire, lowered)
        self.large = lowered.large
        self.alone = not self.python_steps and not plan.one_sided
        self.alone_if_traced = (len(self.python_steps) == lowered.functions > 0
                                and not plan.one_sided)

    def __dealloc__(self):
        free(self.steps)
        xm_end_plan(&self.messages)

    cdef int find(self, tuple code) except -1:
        """Take the kernel with a code of `kernel_base.Kernel`."""
        self.p.kernel = NULL
        if len(code) == 2:
            type_, op = code
            self.p.kernel = xk_find(type_, op)
        else:
            type_, op, size, value, index, width, has_sign = code
            if xk_locate(&self.located, type_, op, size, value, index, width, has_sign):
                self.p.kernel = &self.located.kernel
        if self.p.kernel == NULL:
            raise ValueError(f"no kernel {code}")
        return 0

    cdef int trace(self) except -1:
        """Trace the function of the plan; stop that if its globals change all the time."""
        self.function = None
        if self.traces < MOST_TRACES:
            self.traces += 1
            self.function = self.plan.kernel.traced()
        return 0


cdef class Instance:
    """A program bound to operands, ready to run again and again."""

    cdef xu_inst i
    cdef readonly Team team
    cdef readonly Program program
    cdef readonly tuple operands
    cdef readonly uint64_t hash
    cdef readonly uint64_t call
    cdef object noted  # its record, or a `_MovedRecord`
    cdef public object net
    cdef public object owner
    cdef public bint active
    cdef xm_call c  # its messages, and the whole of it
    cdef MessageEngine wire  # None: on one node
    cdef Function function  # the program's, as it was when the call began

    def __cinit__(self, Team team, Program program, operands, bases, uint64_t hash,
                  uint64_t call, record):
        cdef int k
        self.team = team
        self.program = program
        self.operands = tuple(operands)
        self.i.team = &team.t
        self.i.prog = &program.p
        self.c.in_ = &self.i
        for k, (base, stride) in enumerate(bases):
            self.i.base[k] = <char *><uintptr_t>base
            self.i.stride[k] = stride
        if len(bases) > XU_SLOT:
            self.i.slots = self.i.base[XU_SLOT]
        self.i.tickets = <uint8_t *>calloc(max(program.tickets, 1), 1)
        if not self.i.tickets:
            raise MemoryError
        self.hash = hash
        self.call = call
        self.noted = record

    def __dealloc__(self):
        free(self.i.tickets)
        free(self.i.offered)
        xm_end_mail(&self.c.mail)

    @property
    def plan(self):
        return self.program.plan

    @property
    def record(self):
        return _read_record(self.noted)

    @property
    def op(self):
        return self.i.op

    @property
    def fp(self):
        return self.i.fp

    cdef inline int _begin(self) except -1:
        if self.program.function is not None and not self.program.function.holds():
            self.program.trace()
        self.function = self.program.function
        if self.program.tickets:
            memset(self.i.tickets, 0, self.program.tickets)
        xm_begin(&self.c)
        if self.team.t.trace != NULL:
            self._record()
        xu_begin(&self.i, self.hash, self.call)
        if self.function is not None:
            self.i.kernel = &self.function.f.kernel
        self.team.records[<Py_ssize_t>(self.i.op % XU_SLOTS)] = self.noted
        return 0

    cdef int _record(self) except -1:
        """Note the kind and the line of a call that is recorded."""
        if not self.i.row.kind and _kind_of is not None:
            self.i.row.kind = _kind_of(self)
        self.i.row.line = _line()
        return 0

    def post(self):
        """Note that the program goes on: from now on the call's waits are none of its own."""
        self.team.t.posted = 1
        if self.team.t.trace != NULL:
            self.i.record = xt_move_out(&_log, self.i.record, &self.i.row)
            self.i.record.state = XT_POSTED

    def fail(self):
        """Note that the call ends by an exception."""
        xu_record_failure(&self.i)

    def claim(self):
        """Note that the program waits for a posted call."""
        self.team.t.posted = 0
        if self.team.t.trace != NULL and self.i.record.state == XT_POSTED:
            self.i.record.state = XT_CLAIMED

    cpdef begin(self):
        self.active = True
        self._begin()

    cpdef int run(self, uint64_t sleep_ns):
        """Continue the call; sleep only if sleep_ns > 0, and then for about that long."""
        cdef int r
        if sleep_ns or self.program.large or self.wire is not None:
            with nogil:
                r = xm_run(&self.c, sleep_ns, 0)
        else:
            r = xu_run(&self.i, 0)
        if self.wire is not None:
            self.wire.check(self)
        return r

    def poll(self):
        """Run as far as possible without waiting."""
        cdef xu_blocked b
        cdef int lanes
        cdef int r = xu_advance(&self.i, &b, &lanes)
        xu_probe(&self.i)
        return r

    def end(self):
        self.active = False
        self.team.t.posted = 0
        xu_end(&self.i)

    def withdraw(self):
        """Give the call up: from now on no other thread may access this thread's arrays."""
        if self.active:
            xu_withdraw(&self.i)

    def python_step(self, int lane):
        """Return the Python-side step that a lane is at, or None."""
        if self.i.pc[lane] >= self.program.p.end[lane]:
            return None
        cdef const xu_step *s = &self.program.steps[self.i.pc[lane]]
        cdef tuple steps = self.program.python_steps
        if s.kind == XS_FUNCTION:
            if self.i.kernel != NULL and not self.i.sub[lane]:
                return None  # the core has not reached it yet
            return steps[s.function.step]
        if s.kind == XS_PYTHON:
            return steps[s.python.step]
        if xm_knows(&self.c, s):
            return None
        if s.kind == XS_EXCHANGE:
            return steps[s.exchange.step]
        if s.kind == XS_SEND or s.kind == XS_RECV:
            return steps[s.messages.step]
        return None

    def computed(self, int lane):
        """Return whether the core has run the step of a lane and only a report is left."""
        return (self.program.steps[self.i.pc[lane]].kind == XS_FUNCTION
                and self.i.sub[lane] != 0)

    def report(self):
        """Raise or warn for floating-point errors in a function that the core has run."""
        self.program.plan.kernel.report(self.function)

    cpdef rebind(self, uintptr_t dst, uintptr_t src):
        """Set the addresses of private operands for the next call."""
        self.i.base[0] = <char *>dst
        self.i.base[1] = <char *>src
        if self.net is not None:
            self.operands[0].address = dst
            self.operands[1].address = src

    @property
    def at_barrier(self):
        """Return whether this thread has arrived at the team's current barrier in this call."""
        if self.i.pc[0] >= self.program.p.end[0]:
            return False
        cdef int kind = self.program.steps[self.i.pc[0]].kind
        if kind == XS_BARRIER or kind == XS_FUSE:
            return self.i.sub[0] > 0
        return kind in (XS_GATHER, XS_EXCHANGE, XS_RELEASE, XS_AWAIT, XS_CHECK)

    def suspect(self):
        """Return whether the shared memory of this node shows a mismatch."""
        return bool(xu_suspect(&self.i))

    def awaited(self):
        """Return members of this node that the call waits for, by local index."""
        cdef int32_t found[64]
        cdef int n = xu_awaited(&self.i, found, 64)
        return [found[k] for k in range(n)]

    @property
    def released(self):
        """Return whether the nodes have exchanged their fingerprints at the current barrier."""
        return (self.i.pc[0] < self.program.p.end[0]
                and self.program.steps[self.i.pc[0]].kind in (XS_RELEASE, XS_CHECK))

    def join(self, MessageEngine wire):
        """Set the message engine of the call."""
        self.c.mail.left = <int32_t *>calloc(self.program.tickets + 1, sizeof(int32_t))
        if not self.c.mail.left:
            raise MemoryError
        self.wire = wire
        self.c.wire = &wire.w
        self.c.plan = &self.program.messages

    def outdated(self, int lane):
        """Return whether MPI has freed a type of the messages that a lane is at."""
        cdef const xu_step *s = &self.program.steps[self.i.pc[lane]]
        return (s.kind == XS_SEND or s.kind == XS_RECV) and not xm_knows(&self.c, s)

    def renew(self, int lane, messages):
        """Set the messages that a lane is at: `protocol.StepMessages`, as many as before."""
        cdef xu_messages_row *row = &self.program.steps[self.i.pc[lane]].messages
        if len(messages.each) != row.count:
            raise ValueError(f"expected {row.count} messages, got {len(messages.each)}")
        _put(self.program.messages.messages + row.first, messages.each)
        row.types = messages.types

    @property
    def open(self):
        """Return the number of messages in flight."""
        return self.c.mail.open

    @property
    def peers(self):
        """Return the peers of messages in flight."""
        return {self.c.mail.ranks[k] for k in range(self.c.mail.open)}

    @property
    def moved(self):
        """Return whether messages were posted or completed since the last call."""
        cdef bint moved = self.c.moved
        self.c.moved = 0
        return moved

    def call_off(self):
        """Give its messages up; they are complete when none is `open`."""
        xm_call_off(&self.c)

    def look(self):
        """Test the messages in flight."""
        xm_look(&self.c)
        self.wire.check(self)

    def advance(self, int lane):
        cdef const xu_step *s = &self.program.steps[self.i.pc[lane]]
        self.i.pc[lane] += 1 + (s.function.rows if s.kind == XS_FUNCTION else 0)
        self.i.sub[lane] = 0

    def set_ticket(self, int ticket):
        self.i.tickets[ticket] = 1

    cpdef execute(self):
        """Run the whole call; XupcError if this process is running another one."""
        cdef int r
        if _hooks is not None and not _hooked:
            return _between_hooks(self, _hooks)
        if _run_count and _conflict(self.team):
            self.owner.job.callers.check(self.record.name, self.owner)
        _run_begins(self)
        try:
            self._begin()
            if self.program.large:
                with nogil:
                    r = xu_run(&self.i, 0)
            else:
                r = xu_run(&self.i, 0)
            if r == XU_PENDING and (self.program.alone or (
                    self.program.alone_if_traced and self.i.kernel != NULL)):
                # no step needs Python: sleep in the core before the return to Python
                with nogil:
                    r = xu_run(&self.i, XM_LOOK_UP_NS)
            elif self.wire is not None and not (
                    _exposed or self.team.blocked or self.program.plan.one_sided):
                # Python has nothing else to check meanwhile
                with nogil:
                    r = xm_run(&self.c, XM_LOOK_UP_NS, self.wire.w.patience)
            if r == XU_DONE and not self.c.mail.open:
                xu_end(&self.i)
                return None
            self.active = True
            xr_allow(XR_DEPTH)
            try:
                return _drive(self, r)
            except BaseException as e:
                _interrupted(self, e)
                raise
            finally:
                xr_allow(-XR_DEPTH)
        finally:
            _run_ends(self)


cdef inline bint _held(Team team) noexcept:
    """Return whether no cached call of a team may run."""
    return (team.blocked or _calls_out or _engaged or team.q.first != NULL
            or (_run_count and _conflict(team)))


include "_cached_calls.pxi"
include "_call_families.pxi"
include "_journal.pxi"
include "_repeated_calls.pxi"
include "_object_calls.pxi"
