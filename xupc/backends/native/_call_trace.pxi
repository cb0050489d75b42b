# Recorded calls (call_trace.h): the caller's line and the numbers of texts, and hooks around calls.

cdef extern from "call_trace.h" nogil:
    ctypedef struct xt_head:
        uint64_t count
    ctypedef struct xt_total:
        uint64_t calls
    ctypedef struct xt_clock:
        uint64_t mult
    ctypedef struct xt_log:
        xt_head *head
        xt_total *totals
        xt_row *rows
        xt_clock clock
        int busy
    xt_row *xt_move_out(xt_log *, xt_row *, xt_row *)
    void xt_start_clock(xt_clock *, int)
    uint64_t xt_now(xt_clock *)

cdef extern from *:
    """
    #define XT_PLACES 4096
    #define XT_INSIDE UINT32_MAX /* a line of xupc's own: its caller's counts */
    typedef struct {
        PyCodeObject *code;
        int at;
        uint32_t line;
    } xt_place;
    static xt_place xt_places[XT_PLACES];

    /* Return the address of the instruction that the interpreter is at; 0: it is not known how to
     * find that in this version of Python. It is one load where the public functions make objects. */
    #if PY_VERSION_HEX < 0x030e0000 && !defined(PYPY_VERSION)
    #ifndef Py_BUILD_CORE
    #define Py_BUILD_CORE 1
    #endif
    #include "internal/pycore_frame.h"
    static inline uintptr_t xt_instruction(void) {
    #if PY_VERSION_HEX >= 0x030d0000
        struct _PyInterpreterFrame *f = PyThreadState_Get()->current_frame;
        return f ? (uintptr_t)f->instr_ptr : 0;
    #else
        struct _PyInterpreterFrame *f = PyThreadState_Get()->cframe->current_frame;
        return f ? (uintptr_t)f->prev_instr : 0;
    #endif
    }
    #else
    static inline uintptr_t xt_instruction(void) { return 0; }
    #endif

    typedef struct {
        uintptr_t instruction;
        PyCodeObject *code; /* it holds the instruction */
        uint32_t line;
    } xt_site;
    static xt_site xt_sites[XT_PLACES];

    static void xt_remember(xt_site *site, uintptr_t instruction, PyCodeObject *code, uint32_t line) {
        Py_INCREF(code);
        Py_XDECREF(site->code);
        *site = (xt_site){instruction, code, line};
    }

    static xt_place *xt_place_of(PyCodeObject *code, int at) {
        return &xt_places[xt_hash((uint64_t)(uintptr_t)code ^ (uint64_t)at << 48) % XT_PLACES];
    }

    /* Return the number of the innermost line outside of xupc; -1: `frame` must be looked up.
     * The search begins at the caller of `inside`, a frame of xupc's; NULL: at the innermost frame.
     * It never goes back to a frame: two frames may have the same place, and only one is known. */
    static int64_t xt_line(PyObject *inside, PyObject **frame) {
        uintptr_t now = inside ? 0 : xt_instruction();
        xt_site *site = &xt_sites[(now >> 1 ^ now >> 13) % XT_PLACES];
        if (now && site->instruction == now) return site->line;
        PyFrameObject *f = inside ? PyFrame_GetBack((PyFrameObject *)inside)
                                  : PyThreadState_GetFrame(PyThreadState_Get());
        while (f) {
            PyCodeObject *code = PyFrame_GetCode(f);
            int at = PyFrame_GetLasti(f);
            xt_place *place = xt_place_of(code, at);
            int known = place->code == code && place->at == at;
            Py_DECREF(code); /* the frame has it, too */
            if (!known) {
                *frame = (PyObject *)f;
                return -1;
            }
            if (place->line != XT_INSIDE) {
                if (now) xt_remember(site, now, code, place->line);
                Py_DECREF(f);
                return place->line;
            }
            now = 0; /* the line depends on this frame's caller */
            PyFrameObject *back = PyFrame_GetBack(f);
            Py_DECREF(f);
            f = back;
        }
        return 0;
    }

    static void xt_learn(PyObject *frame, uint32_t line) {
        PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
        int at = PyFrame_GetLasti((PyFrameObject *)frame);
        xt_place *place = xt_place_of(code, at);
        Py_XDECREF(place->code);
        *place = (xt_place){code, at, line}; /* keeps it: no other code gets its address */
    }

    static void xt_forget(void) {
        for (int i = 0; i < XT_PLACES; i++) {
            Py_CLEAR(xt_places[i].code);
            Py_CLEAR(xt_sites[i].code);
            xt_sites[i].instruction = 0;
        }
    }
    """
    uint32_t XT_INSIDE
    int64_t xt_line(PyObject *, PyObject **)
    void xt_learn(object, uint32_t)
    void xt_forget()

cdef xt_log _log
cdef bint _recording = False
cdef object _kind_of = None
cdef object _line_of = None


def start_trace(uintptr_t head, uintptr_t totals, uintptr_t rows, bint counter, kind_of, line_of):
    """Record the calls of teams that are made from now on, in memory that is theirs until `end_trace`.

    `counter`: the processor's counter runs at a constant rate. `kind_of(instance)` returns the
    number of a kind of call. `line_of(frame)` returns that of a line, -1 if it is one of xupc's.
    """
    global _recording, _kind_of, _line_of
    _log.head, _log.totals = <xt_head *>head, <xt_total *>totals
    _log.rows, _log.busy = <xt_row *>rows, 0
    xt_start_clock(&_log.clock, counter)
    xt_forget()
    _kind_of, _line_of = kind_of, line_of
    _recording = True


def stop_trace():
    """Record no calls of new teams."""
    global _recording, _kind_of, _line_of
    _recording = False
    _kind_of = _line_of = None
    xt_forget()


def end_trace():
    """Forget the memory of the trace; no team that was recorded makes a call any more."""
    stop_trace()
    _log.head, _log.totals, _log.rows = NULL, NULL, NULL


def trace_now():
    """Return the time of the trace's clock."""
    return xt_now(&_log.clock)


cdef uint32_t _line() except? 0:
    """Return the number of the innermost line outside of xupc."""
    cdef PyObject *frame = NULL
    cdef int64_t found = xt_line(NULL, &frame)
    while found < 0:
        asked = <object>frame
        Py_DECREF(asked)  # a reference of its own
        number = 0 if _line_of is None else _line_of(asked)
        xt_learn(asked, XT_INSIDE if number < 0 else <uint32_t>number)
        found = number if number >= 0 else xt_line(<PyObject *>asked, &frame)
    return <uint32_t>found


# -- hooks -----------------------------------------------------------------------------------

cdef object _hooks = None  # (before, after)
cdef bint _hooked = False  # a call between hooks runs: calls inside it have none


def set_hooks(hooks):
    """Set what is called before and after each call: `(before(instance), after(state, error))`."""
    global _hooks
    _hooks = hooks


cdef object _between_hooks(Instance instance, tuple hooks):
    """Run the whole call between two hooks."""
    global _hooked
    cdef char *dst = instance.i.base[0]
    cdef char *src = instance.i.base[1]
    cdef uint64_t hash = instance.hash
    noted = instance.noted
    operands = () if instance.net is None else instance.operands[:2]
    placed = [(x, x.address, x.offset) for x in operands]
    _hooked = True
    try:
        state = hooks[0](instance)
        # a call of a hook may have bound the instance to other memory
        instance.i.base[0], instance.i.base[1] = dst, src
        instance.hash, instance.noted = hash, noted
        for x, address, offset in placed:
            x.address = address
            if x.offset != offset:
                x.offset = offset
        try:
            instance.execute()
        except BaseException as e:
            hooks[1](state, e)
            raise
        hooks[1](state, None)
    finally:
        _hooked = False
