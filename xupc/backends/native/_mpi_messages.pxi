# Messages between nodes without Python between the steps of a call: the binding of mpi_messages.h.
# plan_messages.py does the same in Python, for jobs without the core.

cdef extern from "pthread.h" nogil:
    ctypedef void *pthread_t
    pthread_t pthread_self()

cdef extern from "mpi_messages.h" nogil:
    ctypedef struct xm_mpi:
        uintptr_t isend, irecv, testall, testsome, cancel, byte, comm
        int64_t handle
    ctypedef struct xm_head:
        pass
    ctypedef struct xm_exchange:
        const xm_mpi *mpi
        int32_t rounds, slots
        const int32_t *end
        const int32_t *to
        const int32_t *of
        int64_t room
        char *in_ "in"
        char *taken
        int32_t round, error
    ctypedef struct xm_piece:
        int32_t slot, operand
        int64_t at, n
    ctypedef struct xm_message_of:
        int32_t rank, operand
        int64_t at, n
        uintptr_t type
    ctypedef struct xm_plan:
        xm_message_of *messages
        xm_piece *sends
        xm_piece *recvs
    ctypedef struct xm_mail:
        int32_t open
        int32_t *left
        int32_t *ranks
        int32_t error
    ctypedef struct xm_wire:
        xm_mpi mpi
        int32_t tag_bits, low_bits, turns, kinds, barrier, again
        int64_t patience
        xm_exchange x
        int32_t early
    ctypedef struct xm_call:
        xu_inst *in_ "in"
        xm_wire *wire
        const xm_plan *plan
        xm_mail mail
        int32_t moved
    ctypedef struct xm_progress:
        uintptr_t testall
        char request[8]
        int32_t any_thread
        pthread_t main_thread
    xm_progress xm_progress_of
    void xm_enter()
    uint32_t xm_types
    int XM_FAILED, XM_NO_MEMORY, XM_LOOK_UP_NS
    int xm_make(xm_exchange *)
    void xm_free(xm_exchange *)
    int xm_missing(xm_exchange *, int32_t)
    int32_t xm_tag(const xm_wire *, uint64_t, int32_t)
    int xm_knows(const xm_call *, const xu_step *)
    int xm_look(xm_call *)
    void xm_call_off(xm_call *)
    int xm_run(xm_call *, uint64_t, int64_t)
    void xm_begin(xm_call *)
    void xm_end_plan(xm_plan *)
    void xm_end_mail(xm_mail *)

cdef xp_policy _progress
_progress.enter = NULL


def make_progress(functions, uintptr_t request, bint any_thread, uint64_t soon_ns,
                  uint64_t most_ns, uint64_t part, bint crowded):
    """Make waits call MPI's progress, by tests of a request that never completes.

    `functions`: see `MpiContext.functions`. `any_thread`: whether MPI may be called by another
    thread than the one that calls this. `soon_ns`, `most_ns`, `part`: see mpi_progress.h.
    `crowded`: whether there are more threads than cores.
    """
    cdef char *handle = <char *>&request
    cdef uint32_t narrow = <uint32_t>request
    testall, size = functions[2], functions[6]
    if size == sizeof(narrow):
        handle = <char *>&narrow
    memcpy(xm_progress_of.request, handle, size)
    xm_progress_of.testall = testall
    xm_progress_of.any_thread = any_thread
    xm_progress_of.main_thread = pthread_self()
    _progress.soon_ns, _progress.most_ns, _progress.part = soon_ns, most_ns, part
    _progress.clock = CLOCK_THREAD_CPUTIME_ID if crowded else CLOCK_MONOTONIC
    _progress.enter = xm_enter
    with nogil:
        xp_try(&_progress)


def no_progress():
    """Stop progress: the request is about to be freed."""
    _progress.enter = NULL


def catch_up_with_mpi():
    """Make steps of MPI's progress until MPI has nothing to do."""
    if _progress.enter != NULL:
        with nogil:
            xp_catch_up(&_progress)


def step_of_progress():
    """Make one step of MPI's progress; return whether MPI had something to do."""
    cdef bint found = False
    if _progress.enter != NULL:
        with nogil:
            found = xp_cold_step(&_progress)
    return found


cdef bint _exposed = False


def expose(bint exposed):
    """Set whether others may read memory here one-sided: then waits make MPI's progress."""
    global _exposed
    _exposed = exposed


def types():
    """Return 1 + the number of datatypes freed so far."""
    return xm_types


def type_freed():
    """Note that a datatype was freed which messages may name."""
    global xm_types
    xm_types += 1


cdef class MessageEngine:
    """The message engine of a team that spans nodes.

    `functions`: see `MpiContext.functions`. `tags`: see `tags.tag_of`; the kinds are those of an
    exchange and of its repetition. `rounds`: of a node root's exchange, each the ranks to whom and
    from whom messages go. `room`: bytes of the longest one that any call exchanges. `failed` makes
    an exception of an error of MPI's. `patience`: nanoseconds to test for before Python looks round.
    """

    cdef xm_wire w
    cdef int32_t *ranks  # ends of all rounds, then to, then of
    cdef object failed

    def __cinit__(self, functions, uintptr_t comm, tags, rounds, int64_t room, failed,
                  int64_t patience):
        cdef int32_t k = 0, r, slots = sum([len(to) for to, _ in rounds])
        cdef xm_exchange *x = &self.w.x
        self.ranks = <int32_t *>calloc(len(rounds) + 2 * slots + 1, sizeof(int32_t))
        if not self.ranks:
            raise MemoryError
        x.end = self.ranks
        x.to = self.ranks + len(rounds)
        x.of = x.to + slots
        for r, (to, of) in enumerate(rounds):
            for there, here in zip(to, of, strict=True):
                self.ranks[len(rounds) + k] = there
                self.ranks[len(rounds) + slots + k] = here
                k += 1
            self.ranks[r] = k
        (self.w.mpi.isend, self.w.mpi.irecv, self.w.mpi.testall, self.w.mpi.testsome,
         self.w.mpi.cancel, self.w.mpi.byte, self.w.mpi.handle) = functions
        (self.w.low_bits, self.w.tag_bits, self.w.turns, self.w.kinds, self.w.barrier,
         self.w.again) = tags
        self.w.mpi.comm = comm
        self.w.patience = patience
        self.failed = failed
        x.mpi = &self.w.mpi
        x.rounds = len(rounds)
        x.slots = slots
        x.room = room
        if not xm_make(x):
            raise MemoryError

    def __dealloc__(self):
        if self.w.x.round < 0:
            free(self.ranks)
        xm_free(&self.w.x)

    @property
    def exchanging(self):
        """Return whether the exchange of this node root is in progress."""
        return self.w.x.round >= 0

    @property
    def missing(self):
        """Return the ranks whose message of the exchange has not arrived."""
        cdef xm_exchange *x = &self.w.x
        return sorted({x.of[i] for i in range(x.slots) if xm_missing(x, i)})

    def look_out(self):
        """Note that Python may have received messages of the next exchange; `take` is due."""
        self.w.early = 1

    def take(self, Team team, dict early):
        """Take the messages that arrived before the next exchange, by sender and tag."""
        cdef xm_exchange *x = &self.w.x
        cdef int32_t i, tag = xm_tag(&self.w, team.t.epoch, self.w.barrier)
        self.w.early = 0
        for i in range(x.slots):
            data = early.pop((x.of[i], tag), None)
            if data is not None:
                memcpy(x.in_ + i * x.room, <const char *>(<bytes>data), len(data))
                x.taken[i] = 1

    cdef int slot_of(self, int rank) except -1:
        for i in range(self.w.x.slots):
            if self.w.x.to[i] == rank:
                return i
        raise KeyError(rank)

    cdef int fits(self, list rows) except -1:
        """Check that pieces fit into the messages of the exchange; else an algorithm is wrong."""
        cdef dict left = {}
        for rank, _, _, n in rows:
            left[rank] = left.get(rank, self.w.x.room - sizeof(xm_head)) - n
        if min(left.values(), default=0) < 0:
            raise ValueError(f"more than {self.w.x.room} bytes go along with an exchange")
        return 0

    cdef int check(self, Instance call) except -1:
        """Raise the error of MPI, if there is one."""
        cdef int error = call.c.mail.error or self.w.x.error
        if error == XM_NO_MEMORY:
            raise MemoryError
        if error:
            raise self.failed(error)
        return 0


cdef xm_piece *_pieces(MessageEngine wire, list rows) except NULL:
    cdef xm_piece *found = <xm_piece *>calloc(len(rows) + 1, sizeof(xm_piece))
    if not found:
        raise MemoryError
    for k, (rank, operand, at, n) in enumerate(rows):
        found[k].slot = wire.slot_of(rank)
        found[k].operand, found[k].at, found[k].n = operand, at, n
    return found


cdef int _put(xm_message_of *room, messages) except -1:
    """Write descriptions of messages, as in `protocol.StepMessages`."""
    cdef xm_message_of *m = room
    for rank, operand, at, count, type_ in messages:
        m.rank, m.operand, m.at, m.n, m.type = rank, operand, at, count, type_
        m += 1
    return 0


cdef int _describe(xm_plan *p, MessageEngine wire, lowered) except -1:
    """Set the messages of a lowered plan, and the data that goes along with its exchange."""
    p.messages = <xm_message_of *>calloc(len(lowered.messages) + 1, sizeof(xm_message_of))
    if not p.messages:
        raise MemoryError
    _put(p.messages, lowered.messages)
    wire.fits(lowered.led_sends)
    wire.fits(lowered.led_recvs)
    p.sends = _pieces(wire, lowered.led_sends)
    p.recvs = _pieces(wire, lowered.led_recvs)
    return 0
