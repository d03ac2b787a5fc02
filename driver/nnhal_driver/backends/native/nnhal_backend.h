/*
 * nnhal_backend.h: C99 interface of native backends for nnhal. It needs no library.
 *
 * A plug-in is a shared object named <Vendor>_<Name>_backend.so (or .so.1, .so.1.2, ...) that exports the three
 * functions at the end of this file. `nnhal backends doctor FILE` checks a plug-in. docs/backends.md is the guide, and
 * example/Example_Simple_backend.c is a complete plug-in.
 *
 * VERSIONS
 *   MAJOR changes if the meaning, the position or the type of an existing declaration changes.
 *   MINOR increases by one if members are appended to a struct. Members are never inserted, removed or reused.
 *   A plug-in loads if its major version equals the host's, and its minor version is not higher than the host's.
 *   Every struct that may grow starts with `struct_size`: its sizeof on the side that created it. The other side reads
 *   a member only if it lies within that size. A missing or NULL member has its documented default. So a plug-in built
 *   for 1.0 works with every host 1.x without being rebuilt.
 *   Structs that may grow are passed by pointer or as arrays of pointers, never as arrays of structs.
 *   1.0: everything without another version number.
 *   1.1: optimize, layouts and operand_types; planned memory; operation_span; the capability "CopiesInputs".
 *   1.2: the network of a subgraph, and hooks for networks; check in a subgraph; use_allocator; device_type; and
 *        BackendFactoryWithOptions. For devices: defer and wait_deferred, device_operands and buffers, block_allocated.
 *
 * RULES
 *   Threads: functions may be called from any thread, and from several at the same time, also for the same object.
 *   One compiled subgraph runs at most one `execute` at a time, unless the capability "ConcurrentExecution" is true.
 *   Errors: functions that return int32_t return an NnhalStatus, unless documented otherwise. On an error they may
 *   write a text for the user to `reason`: UTF-8, at most `reason_size` bytes including the final 0. It is empty at first.
 *   Ownership: arguments belong to the host. They are valid until the function returns, unless documented otherwise.
 *   Results belong to the plug-in. They must be valid as long as documented.
 *   No function may unwind (no C++ exception may leave it), end the process, or change signal handlers.
 */
#ifndef NNHAL_BACKEND_H
#define NNHAL_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#define NNHAL_BACKEND_MAJOR 1
#define NNHAL_BACKEND_MINOR 2

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

/* ---- Tensors: the layout of DLPack's DLTensor, so pointers can be cast. Never grows. ---- */

typedef struct NnhalDevice {
    int32_t device_type; /* DLDeviceType: 1, the CPU; 12 for buffers of the plug-in (1.2, see device_operands) */
    int32_t device_id;
} NnhalDevice;

typedef struct NnhalDataType {
    uint8_t code;   /* DLDataTypeCode: 0 int, 1 unsigned int, 2 float, 6 bool */
    uint8_t bits;   /* per element */
    uint16_t lanes; /* 1; for operand types of extensions (1.1) the bytes per element, with code 1 and bits 8 */
} NnhalDataType;

typedef struct NnhalTensor {
    void *data; /* first element, with the alignment of its type; inputs and constants are read-only */
    NnhalDevice device;
    int32_t ndim; /* 0 for a scalar */
    NnhalDataType dtype;
    int64_t *shape;   /* ndim numbers */
    int64_t *strides; /* ndim numbers, in elements; row-major without gaps, unless "StridedInputs" is true */
    uint64_t byte_offset; /* 0 */
} NnhalTensor;

/* ---- Planned memory (1.1): pieces of one block. They share bytes if their lifetimes do not overlap. ---- */

typedef enum NnhalStorage {
    NNHAL_STATIC = 0,          /* separate memory, allocated immediately and valid until `put` or `release` */
    NNHAL_DYNAMIC = 1,         /* valid during an execution; pieces requested after its `put` may reuse its bytes */
    NNHAL_DYNAMIC_SEPARATE = 2 /* valid during an execution; does not share its bytes */
} NnhalStorage;

typedef enum NnhalMemoryMode {
    NNHAL_NORMAL = 0, /* the block stays allocated between executions */
    NNHAL_LIMIT = 1   /* the block is freed after each execution: the client prefers low power */
} NnhalMemoryMode;

/* Planner of the memory of one compiled subgraph. Created by the host, valid as long as its NnhalSubgraph. Call these
 * functions from one thread at a time, in the order of execution, while planning: in `compile`, `load` and `resize`,
 * and between `part` and `substitute`. At other times they fail. The block comes from `allocate_buffer` if the plug-in
 * has it. A subgraph with pieces is executed by one thread at a time, regardless of its capabilities. */
typedef struct NnhalMemory {
    size_t struct_size;
    void *context; /* belongs to the host; pass it to the functions below */
    int32_t mode;  /* an NnhalMemoryMode, for information: the host implements it */

    /* Requests `size` bytes at a multiple of 64. `*piece` is the index in NnhalExecution.pieces, from 0. */
    int32_t (*get)(void *context, size_t size, int32_t storage, uint32_t *piece);

    /* Ends the lifetime of a piece: later steps of an execution do not use it. At most once for each piece. */
    int32_t (*put)(void *context, uint32_t piece);

    /* Returns the bytes of a STATIC piece, for example for weights; NULL for others (see NnhalExecution.pieces). */
    void *(*bytes)(void *context, uint32_t piece);

    /* Removes all pieces except STATIC ones, to plan again. Their numbers may be reused. */
    void (*clear)(void *context);
} NnhalMemory;

/* ---- Subgraphs. Created by the host. ---- */

typedef struct NnhalOperand {
    size_t struct_size;
    int32_t type;               /* the HAL's OperandType (3 is TENSOR_FLOAT32); of an extension: the low 16 bits */
    uint32_t rank;              /* 0: a scalar, or a tensor of unknown rank */
    const uint32_t *dimensions; /* rank numbers; 0 is unknown until execution */
    float scale;                /* of quantized types, otherwise 0 */
    int32_t zero_point;
    uint32_t channel_count; /* of TENSOR_QUANT8_SYMM_PER_CHANNEL, otherwise 0 */
    uint32_t channel_dim;
    const float *channel_scales; /* channel_count numbers */
    int32_t omitted;             /* 1: an omitted optional argument */
    const NnhalTensor *constant; /* its value; NULL if it is not constant */

    /* (1.1) Name of the type's extension; NULL for types of the HAL. Only a backend that lists the type
     * (`operand_types`) gets such operands. */
    const char *extension;
} NnhalOperand;

typedef struct NnhalOperation {
    size_t struct_size;
    int32_t type;          /* the HAL's OperationType; of an extension: the low 16 bits */
    const char *extension; /* name of the operation's extension; NULL for operations of the HAL */
    uint32_t input_count;
    const uint32_t *inputs; /* indexes of NnhalSubgraph.operands, in the order of the HAL's signature */
    uint32_t output_count;
    const uint32_t *outputs;
} NnhalOperation;

typedef struct NnhalSubgraph {
    size_t struct_size;
    uint32_t operand_count;
    const NnhalOperand *const *operands; /* the operands of the operations */
    uint32_t operation_count;
    const NnhalOperation *const *operations; /* in a valid order of execution */
    uint32_t input_count;
    const uint32_t *inputs; /* operands that each execution provides */
    uint32_t output_count;
    const uint32_t *outputs; /* operands that each execution writes */
    int32_t relaxed;         /* 1: float32 may be computed in half precision */
    int32_t preference;      /* the HAL's ExecutionPreference */

    /* (1.1) Planner of memory for this subgraph; NULL in `supports`, and for the whole subgraph in `optimize`. */
    const NnhalMemory *memory;

    /* (1.2) Number of the network (prepared model) that it is a part of; 0 in `supports`, and for the host itself. */
    uint64_t network;

    /* (1.2, NULL in `supports`) Call it with `check_context` between the steps of a long `compile`, `load` or
     * `optimize`. 0: continue. Otherwise the preparation was cancelled or is late: return any error. */
    int32_t (*check)(void *check_context);
    void *check_context; /* belongs to the host */
} NnhalSubgraph;

/* ---- One execution. Created by the host, valid until `execute` returns, or `wait_deferred` if it was deferred. ---- */

typedef struct NnhalExecution {
    size_t struct_size;
    void *context; /* belongs to the host; pass it to the functions below */
    uint32_t input_count;
    const NnhalTensor *const *inputs; /* for each of NnhalSubgraph.inputs; NULL for an omitted argument */
    uint32_t output_count;

    /* Returns the memory of output `index` (of NnhalSubgraph.outputs) for its final shape, row-major without gaps. Call
     * it once for each output. `shape` is copied. The tensor is valid until `execute` returns. NULL: the shape differs
     * from the declared one, or exceeds memory or limits. Then return any error; the host knows the reason. */
    const NnhalTensor *(*output)(void *context, uint32_t index, int32_t ndim, const int64_t *shape);

    /* Call it between operations. 0: continue. Otherwise the execution was cancelled or is late: return any error. */
    int32_t (*check)(void *context);

    /* (may be NULL) Reports work for the profile: its display name, its start on CLOCK_MONOTONIC, and its duration.
     * `name` is copied. NULL if the execution is not profiled: measure nothing then. */
    void (*span)(void *context, const char *name, uint64_t start_ns, uint64_t duration_ns);

    /* (1.1) Addresses of the pieces of planned memory, by number; NULL if there are no pieces. */
    void *const *pieces;

    /* (1.1, NULL if `span` is NULL) Like `span`, for the whole work of one operation: `operation` is its index in
     * NnhalSubgraph.operations. */
    void (*operation_span)(void *context, const char *name, uint32_t operation, uint64_t start_ns,
                           uint64_t duration_ns);

    /* (1.2, NULL without `wait_deferred`) Lets `execute` return before its outputs are written, for example because a
     * device works on them. Call it at most once, and then return. The host calls `wait_deferred` with `state`, which
     * belongs to the plug-in, when it needs the outputs. Until then the execution holds none of the slots that limit
     * how many run, and everything of this struct stays valid. Without "ConcurrentExecution" it is the only one of its
     * compiled subgraph. */
    int32_t (*defer)(void *context, void *state);

    /* (1.2) Number of a profiled execution, see `profiling_begin`; 0 if it is not profiled. */
    uint64_t execution;
} NnhalExecution;

/* Receiver of the measurements of a profiled execution that are not part of a partition (1.2). Created by the host,
 * valid until `profiling_end` returns. */
typedef struct NnhalProfile {
    size_t struct_size;
    void *context; /* belongs to the host; pass it to `span` */

    /* Reports work, as NnhalExecution.span does. */
    void (*span)(void *context, const char *name, uint64_t start_ns, uint64_t duration_ns);
} NnhalProfile;

/* ---- An allocator of the operator or of an embedding program (1.2). Created by the host, valid until `destroy`. ---- */

typedef enum NnhalMemorySource {
    NNHAL_MALLOC = 0,
    NNHAL_HUGE_PAGES = 1,
    NNHAL_LOCKED = 2, /* never swapped out */
    NNHAL_DMA_BUF = 3,
    NNHAL_OTHER = 4
} NnhalMemorySource;

typedef struct NnhalAllocator {
    size_t struct_size;
    void *context;  /* belongs to the host; pass it to the functions below */
    int32_t source; /* an NnhalMemorySource. The process can read and write memory of every kind */

    /* Allocates `size` > 0 bytes at a multiple of `alignment`, a power of two. NULL if memory is exhausted. */
    void *(*allocate)(void *context, size_t size, size_t alignment);

    /* Frees what `allocate` returned, once, before `destroy` returns. */
    void (*free)(void *context, void *memory);
} NnhalAllocator;

/* ---- Types of the plug-in's results ---- */

/* A named property. Never grows. The host uses these names:
 *   "ConcurrentExecution"  several threads may execute one compiled subgraph at the same time
 *   "StridedInputs"        inputs may have any strides; otherwise the host makes them row-major without gaps
 *   "CopiesInputs"         (1.1) the backend copies every input, for example to a device, before it reads a value.
 *                          If it runs a whole model, inputs then point to the memory that a client on the same machine
 *                          shares (a memfd). The client may write to it at any time. Without this capability the host
 *                          copies such inputs first
 * Other names are shown to users. "ProtectedContentAllocation" is not: the host has no protected memory. */
typedef struct NnhalCapability {
    const char *name;
    int32_t value; /* 0 or 1 */
} NnhalCapability;

typedef struct NnhalCompiled NnhalCompiled; /* defined by the plug-in; opaque to the host */

/* Destination of a saved subgraph. Created by the host, valid until `save` returns. */
typedef struct NnhalSink {
    size_t struct_size;
    void *context; /* belongs to the host; pass it to `write` */

    /* Appends a copy of the bytes. May be called any number of times. */
    int32_t (*write)(void *context, const void *bytes, size_t size);
} NnhalSink;

/* Receiver of the result of `optimize` (1.1). Created by the host, valid until `optimize` returns. Operations are
 * indexes of NnhalSubgraph.operations of the optimized subgraph. */
typedef struct NnhalOptimization {
    size_t struct_size;
    void *context; /* belongs to the host; pass it to the functions below */

    /* Returns some operations as a subgraph with its own inputs and outputs. No path between two of them may lead
     * through other operations. The subgraph is valid until the `release` of the substitution, or until `optimize`
     * returns if there is none. NULL: the operations are invalid; return any error. */
    const NnhalSubgraph *(*part)(void *context, uint32_t count, const uint32_t *operations);

    /* Replaces the operations of `part` by `compiled`. A part can be substituted once. From then on `compiled` is
     * saved, loaded and released like a result of `compile`. If this fails, the plug-in must free `compiled`. */
    int32_t (*substitute)(void *context, const NnhalSubgraph *part, NnhalCompiled *compiled);

    /* Rejects an operation after all. The host offers it to other backends and shows them the reason. It drops all
     * substitutions and optimizes the other operations again. `reason` is copied. */
    int32_t (*fail)(void *context, uint32_t operation, const char *reason);
} NnhalOptimization;

/* Row-major layout of an image with N batches, C channels, height H and width W (1.1). NC4HW4 is
 * [N, ceil(C / 4), H, W, 4]; channels from C on are zero. */
typedef enum NnhalLayout { NNHAL_NHWC = 0, NNHAL_NCHW = 1, NNHAL_NC4HW4 = 2 } NnhalLayout;

/* The layout of an operand of rank 4 (1.1). Never grows. */
typedef struct NnhalRelayout {
    uint32_t operand; /* index of NnhalSubgraph.operands, an input or output of the subgraph */
    int32_t model;    /* layout in the model, NNHAL_NHWC or NNHAL_NCHW */
    int32_t own;      /* layout in the plug-in */
} NnhalRelayout;

/* An operand type of an extension (1.1). Never grows. */
typedef struct NnhalOperandType {
    uint16_t type;      /* its number in the extension */
    uint16_t is_tensor; /* 0: a scalar */
    uint32_t byte_size; /* of an element, or of the scalar; 1 to 65535 */
} NnhalOperandType;

/* The HAL's DeviceType (1.2). */
typedef enum NnhalDeviceType {
    NNHAL_DEVICE_OTHER = 1,
    NNHAL_DEVICE_CPU = 2,
    NNHAL_DEVICE_GPU = 3,
    NNHAL_DEVICE_ACCELERATOR = 4
} NnhalDeviceType;

/* Options that the operator sets for one backend object, for example with --backend-option Npu.threads=4 (1.2). Created
 * by the host, valid until BackendFactoryWithOptions returns. The service does not start with an option that was not
 * read. Keys with a common meaning: "threads" (0: the backend may choose), "precision" and "power" ("normal", "high" or
 * "low"). The host itself reads "memory" ("normal" or "limit"), and sets NnhalMemory.mode. */
typedef struct NnhalOptions {
    size_t struct_size;
    void *context; /* belongs to the host; pass it to the functions below */

    /* Returns the value of an option; NULL if the operator does not set it. */
    const char *(*get)(void *context, const char *key);

    /* Rejects the value of an option. The service does not start, and tells the operator the reason. */
    void (*reject)(void *context, const char *key, const char *reason);

    /* States that `load` accepts what was saved with other values of an option. Otherwise a model that was saved with
     * another value is compiled again. */
    void (*exclude_from_cache_key)(void *context, const char *key);
} NnhalOptions;

typedef struct NnhalBackend NnhalBackend;

/* Function table of one backend object. Created by the plug-in. */
struct NnhalBackend {
    size_t struct_size;  /* sizeof(NnhalBackend) */
    uint32_t major;      /* NNHAL_BACKEND_MAJOR, the same as GetVersion */
    uint32_t minor;      /* NNHAL_BACKEND_MINOR, the same as GetVersion */
    void *state;         /* belongs to the plug-in; opaque to the host */
    const char *version; /* of the backend itself, not empty; valid as long as the object */

    /* Frees the object, including the table. Called once, after `release` of all its compiled subgraphs: when the
     * device is closed and its networks are unloaded, or if the device cannot start. The library is unloaded then. Not
     * called if the process ends first. */
    void (*destroy)(NnhalBackend *self);

    /* Returns whether the backend supports the only operation of `one`: 1, and then it must compile, or 0 with the
     * reason. Any other answer is a failure. */
    int32_t (*supports)(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size);

    /* Compiles a subgraph of supported operations. `subgraph` and everything that it points to, such as constants, are
     * valid until `release`. NULL in `compiled` is a failure. */
    int32_t (*compile)(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **compiled, char *reason,
                       size_t reason_size);

    /* Runs a compiled subgraph once. */
    int32_t (*execute)(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size);

    /* Frees a compiled subgraph. Called once for each. */
    void (*release)(NnhalBackend *self, NnhalCompiled *compiled);

    /* (optional) Returns `*count` properties, valid as long as the object. Default: none. */
    const NnhalCapability *(*capabilities)(NnhalBackend *self, size_t *count);

    /* (optional) Returns time and power relative to the CPU: above 0, lower is better. Default: 1 and 1. */
    void (*performance)(NnhalBackend *self, float *exec_time, float *power_usage);

    /* (optional) Returns the names of `*count` vendor extensions with operations that it supports, for example
     * "com.example.simple". They are valid as long as the object. Default: none. */
    const char *const *(*extensions)(NnhalBackend *self, size_t *count);

    /* (optional) Writes the data that `load` needs, so that a warm start does not compile. The data is sealed: `load`
     * gets exactly these bytes or is not called. Default: a warm start compiles again. */
    int32_t (*save)(NnhalBackend *self, NnhalCompiled *compiled, const NnhalSink *sink, char *reason,
                    size_t reason_size);

    /* (optional, with `save`) Like `compile`, from the data of `save`. `bytes` is valid until it returns. If it fails,
     * the cache entry is useless, and the client prepares the model again. */
    int32_t (*load)(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t size,
                    NnhalCompiled **compiled, char *reason, size_t reason_size);

    /* (optional) Allocates `size` > 0 bytes at a multiple of 64, for an output or a block of pieces. Returns NULL if
     * memory is exhausted. The memory must be valid until `free_buffer`, possibly long after the execution. Default:
     * the host's allocator. */
    void *(*allocate_buffer)(NnhalBackend *self, size_t size);

    /* (required with `allocate_buffer`) Frees memory. Called once for each allocation, from any thread. */
    void (*free_buffer)(NnhalBackend *self, void *buffer, size_t size);

    /* (optional) Called around loading and unloading a part of a network. `network` is the number of one compiled
     * subgraph of this object and is never reused. after_load is not called if compiling failed. Default: nothing. */
    void (*before_load)(NnhalBackend *self, uint64_t network);
    void (*after_load)(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled);
    void (*before_unload)(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled);
    void (*after_unload)(NnhalBackend *self, uint64_t network);

    /* (optional) Called in this order before the first execution, and before each execution whose inputs have new
     * shapes. `resize` can plan memory. If it fails, the execution fails with its error. Not called with
     * "ConcurrentExecution". Default: nothing. */
    void (*resize_begin)(NnhalBackend *self, NnhalCompiled *compiled);
    int32_t (*resize)(NnhalBackend *self, NnhalCompiled *compiled, uint32_t input_count,
                      const NnhalTensor *const *inputs, char *reason, size_t reason_size);
    void (*resize_end)(NnhalBackend *self, NnhalCompiled *compiled);

    /* (optional) Called around each `execute`, even if it fails, for example to acquire and release memory. Default:
     * nothing. */
    void (*execute_begin)(NnhalBackend *self, NnhalCompiled *compiled);
    void (*execute_end)(NnhalBackend *self, NnhalCompiled *compiled);

    /* (optional) Waits until all outputs are written, if `execute` returns early. Called after an `execute` that
     * returned NNHAL_NONE, before execute_end. Default: outputs are complete when `execute` returns. */
    int32_t (*wait_finish)(NnhalBackend *self, NnhalCompiled *compiled, char *reason, size_t reason_size);

    /* (optional, 1.1) Optimizes a subgraph as a whole before it is compiled. It can replace operations or reject them.
     * Other operations are compiled as usual. `subgraph` is valid until this function returns. `substitute` calls
     * before_load and after_load. Default: nothing. */
    int32_t (*optimize)(NnhalBackend *self, const NnhalSubgraph *subgraph, const NnhalOptimization *answer,
                        char *reason, size_t reason_size);

    /* (optional, 1.1) Returns `*count` inputs and outputs with another layout than in the model, each operand at most
     * once, valid until `release`. The host converts them, and not between partitions with the same layout. Constants
     * have the layout of the model. The outputs must have known dimensions. Called once, after `compile`, `load` or
     * `optimize`. Default: the model's layouts. */
    const NnhalRelayout *(*layouts)(NnhalBackend *self, NnhalCompiled *compiled, size_t *count);

    /* (optional, 1.1) Returns the `*count` operand types of one of its extensions, valid as long as the object. Their
     * values are tensors with elements of `byte_size` bytes (see NnhalDataType). Default: none. */
    const NnhalOperandType *(*operand_types)(NnhalBackend *self, const char *extension, size_t *count);

    /* (optional, 1.2) Called around loading and unloading a network, which is a prepared model, even if this backend
     * runs no part of it. `network` is NnhalSubgraph.network and is never reused. before_load_network comes before
     * anything is optimized, compiled or loaded. If that fails, after_unload_network is the only other call. The two
     * others enclose the release of the network's parts. Default: nothing. */
    void (*before_load_network)(NnhalBackend *self, uint64_t network);
    void (*after_load_network)(NnhalBackend *self, uint64_t network);
    void (*before_unload_network)(NnhalBackend *self, uint64_t network);
    void (*after_unload_network)(NnhalBackend *self, uint64_t network);

    /* (optional, 1.2) Returns whether the backend uses this allocator for the memory of tensors: 1, or 0 with the
     * reason, which the operator sees. Called at most once, before anything is compiled. If it returns 1, the host also
     * takes outputs and blocks of pieces from it, and not from `allocate_buffer`. Default: 0. */
    int32_t (*use_allocator)(NnhalBackend *self, const NnhalAllocator *allocator, char *reason, size_t reason_size);

    /* (optional, 1.2) Called around each profiled execution of the device, whether it is a single one, of a burst,
     * reusable or fenced, even if it fails, and even if this backend runs no part of it. `execution` is
     * NnhalExecution.execution of its parts, and is never reused. Several may be in progress. Default: nothing. */
    void (*profiling_begin)(NnhalBackend *self, uint64_t execution);
    void (*profiling_end)(NnhalBackend *self, uint64_t execution, const NnhalProfile *profile);

    /* (optional, 1.2) Returns the kind of its hardware, an NnhalDeviceType: the type of a device whose first backend
     * this is, unless its operator sets one. Default: NNHAL_DEVICE_CPU. */
    int32_t (*device_type)(NnhalBackend *self);

    /* (optional, 1.2; required for NnhalExecution.defer) Waits until the outputs of a deferred execution are written, and
     * frees its `state`. Called once for each `defer`, from any thread, even if `execute` fails afterwards. wait_finish
     * is not called then. */
    int32_t (*wait_deferred)(NnhalBackend *self, NnhalCompiled *compiled, void *state, char *reason,
                             size_t reason_size);

    /* (optional, 1.2; required together) Memory of the backend, in which values stay between its partitions.
     * device_operands returns `*count` indexes of NnhalSubgraph.operands, inputs or outputs without another layout, valid
     * until `release`. An execution has them as tensors with device_type 12 (kDLExtDev), whose `data` is what
     * acquire_buffer returned. It may use them before the deferred execution that writes them is over.
     * acquire_buffer returns a handle for a tensor of this shape and type, or NULL if memory is exhausted.
     * release_buffer frees it; called once for each, from any thread.
     * copy_buffer copies a value of equal shape and type between tensors of the host and its own, in both directions or
     * between two of its own. It converts layouts. After a copy to the host the value is there.
     * Default: all values are in memory of the host. */
    const uint32_t *(*device_operands)(NnhalBackend *self, NnhalCompiled *compiled, size_t *count);
    void *(*acquire_buffer)(NnhalBackend *self, const NnhalTensor *tensor);
    void (*release_buffer)(NnhalBackend *self, void *buffer);
    int32_t (*copy_buffer)(NnhalBackend *self, const NnhalTensor *source, const NnhalTensor *target, char *reason,
                           size_t reason_size);

    /* (optional, 1.2) Called when the block of the pieces of planned memory is allocated: before the first execution, and
     * again before an execution with another block. It is valid until the next call, or until execute_end in mode
     * NNHAL_LIMIT. Default: nothing. */
    void (*block_allocated)(NnhalBackend *self, NnhalCompiled *compiled, void *block, size_t size);
};

/* ---- The three entry points that are required, and an optional one. ---- */

#if defined(__GNUC__)
#define NNHAL_EXPORT __attribute__((visibility("default")))
#else
#define NNHAL_EXPORT
#endif

/* Returns the id, unique among backends, valid as long as the library is loaded. */
NNHAL_EXPORT const char *GetBackendId(void);

/* Returns the version of the header that the plug-in was built with: NNHAL_BACKEND_MAJOR and NNHAL_BACKEND_MINOR. */
NNHAL_EXPORT void GetVersion(uint32_t *major, uint32_t *minor);

/* Creates an object (NnhalBackend *) that the host owns until it calls `destroy`. Returns NULL on failure. Called once
 * for each device, so several objects may exist at the same time. */
NNHAL_EXPORT void *BackendFactory(void);

/* (optional, 1.2) Like BackendFactory, with the options of the operator. A host from 1.2 on calls it instead. On failure
 * it returns NULL, and may write the reason. */
NNHAL_EXPORT void *BackendFactoryWithOptions(const NnhalOptions *options, char *reason, size_t reason_size);

#ifdef __cplusplus
}
#endif
#endif
