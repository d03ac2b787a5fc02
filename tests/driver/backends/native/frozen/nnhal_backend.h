/*
 * nnhal_backend.h: how a native backend plugs into nnhal. Plain C99, no library to link with.
 *
 * A plug-in is a shared object named <Vendor>_<Name>_backend.so (or .so.1, .so.1.2, ...) that exports the three functions
 * at the end of this file. `nnhal backends doctor FILE` says what the host thinks of one; docs/backends.md is the guide,
 * example/Example_Simple_backend.c a complete plug-in.
 *
 * VERSIONS
 *   MAJOR changes when anything that was here changes its meaning, its place or its type.
 *   MINOR grows by one when members are appended at the end of a struct. Nothing is ever inserted, removed or reused.
 *   A plug-in loads when its major equals the host's, and its minor is not above the host's.
 *   Every struct that may grow starts with `struct_size`, set by the side that made it to its own sizeof. The other side
 *   reads a member only if it lies within that size. A member that is not there, or is NULL, has the default that stands
 *   beside it. So a plug-in that was built against 1.0 works with every host 1.x, without being built again.
 *   Structs that may grow are passed one by one or as arrays of pointers, never as arrays of structs.
 *
 * RULES
 *   Threads: functions may be called from any thread, and several at once, also on one object; of one compiled subgraph
 *   at most one `execute` runs at a time, unless the capability "ConcurrentExecution" is true.
 *   Errors: functions that return int32_t return an NnhalStatus, if nothing else is said. With an error they may write a
 *   text for the user into `reason`, UTF-8, at most `reason_size` bytes with the final 0; the host has put 0 there.
 *   Ownership: what the host passes in belongs to the host and may be read until the function returns, unless a longer
 *   life is stated. What the plug-in hands out belongs to the plug-in, and lives as long as is stated.
 *   No function may unwind (no C++ exception may leave it), end the process, or change signal handlers.
 */
#ifndef NNHAL_BACKEND_H
#define NNHAL_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#define NNHAL_BACKEND_MAJOR 1
#define NNHAL_BACKEND_MINOR 0

#ifdef __cplusplus
extern "C" {
#endif

/* The HAL's ErrorStatus. */
typedef enum NnhalStatus {
    NNHAL_NONE = 0,
    NNHAL_DEVICE_UNAVAILABLE = 1,
    NNHAL_GENERAL_FAILURE = 2,
    NNHAL_INVALID_ARGUMENT = 4,
    NNHAL_MISSED_DEADLINE_TRANSIENT = 5,
    NNHAL_MISSED_DEADLINE_PERSISTENT = 6,
    NNHAL_RESOURCE_EXHAUSTED_TRANSIENT = 7,
    NNHAL_RESOURCE_EXHAUSTED_PERSISTENT = 8
} NnhalStatus;

/* ---- Tensors: the layout of DLPack's DLTensor, so that either can be cast to the other. Never grows. ---- */

typedef struct NnhalDevice {
    int32_t device_type; /* DLDeviceType; 1 is the CPU, and the only one here */
    int32_t device_id;
} NnhalDevice;

typedef struct NnhalDataType {
    uint8_t code;   /* DLDataTypeCode: 0 int, 1 unsigned int, 2 float, 6 bool */
    uint8_t bits;   /* of one element */
    uint16_t lanes; /* 1 */
} NnhalDataType;

typedef struct NnhalTensor {
    void *data; /* first element, aligned for its type and no more; inputs and constants must not be written */
    NnhalDevice device;
    int32_t ndim; /* 0 for a scalar */
    NnhalDataType dtype;
    int64_t *shape;   /* ndim numbers */
    int64_t *strides; /* ndim numbers, in elements. Row-major without gaps, unless "StridedInputs" is true */
    uint64_t byte_offset; /* 0 */
} NnhalTensor;

/* ---- Subgraphs: what is to be run. Made by the host. ---- */

typedef struct NnhalOperand {
    size_t struct_size;
    int32_t type;               /* the HAL's OperandType, 3 is TENSOR_FLOAT32 */
    uint32_t rank;              /* 0: a scalar, or a tensor of unknown rank */
    const uint32_t *dimensions; /* rank numbers; 0 is unknown until execution */
    float scale;                /* of quantised types, else 0 */
    int32_t zero_point;
    uint32_t channel_count; /* of TENSOR_QUANT8_SYMM_PER_CHANNEL, else 0 */
    uint32_t channel_dim;
    const float *channel_scales; /* channel_count numbers */
    int32_t omitted;             /* 1: an optional argument that is left out */
    const NnhalTensor *constant; /* its value; NULL when it is known only at execution */
} NnhalOperand;

typedef struct NnhalOperation {
    size_t struct_size;
    int32_t type;          /* the HAL's OperationType; of an extension: the low 16 bits, its own number */
    const char *extension; /* name of the extension that the operation belongs to; NULL for the HAL's own */
    uint32_t input_count;
    const uint32_t *inputs; /* indexes of NnhalSubgraph.operands, in the order of the HAL's signature */
    uint32_t output_count;
    const uint32_t *outputs;
} NnhalOperation;

typedef struct NnhalSubgraph {
    size_t struct_size;
    uint32_t operand_count;
    const NnhalOperand *const *operands; /* those that the operations name, and no others */
    uint32_t operation_count;
    const NnhalOperation *const *operations; /* in an order of execution */
    uint32_t input_count;
    const uint32_t *inputs; /* operands that come with each execution */
    uint32_t output_count;
    const uint32_t *outputs; /* operands that each execution delivers */
    int32_t relaxed;         /* 1: float32 may be computed in half precision */
    int32_t preference;      /* the HAL's ExecutionPreference */
} NnhalSubgraph;

/* ---- One execution. Made by the host; lives until `execute` returns. ---- */

typedef struct NnhalExecution {
    size_t struct_size;
    void *context; /* the host's; to be passed to the functions below */
    uint32_t input_count;
    const NnhalTensor *const *inputs; /* for each of NnhalSubgraph.inputs; NULL for an omitted one */
    uint32_t output_count;

    /* Gives the memory of output `index` (of NnhalSubgraph.outputs) in its final shape, row-major without gaps. To be
     * called once for each output. `shape` is read at once; the tensor lives until `execute` returns. NULL: the host
     * refuses (memory, limits, a shape other than declared); return any error, the host knows the reason. */
    const NnhalTensor *(*output)(void *context, uint32_t index, int32_t ndim, const int64_t *shape);

    /* To be called between operations: 0 go on; else the execution was cancelled or is too late, return any error. */
    int32_t (*check)(void *context);

    /* (optional, may be NULL) Profiling: tells that work called `name` began at `start_ns` of CLOCK_MONOTONIC and took
     * `duration_ns`. `name` is read at once. NULL if the execution is not profiled: measure nothing then. */
    void (*span)(void *context, const char *name, uint64_t start_ns, uint64_t duration_ns);
} NnhalExecution;

/* ---- What the plug-in hands out ---- */

/* A named property. Never grows. Names that the host knows:
 *   "ConcurrentExecution"  one compiled subgraph may be executed by several threads at once
 *   "StridedInputs"        inputs may have any strides, else the host makes them row-major without gaps
 * Others are shown to users, e.g. Arm NN's "ProtectedContentAllocation". */
typedef struct NnhalCapability {
    const char *name;
    int32_t value; /* 0 or 1 */
} NnhalCapability;

typedef struct NnhalCompiled NnhalCompiled; /* the plug-in's own; the host only carries its address */

/* Where a compiled subgraph is saved. Made by the host; lives until `save` returns. */
typedef struct NnhalSink {
    size_t struct_size;
    void *context; /* the host's; to be passed to `write` */

    /* Appends bytes, which are read at once. May be called any number of times. */
    int32_t (*write)(void *context, const void *bytes, size_t size);
} NnhalSink;

typedef struct NnhalBackend NnhalBackend;

/* The table of functions of one backend object. Made by the plug-in. */
struct NnhalBackend {
    size_t struct_size;  /* sizeof(NnhalBackend) */
    uint32_t major;      /* NNHAL_BACKEND_MAJOR, as GetVersion says */
    uint32_t minor;      /* NNHAL_BACKEND_MINOR, as GetVersion says */
    void *state;         /* the plug-in's own; the host does not look at it */
    const char *version; /* of the backend itself, not empty; lives as long as the object */

    /* Frees the object, the table included. Called once, after `release` of all that it compiled; not called when the
     * process ends first. */
    void (*destroy)(NnhalBackend *self);

    /* Layer support: whether the operation (`one` holds exactly one) would run. 1 yes, which promises that it compiles;
     * 0 no, with the reason. */
    int32_t (*supports)(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size);

    /* Makes a subgraph ready to run; every operation in it was supported. `subgraph` with all it points to, constants
     * too, lives until `release`. `*compiled` belongs to the plug-in until then. */
    int32_t (*compile)(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **compiled, char *reason,
                       size_t reason_size);

    /* Runs it once. */
    int32_t (*execute)(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size);

    /* Frees what `compile` or `load` made. Called once for each. */
    void (*release)(NnhalBackend *self, NnhalCompiled *compiled);

    /* (optional) Properties; `*count` of them, living as long as the object. Default: none. */
    const NnhalCapability *(*capabilities)(NnhalBackend *self, size_t *count);

    /* (optional) Time and power as ratios to the CPU, lower is better, above 0. Default: 1 and 1. */
    void (*performance)(NnhalBackend *self, float *exec_time, float *power_usage);

    /* (optional) Names of vendor extensions of which it takes operations, e.g. "com.example.simple"; `*count` of them,
     * living as long as the object. Default: none. */
    const char *const *(*extensions)(NnhalBackend *self, size_t *count);

    /* (optional) Writes what `load` needs, so that a warm start compiles nothing. The result is sealed: `load` gets the
     * same bytes or is not called. Default: compiled again. */
    int32_t (*save)(NnhalBackend *self, NnhalCompiled *compiled, const NnhalSink *sink, char *reason,
                    size_t reason_size);

    /* (optional, goes with `save`) As `compile`, from what `save` wrote; `bytes` live until it returns. It may fail:
     * then the cache is of no use, and the client prepares again. */
    int32_t (*load)(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t size,
                    NnhalCompiled **compiled, char *reason, size_t reason_size);

    /* (optional) The backend's own allocator: memory for an output, `size` > 0 bytes at a multiple of 64; NULL if
     * allocation fails. It lives until `free_buffer`, which may come long after the execution. Default: the host's. */
    void *(*allocate_buffer)(NnhalBackend *self, size_t size);

    /* (goes with `allocate_buffer`) Gives memory back, once; from any thread. */
    void (*free_buffer)(NnhalBackend *self, void *buffer, size_t size);

    /* (optional) Around loading and unloading: `network` is a number that names one compiled subgraph of this object,
     * never used twice. after_load is not called when compiling failed. Default: nothing. */
    void (*before_load)(NnhalBackend *self, uint64_t network);
    void (*after_load)(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled);
    void (*before_unload)(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled);
    void (*after_unload)(NnhalBackend *self, uint64_t network);

    /* (optional) Before the first execution, and before each whose inputs have other shapes than the one before:
     * resize_begin, then resize with the inputs, then resize_end. A place to plan memory. An error of `resize` is that
     * of the execution. Not called with "ConcurrentExecution". Default: nothing. */
    void (*resize_begin)(NnhalBackend *self, NnhalCompiled *compiled);
    int32_t (*resize)(NnhalBackend *self, NnhalCompiled *compiled, uint32_t input_count,
                      const NnhalTensor *const *inputs, char *reason, size_t reason_size);
    void (*resize_end)(NnhalBackend *self, NnhalCompiled *compiled);

    /* (optional) Around each `execute`, also when it fails: a place to acquire and release memory. Default: nothing. */
    void (*execute_begin)(NnhalBackend *self, NnhalCompiled *compiled);
    void (*execute_end)(NnhalBackend *self, NnhalCompiled *compiled);

    /* (optional) For a backend whose `execute` returns early: waits until all outputs are written. Called after an
     * `execute` that gave NNHAL_NONE, before execute_end. Default: execute has finished when it returns. */
    int32_t (*wait_finish)(NnhalBackend *self, NnhalCompiled *compiled, char *reason, size_t reason_size);
};

/* ---- The three entry points. All are required. ---- */

#if defined(__GNUC__)
#define NNHAL_EXPORT __attribute__((visibility("default")))
#else
#define NNHAL_EXPORT
#endif

/* The id, unique among backends; lives as long as the library is loaded. */
NNHAL_EXPORT const char *GetBackendId(void);

/* The version of this header that the plug-in was built with: NNHAL_BACKEND_MAJOR and NNHAL_BACKEND_MINOR. */
NNHAL_EXPORT void GetVersion(uint32_t *major, uint32_t *minor);

/* A new object, which belongs to the host until it calls `destroy`; NULL when none can be made. Called once for each
 * device, so that there may be several at once. */
NNHAL_EXPORT void *BackendFactory(void);

#ifdef __cplusplus
}
#endif
#endif
