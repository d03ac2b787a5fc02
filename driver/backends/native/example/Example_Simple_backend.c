/*
 * A complete native backend: ADD, MUL and RELU of TENSOR_FLOAT32, and an operation of a vendor extension. Start here,
 * replace what is between the lines "your operations", and give it names of your own.
 *
 *   cc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -I FOLDER_OF_THE_HEADER Example_Simple_backend.c -lm \
 *      -o Example_Simple_backend.so
 *
 * It takes shapes that are known beforehand, and two inputs of one shape, or one of them with a single element.
 */
#define _POSIX_C_SOURCE 200809L

#include "nnhal_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXTENSION "com.example.simple"

enum { ADD = 0, MUL = 18, RELU = 19 }; /* the HAL's OperationType */
enum { SQUARED_DIFFERENCE = 0 };       /* numbers of the extension's own */
enum { TENSOR_FLOAT32 = 3, INT32 = 1 };

/* ---- your operations: what they compute, element by element ---- */

typedef float (*Function)(float a, float b);

static float add(float a, float b) { return a + b; }
static float mul(float a, float b) { return a * b; }
static float relu(float a, float b) { (void)b; return a > 0 ? a : 0; }
static float squared_difference(float a, float b) { return (a - b) * (a - b); }

typedef struct Kernel {
    const char *extension; /* NULL: the HAL's own */
    int32_t type;
    const char *name;
    uint32_t tensors; /* inputs that are tensors; they come first */
    int has_activation; /* then comes a FusedActivationFunc */
    Function function;
} Kernel;

static const Kernel KERNELS[] = {
    {NULL, ADD, "ADD", 2, 1, add},
    {NULL, MUL, "MUL", 2, 1, mul},
    {NULL, RELU, "RELU", 1, 0, relu},
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

/* ---- An allocator of its own: blocks at multiples of 64, counted. ---- */

typedef struct State {
    long blocks; /* that are in use; the builtins make it safe from any thread */
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

static int64_t elements(const NnhalOperand *operand) { /* 0 where a dimension is unknown */
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
        if (input->type != TENSOR_FLOAT32 || output->type != TENSOR_FLOAT32) {
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

/* ---- Compiling: here only the steps are written down, a real backend does its work now ---- */

typedef struct Step {
    const Kernel *kernel;
    uint32_t a, b, out; /* operands */
    int32_t activation;
} Step;

struct NnhalCompiled {
    const NnhalSubgraph *subgraph; /* lives until `release` */
    float **memory;                /* of each operand that only this subgraph sees, else NULL */
    Step *steps;
};

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    for (uint32_t i = 0; compiled->memory && i < subgraph->operand_count; i++)
        if (compiled->memory[i]) free_buffer(self, compiled->memory[i], 0);
    free(compiled->memory);
    free(compiled->steps);
    free(compiled);
}

static int is_among(uint32_t operand, const uint32_t *list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == operand) return 1;
    return 0;
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **result, char *reason,
                       size_t reason_size) {
    NnhalCompiled *compiled = calloc(1, sizeof *compiled);
    if (!compiled) return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    compiled->subgraph = subgraph;
    compiled->memory = calloc(subgraph->operand_count, sizeof *compiled->memory);
    compiled->steps = calloc(subgraph->operation_count, sizeof *compiled->steps);
    int short_of_memory = !compiled->memory || !compiled->steps;
    for (uint32_t i = 0; i < subgraph->operation_count && !short_of_memory; i++) {
        const NnhalOperation *operation = subgraph->operations[i];
        Step *step = &compiled->steps[i];
        step->kernel = find_kernel(operation);
        step->a = operation->inputs[0];
        step->b = operation->inputs[step->kernel->tensors - 1];
        step->out = operation->outputs[0];
        if (step->kernel->has_activation)
            step->activation = *(int32_t *)subgraph->operands[operation->inputs[2]]->constant->data;
        if (!is_among(step->out, subgraph->outputs, subgraph->output_count)) {
            size_t size = sizeof(float) * (size_t)elements(subgraph->operands[step->out]);
            compiled->memory[step->out] = allocate_buffer(self, size);
            short_of_memory = !compiled->memory[step->out];
        }
    }
    if (short_of_memory) {
        release(self, compiled);
        snprintf(reason, reason_size, "no memory for the intermediate values");
        return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    *result = compiled;
    return NNHAL_NONE;
}

/* ---- Saving and loading: a real backend writes what was dear to compute ---- */

static const char SAVED[] = "simple 1";

static int32_t save(NnhalBackend *self, NnhalCompiled *compiled, const NnhalSink *sink, char *reason,
                    size_t reason_size) {
    (void)self, (void)compiled, (void)reason, (void)reason_size;
    return sink->write(sink->context, SAVED, sizeof SAVED);
}

static int32_t load(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t size,
                    NnhalCompiled **compiled, char *reason, size_t reason_size) {
    if (size != sizeof SAVED || memcmp(bytes, SAVED, size)) {
        snprintf(reason, reason_size, "what was saved is not of this version");
        return NNHAL_GENERAL_FAILURE;
    }
    return compile(self, subgraph, compiled, reason, reason_size);
}

/* ---- Executing ---- */

static float activated(float value, int32_t activation) { /* FusedActivationFunc */
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

/* The value of an operand: a constant, an input of this execution, an output that was asked for, or memory of our own. */
static float *value_of(const NnhalCompiled *compiled, const NnhalExecution *execution, const NnhalTensor **outputs,
                       uint32_t operand) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    if (subgraph->operands[operand]->constant) return subgraph->operands[operand]->constant->data;
    if (compiled->memory[operand]) return compiled->memory[operand];
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
        out[i] = activated(step->kernel->function(a[i * step_a], b[i * step_b]), step->activation);
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
    for (uint32_t i = 0; i < subgraph->operation_count; i++) {
        if (execution->check(execution->context)) return NNHAL_GENERAL_FAILURE; /* cancelled, or too late */
        uint64_t start = execution->span ? now_ns() : 0;
        run_step(compiled, execution, outputs, &compiled->steps[i]);
        if (execution->span)
            execution->span(execution->context, compiled->steps[i].kernel->name, start, now_ns() - start);
    }
    return NNHAL_NONE;
}

/* ---- What the backend says of itself ---- */

static const NnhalCapability *capabilities(NnhalBackend *self, size_t *count) {
    static const NnhalCapability ALL[] = {{"ConcurrentExecution", 0}, {"ProtectedContentAllocation", 0}};
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
    return self; /* every other member is NULL: its default */
}
