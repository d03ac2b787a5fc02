/*
 * A complete native backend: ADD, MUL and RELU of TENSOR_FLOAT32, and an operation of a vendor extension. To write your
 * own backend, replace the code between the lines "your operations", and choose other names.
 *
 *   cc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -I FOLDER_OF_THE_HEADER Example_Simple_backend.c -lm \
 *      -o Example_Simple_backend.so
 *
 * All shapes must be known. The two inputs have the same shape, or one of them has a single element. Intermediate
 * values are in memory that the host plans. A RELU is fused into the operation before it.
 */
#define _POSIX_C_SOURCE 200809L

#include "nnhal_backend.h"
#include "nnhal_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXTENSION "com.example.simple"

enum { SQUARED_DIFFERENCE = 0 }; /* numbers of the extension */

/* ---- your operations: element-wise functions ---- */

typedef float (*Function)(float a, float b);

static float add(float a, float b) { return a + b; }
static float mul(float a, float b) { return a * b; }
static float relu(float a, float b) { (void)b; return a > 0 ? a : 0; }
static float squared_difference(float a, float b) { return (a - b) * (a - b); }

typedef struct Kernel {
    const char *extension; /* NULL: an operation of the HAL */
    int32_t type;
    const char *name;
    uint32_t tensors; /* number of tensor inputs; they come first */
    int has_activation; /* whether a FusedActivationFunc follows */
    Function function;
} Kernel;

static const Kernel KERNELS[] = {
    {NULL, NNHAL_OPERATION_ADD, "ADD", 2, 1, add},
    {NULL, NNHAL_OPERATION_MUL, "MUL", 2, 1, mul},
    {NULL, NNHAL_OPERATION_RELU, "RELU", 1, 0, relu},
    {EXTENSION, SQUARED_DIFFERENCE, "SQUARED_DIFFERENCE", 2, 0, squared_difference},
};

/* ---- your operations end here ---- */

static const Kernel *find_kernel(const NnhalOperation *operation) {
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
        const Kernel *kernel = &KERNELS[i];
        int same = kernel->extension == NULL ? operation->extension == NULL
                                             : operation->extension && !strcmp(kernel->extension, operation->extension);
        if (same && kernel->type == operation->type) return kernel;
    }
    return NULL;
}

/* ---- Allocator: counts its blocks, which are aligned to 64 bytes ---- */

typedef struct State {
    long blocks; /* number of blocks in use, changed atomically */
} State;

static void *allocate_buffer(NnhalBackend *self, size_t size) {
    void *block;
    if (posix_memalign(&block, 64, size)) return NULL;
    __atomic_add_fetch(&((State *)self->state)->blocks, 1, __ATOMIC_SEQ_CST);
    return block;
}

static void free_buffer(NnhalBackend *self, void *buffer, size_t size) {
    (void)size;
    __atomic_sub_fetch(&((State *)self->state)->blocks, 1, __ATOMIC_SEQ_CST);
    free(buffer);
}

/* ---- Layer support ---- */

static int64_t elements(const NnhalOperand *operand) { /* 0 if a dimension is unknown */
    int64_t count = 1;
    for (uint32_t i = 0; i < operand->rank; i++) count *= operand->dimensions[i];
    return count;
}

static int same_shape(const NnhalOperand *a, const NnhalOperand *b) {
    return a->rank == b->rank && !memcmp(a->dimensions, b->dimensions, a->rank * sizeof *a->dimensions);
}

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size) {
    (void)self;
    const NnhalOperation *operation = one->operations[0];
    const Kernel *kernel = find_kernel(operation);
    if (!kernel) {
        snprintf(reason, reason_size, "there is no kernel for it");
        return 0;
    }
    if (operation->input_count != kernel->tensors + (uint32_t)kernel->has_activation || operation->output_count != 1) {
        snprintf(reason, reason_size, "%s takes %u tensors and gives one", kernel->name, kernel->tensors);
        return 0;
    }
    const NnhalOperand *output = one->operands[operation->outputs[0]];
    for (uint32_t i = 0; i < kernel->tensors; i++) {
        const NnhalOperand *input = one->operands[operation->inputs[i]];
        if (input->type != NNHAL_OPERAND_TENSOR_FLOAT32 || output->type != NNHAL_OPERAND_TENSOR_FLOAT32) {
            snprintf(reason, reason_size, "only TENSOR_FLOAT32 is supported");
            return 0;
        }
        if (input->omitted || elements(input) == 0 || elements(output) == 0) {
            snprintf(reason, reason_size, "shapes must be known");
            return 0;
        }
        if (!same_shape(input, output) && !(elements(input) == 1 && input->rank <= output->rank)) {
            snprintf(reason, reason_size, "input %u must have the shape of the output, or one element", i);
            return 0;
        }
    }
    if (kernel->has_activation && !one->operands[operation->inputs[kernel->tensors]]->constant) {
        snprintf(reason, reason_size, "the fused activation must be a constant");
        return 0;
    }
    return 1;
}

/* ---- Compiling: this example only lists its steps ---- */

typedef struct Step {
    const Kernel *kernel;
    uint32_t a, b, out; /* operands */
    int32_t activation;
    uint32_t operation; /* index of the operation */
} Step;

struct NnhalCompiled {
    const NnhalSubgraph *subgraph; /* valid until `release` */
    int32_t fused;                 /* whether one step replaces two operations */
    uint32_t step_count;
    Step *steps;
    int64_t *pieces; /* for each operand the number of its piece; -1 if it is not an intermediate value */
};

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    free(compiled->pieces);
    free(compiled->steps);
    free(compiled);
}

static int is_among(uint32_t operand, const uint32_t *list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == operand) return 1;
    return 0;
}

static Step step_of(const NnhalSubgraph *subgraph, uint32_t i) {
    const NnhalOperation *operation = subgraph->operations[i];
    Step step = {find_kernel(operation), operation->inputs[0], 0, operation->outputs[0], 0, i};
    step.b = operation->inputs[step.kernel->tensors - 1];
    if (step.kernel->has_activation)
        step.activation = *(int32_t *)subgraph->operands[operation->inputs[step.kernel->tensors]]->constant->data;
    return step;
}

static int is_read_later(const NnhalCompiled *compiled, uint32_t operand, uint32_t step) {
    for (uint32_t i = step + 1; i < compiled->step_count; i++)
        if (compiled->steps[i].a == operand || compiled->steps[i].b == operand) return 1;
    return 0;
}

static void put_if_done(NnhalCompiled *compiled, uint32_t operand, uint32_t step) {
    const NnhalMemory *memory = compiled->subgraph->memory;
    if (compiled->pieces[operand] >= 0 && !is_read_later(compiled, operand, step))
        memory->put(memory->context, (uint32_t)compiled->pieces[operand]);
}

/* Plans the memory of intermediate values. Values with disjoint lifetimes share bytes. */
static int32_t plan(NnhalCompiled *compiled) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    for (uint32_t i = 0; i < compiled->step_count; i++) {
        const Step *step = &compiled->steps[i];
        if (!is_among(step->out, subgraph->outputs, subgraph->output_count)) {
            size_t size = sizeof(float) * (size_t)elements(subgraph->operands[step->out]);
            uint32_t piece;
            int32_t status = subgraph->memory->get(subgraph->memory->context, size, NNHAL_DYNAMIC, &piece);
            if (status) return status;
            compiled->pieces[step->out] = piece;
        }
        put_if_done(compiled, step->a, i);
        if (step->b != step->a) put_if_done(compiled, step->b, i);
    }
    return NNHAL_NONE;
}

/* Creates a compiled subgraph. `fused`: it is an ADD or MUL followed by a RELU, which becomes the fused activation. */
static int32_t create(NnhalBackend *self, const NnhalSubgraph *subgraph, int fused, NnhalCompiled **result,
                      char *reason, size_t reason_size) {
    NnhalCompiled *compiled = calloc(1, sizeof *compiled);
    if (!compiled) return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    compiled->subgraph = subgraph;
    compiled->fused = fused;
    compiled->step_count = fused ? 1 : subgraph->operation_count;
    compiled->pieces = malloc(subgraph->operand_count * sizeof *compiled->pieces);
    compiled->steps = calloc(subgraph->operation_count, sizeof *compiled->steps);
    int32_t status = compiled->pieces && compiled->steps ? NNHAL_NONE : NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    if (!status) {
        for (uint32_t i = 0; i < subgraph->operand_count; i++) compiled->pieces[i] = -1;
        for (uint32_t i = 0; i < compiled->step_count; i++) compiled->steps[i] = step_of(subgraph, i);
        if (fused) {
            compiled->steps[0].activation = 1; /* RELU */
            compiled->steps[0].out = subgraph->operations[1]->outputs[0];
        }
        status = plan(compiled);
    }
    if (status) {
        release(self, compiled);
        snprintf(reason, reason_size, "no memory for the intermediate values");
        return status;
    }
    *result = compiled;
    return NNHAL_NONE;
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **result, char *reason,
                       size_t reason_size) {
    return create(self, subgraph, 0, result, reason, reason_size);
}

/* ---- Optimization: fuses an ADD or MUL with a RELU that is its only reader ---- */

static int is_only_reader(const NnhalSubgraph *subgraph, uint32_t reader, uint32_t operand) {
    for (uint32_t i = 0; i < subgraph->operation_count; i++) {
        const NnhalOperation *operation = subgraph->operations[i];
        if (i != reader && is_among(operand, operation->inputs, operation->input_count)) return 0;
    }
    return !is_among(operand, subgraph->outputs, subgraph->output_count);
}

/* Returns the operation that a RELU can be fused with; `operation_count` if there is none. */
static uint32_t fusable_operation(const NnhalSubgraph *subgraph, uint32_t relu_at) {
    uint32_t operand = subgraph->operations[relu_at]->inputs[0];
    for (uint32_t i = 0; i < relu_at; i++) {
        Step step = step_of(subgraph, i);
        if (step.out == operand && step.kernel->has_activation && step.activation == 0)
            return is_only_reader(subgraph, relu_at, operand) ? i : subgraph->operation_count;
    }
    return subgraph->operation_count;
}

static int32_t optimize(NnhalBackend *self, const NnhalSubgraph *subgraph, const NnhalOptimization *answer,
                        char *reason, size_t reason_size) {
    for (uint32_t i = 0; i < subgraph->operation_count; i++) {
        const Kernel *kernel = find_kernel(subgraph->operations[i]);
        uint32_t first = kernel->function == relu ? fusable_operation(subgraph, i) : subgraph->operation_count;
        if (first == subgraph->operation_count) continue;
        const uint32_t both[] = {first, i};
        const NnhalSubgraph *part = answer->part(answer->context, 2, both);
        if (!part) return NNHAL_GENERAL_FAILURE; /* the host knows why */
        NnhalCompiled *compiled;
        int32_t status = create(self, part, 1, &compiled, reason, reason_size);
        if (status) return status;
        status = answer->substitute(answer->context, part, compiled);
        if (status) {
            release(self, compiled);
            return status;
        }
    }
    return NNHAL_NONE;
}

/* ---- Saving and loading: a real backend saves results that are expensive to compute ---- */

static const char *const SAVED[] = {"simple 2 plain", "simple 2 fused"};

static int32_t save(NnhalBackend *self, NnhalCompiled *compiled, const NnhalSink *sink, char *reason,
                    size_t reason_size) {
    (void)self, (void)reason, (void)reason_size;
    const char *text = SAVED[compiled->fused];
    return sink->write(sink->context, text, strlen(text));
}

static int32_t load(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t size,
                    NnhalCompiled **compiled, char *reason, size_t reason_size) {
    for (int fused = 0; fused < 2; fused++)
        if (size == strlen(SAVED[fused]) && !memcmp(bytes, SAVED[fused], size))
            return create(self, subgraph, fused, compiled, reason, reason_size);
    snprintf(reason, reason_size, "the saved data is not from this version");
    return NNHAL_GENERAL_FAILURE;
}

/* ---- Executing ---- */

static float activate(float value, int32_t activation) { /* FusedActivationFunc */
    static const float LOW[] = {0, 0, -1, 0}, HIGH[] = {0, 0, 1, 6};
    if (activation == 0) return value;
    if (value < LOW[activation]) return LOW[activation];
    return activation > 1 && value > HIGH[activation] ? HIGH[activation] : value;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the data of an operand: a constant, planned memory, an input or an output. */
static float *value_of(const NnhalCompiled *compiled, const NnhalExecution *execution, const NnhalTensor **outputs,
                       uint32_t operand) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    if (subgraph->operands[operand]->constant) return subgraph->operands[operand]->constant->data;
    if (compiled->pieces[operand] >= 0) return execution->pieces[compiled->pieces[operand]];
    for (uint32_t i = 0; i < subgraph->input_count; i++)
        if (subgraph->inputs[i] == operand) return execution->inputs[i]->data;
    for (uint32_t i = 0; i < subgraph->output_count; i++)
        if (subgraph->outputs[i] == operand) return outputs[i]->data;
    return NULL;
}

static void run_step(const NnhalCompiled *compiled, const NnhalExecution *execution, const NnhalTensor **outputs,
                     const Step *step) {
    NnhalOperand *const *operands = (NnhalOperand *const *)compiled->subgraph->operands;
    const float *a = value_of(compiled, execution, outputs, step->a);
    const float *b = value_of(compiled, execution, outputs, step->b);
    float *out = value_of(compiled, execution, outputs, step->out);
    int64_t count = elements(operands[step->out]);
    int64_t step_a = elements(operands[step->a]) > 1, step_b = elements(operands[step->b]) > 1;
    for (int64_t i = 0; i < count; i++)
        out[i] = activate(step->kernel->function(a[i * step_a], b[i * step_b]), step->activation);
}

static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size) {
    (void)self;
    const NnhalSubgraph *subgraph = compiled->subgraph;
    const NnhalTensor *outputs[64];
    if (subgraph->output_count > 64) {
        snprintf(reason, reason_size, "it has %u outputs, at most 64 are supported", subgraph->output_count);
        return NNHAL_GENERAL_FAILURE;
    }
    for (uint32_t i = 0; i < subgraph->output_count; i++) {
        const NnhalOperand *operand = subgraph->operands[subgraph->outputs[i]];
        int64_t shape[32];
        for (uint32_t k = 0; k < operand->rank; k++) shape[k] = operand->dimensions[k];
        outputs[i] = execution->output(execution->context, i, (int32_t)operand->rank, shape);
        if (!outputs[i]) return NNHAL_GENERAL_FAILURE; /* the host knows why */
    }
    for (uint32_t i = 0; i < compiled->step_count; i++) {
        const Step *step = &compiled->steps[i];
        if (execution->check(execution->context)) return NNHAL_GENERAL_FAILURE; /* cancelled, or past its deadline */
        uint64_t start = execution->span ? now_ns() : 0;
        run_step(compiled, execution, outputs, step);
        if (!execution->span) continue; /* the execution is not profiled */
        uint64_t took = now_ns() - start;
        if (compiled->fused) execution->span(execution->context, "fused RELU", start, took);
        else execution->operation_span(execution->context, step->kernel->name, step->operation, start, took);
    }
    return NNHAL_NONE;
}

/* ---- Properties of the backend ---- */

static const NnhalCapability *capabilities(NnhalBackend *self, size_t *count) {
    static const NnhalCapability ALL[] = {{"ConcurrentExecution", 0}};
    (void)self;
    *count = sizeof ALL / sizeof *ALL;
    return ALL;
}

static const char *const *extensions(NnhalBackend *self, size_t *count) {
    static const char *const ALL[] = {EXTENSION};
    (void)self;
    *count = 1;
    return ALL;
}

static void destroy(NnhalBackend *self) {
    State *state = self->state;
    if (state->blocks) fprintf(stderr, "Example_Simple_backend: %ld blocks were not freed\n", state->blocks);
    free(state);
    free(self);
}

/* ---- The three entry points ---- */

const char *GetBackendId(void) { return "Simple"; }

void GetVersion(uint32_t *major, uint32_t *minor) {
    *major = NNHAL_BACKEND_MAJOR;
    *minor = NNHAL_BACKEND_MINOR;
}

void *BackendFactory(void) {
    NnhalBackend *self = calloc(1, sizeof *self);
    State *state = calloc(1, sizeof *state);
    if (!self || !state) {
        free(self);
        free(state);
        return NULL;
    }
    self->struct_size = sizeof *self;
    self->major = NNHAL_BACKEND_MAJOR;
    self->minor = NNHAL_BACKEND_MINOR;
    self->state = state;
    self->version = "1.0";
    self->destroy = destroy;
    self->supports = supports;
    self->compile = compile;
    self->execute = execute;
    self->release = release;
    self->capabilities = capabilities;
    self->extensions = extensions;
    self->save = save;
    self->load = load;
    self->allocate_buffer = allocate_buffer;
    self->free_buffer = free_buffer;
    self->optimize = optimize;
    return self; /* other members are NULL and have their defaults */
}
