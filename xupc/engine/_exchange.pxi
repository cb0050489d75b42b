# Barriers between nodes, part of _core.pyx: what node roots do there without Python.
#
# The same in Python, for jobs without the core, is `live.NetBarrier`.

cdef extern from "messages.h" nogil:
    ctypedef struct xm_mpi:
        uintptr_t isend, irecv, testall, byte
        int64_t handle
    ctypedef struct xm_head:
        uint64_t low, high, value, flags
    ctypedef struct xm_exchange:
        xm_mpi mpi
        uintptr_t comm
        int32_t rounds, slots
        const int32_t *end
        const int32_t *to
        const int32_t *of
        int64_t room
        char *in_ "in"
        char *taken
        int32_t round, error
        xm_head head
    ctypedef struct xm_piece:
        int32_t slot, operand
        int64_t at, n
    int XM_CONFLICT, XM_WROTE, XM_FAILED, XM_OPEN, XM_OVER
    int xm_make(xm_exchange *)
    void xm_free(xm_exchange *)
    int xm_start(xm_exchange *, int32_t, xm_head)
    int xm_wait(xm_exchange *, int64_t)
    int xm_missing(xm_exchange *, int32_t)
    void xm_load(xm_exchange *, const xm_piece *, int32_t, char **)
    void xm_deliver(xm_exchange *, const xm_piece *, int32_t, char **)

HEAD = sizeof(xm_head)

cdef bint _exposed = False


def expose(bint exposed):
    """Whether others may read memory here one-sided, so that a wait must look at MPI."""
    global _exposed
    _exposed = exposed


cdef class Exchange:
    """What a node root has to meet the others of its team with: one exchange at a time.

    `functions`: see `Network.functions`. `rounds`: of each, the ranks to whom and from whom
    messages go. `room`: bytes of the longest message of any call. `early`: messages that came
    before, by sender and tag. `tags`: see `mpi.tag_of`; the kinds are those of an exchange and of a
    repetition. `failed` makes an exception of an error of MPI's. `patience`: nanoseconds that it is
    worth to wait without a look at anything else.
    """

    cdef xm_exchange x
    cdef int32_t *ranks  # all ends of rounds, then to, then of
    cdef dict early
    cdef object failed
    cdef int32_t turns, kinds, kind, kind_again
    cdef int64_t patience
    cdef bint again  # it is repeated

    def __cinit__(self, functions, uintptr_t comm, rounds, int64_t room, dict early, tags, failed,
                  int64_t patience):
        cdef int32_t slots = 0
        cdef int32_t k, r
        for to, _ in rounds:
            slots += len(to)
        self.ranks = <int32_t *>calloc(len(rounds) + 2 * slots + 1, sizeof(int32_t))
        if not self.ranks:
            raise MemoryError
        self.x.end = self.ranks
        self.x.to = self.ranks + len(rounds)
        self.x.of = self.x.to + slots
        k = 0
        for r, (to, of) in enumerate(rounds):
            for there, here in zip(to, of, strict=True):
                self.ranks[len(rounds) + k] = there
                self.ranks[len(rounds) + slots + k] = here
                k += 1
            self.ranks[r] = k
        (self.x.mpi.isend, self.x.mpi.irecv, self.x.mpi.testall, self.x.mpi.byte,
         self.x.mpi.handle) = functions
        self.x.comm = comm
        self.x.rounds = len(rounds)
        self.x.slots = slots
        self.x.room = room
        self.early = early
        self.turns, self.kinds, self.kind, self.kind_again = tags
        self.failed = failed
        self.patience = patience
        if not xm_make(&self.x):
            raise MemoryError

    def __dealloc__(self):
        if self.x.round < 0:
            free(self.ranks)
        xm_free(&self.x)

    @property
    def under_way(self):
        return self.x.round >= 0

    @property
    def missing(self):
        """Ranks whose message has not come."""
        return sorted({self.x.of[i] for i in range(self.x.slots) if xm_missing(&self.x, i)})

    def slot_of(self, int rank):
        """Where what goes to a node root, or comes from it, has its place."""
        for i in range(self.x.slots):
            if self.x.to[i] == rank:
                return i
        raise KeyError(rank)

    cdef int _begin(self, Team team, Route route, char **bases) except -2:
        cdef int32_t turn = <int32_t>(team.t.epoch % <uint64_t>self.turns)
        cdef int32_t tag = turn * self.kinds + (self.kind_again if self.again else self.kind)
        cdef xm_head mine
        cdef int32_t i
        mine.low, mine.high, mine.value = team.t.node_min, team.t.node_max, team.t.node_value
        mine.flags = (XM_CONFLICT if team.t.node_conflict else 0)
        mine.flags |= (XM_WROTE if team.t.node_wrote else 0)
        if self.early:
            for i in range(self.x.slots):
                data = self.early.pop((self.x.of[i], tag), None)
                if data is not None:
                    memcpy(self.x.in_ + i * self.x.room, <const char *>data, len(data))
                    self.x.taken[i] = 1
        if route is not None:
            xm_load(&self.x, route.sends, route.sent, bases)
        return xm_start(&self.x, tag, mine)


cdef class Route:
    """What a call that node roots lead sends along and gets: pieces of (rank, operand, at, bytes).

    `before`: rows of the call that make the data, to be done again if it is sent again.
    """

    cdef xm_piece *sends
    cdef xm_piece *recvs
    cdef int32_t sent, received, before

    def __cinit__(self, Exchange exchange, sends, recvs, int32_t before):
        cdef int k
        self.sends = <xm_piece *>calloc(len(sends) + len(recvs) + 1, sizeof(xm_piece))
        if not self.sends:
            raise MemoryError
        self.sent, self.received, self.before = len(sends), len(recvs), before
        self.recvs = self.sends + self.sent
        for k, (rank, operand, at, n) in enumerate([*sends, *recvs]):
            self.sends[k].slot = exchange.slot_of(rank)
            self.sends[k].operand, self.sends[k].at, self.sends[k].n = operand, at, n

    def __dealloc__(self):
        free(self.sends)


cdef int _meet(Instance call, int64_t patience) except -2:
    """Go on with the exchange at which a call's node lane stands.

    XM_OVER: it is over, and the lane goes on (or back, to do it again). XM_FAILED: `failed` says
    what MPI said.
    """
    cdef Exchange e = call.exchange
    cdef Route route = call.route
    cdef Team team = call.team
    cdef int state = XM_OPEN
    if e.x.round < 0:
        state = e._begin(team, route, call.i.base)
    if state == XM_OPEN:
        with nogil:
            state = xm_wait(&e.x, patience)
    if state != XM_OVER:
        return state
    cdef bint differs = (e.x.head.low != e.x.head.high or e.x.head.flags & XM_CONFLICT)
    if route is not None and not differs:
        if e.x.head.flags & XM_WROTE and not e.again:
            # somebody wrote to another node's memory before he came: once more
            e.again = True
            call.i.pc[0] -= route.before
            return XM_OVER
        xm_deliver(&e.x, route.recvs, route.received, call.i.base)
    e.again = False
    team.t.verdict = differs
    if not differs:
        team.verified = call.i.op
    call.i.pc[0] += 1
    return XM_OVER


cdef int _go_on(Instance call, int r):
    """As far as a call of barriers gets without Python in a few milliseconds; the outcome."""
    cdef int state
    while True:
        if r == XU_PENDING:
            # for my node: nobody else needs me
            with nogil:
                r = xu_run(&call.i, FIRST_SLEEP_NS)
        if r != XU_CALL_PYTHON:
            return r
        state = _meet(call, call.exchange.patience)
        if state != XM_OVER:
            return r  # whoever waits in Python goes on, and raises what is wrong
        r = xu_run(&call.i, 0)
