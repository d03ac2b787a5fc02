/*
 * Backend of a third party, written by docs/backends.md and the header alone: LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT,
 * and an extension whose operation POPCOUNT counts the bits of words of 8 bytes. Intermediate values are in memory that
 * the host plans, from an allocator of this backend. AUDIT_TRACE names a file that gets a line for each call.
 */
#include "nnhal_backend.h"
#include "nnhal_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENSION "com.audit.bits"

enum { POPCOUNT = 3, WORDS = 5, WORD_BYTES = 8 }; /* an operation and an operand type of the extension */

static void trace(const char *name, uint64_t number) {
    const char *path = getenv("AUDIT_TRACE");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %llu\n", name, (unsigned long long)number);
    fclose(file);
}

/* ---- Support ---- */

static int is_popcount(const NnhalOperation *operation) {
    return operation->extension && !strcmp(operation->extension, EXTENSION) && operation->type == POPCOUNT;
}

static int is_words(const NnhalOperand *operand) {
    return operand->extension && !strcmp(operand->extension, EXTENSION) && operand->type == WORDS;
}

static int is_logical(const NnhalOperand *operand) { return !operand->extension && operand->type == NNHAL_OPERAND_TENSOR_BOOL8; }

static int is_counts(const NnhalOperand *operand) { return !operand->extension && operand->type == NNHAL_OPERAND_TENSOR_INT32; }

/* Returns the number of elements; 0 if a dimension is unknown. */
static int64_t declared_count(const NnhalOperand *operand) {
    int64_t count = 1;
    for (uint32_t i = 0; i < operand->rank; i++) count *= operand->dimensions[i];
    return count;
}

/* Returns whether two shapes need no broadcasting, or at most that of a single element to rank 1. */
static int fit(const NnhalOperand *a, const NnhalOperand *b) {
    if (a->rank == 1 && b->rank == 1) return 1;
    size_t size = a->rank * sizeof *a->dimensions;
    return a->rank == b->rank && a->rank > 0 && declared_count(a) > 0 && !memcmp(a->dimensions, b->dimensions, size);
}

static int32_t refuse(char *reason, size_t size, const char *text) {
    snprintf(reason, size, "%s", text);
    return 0;
}

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t size) {
    const NnhalOperation *operation = one->operations[0];
    int popcount = is_popcount(operation);
    uint32_t inputs = popcount || operation->type == NNHAL_OPERATION_LOGICAL_NOT ? 1 : 2;
    (void)self;
    if (!popcount && (operation->extension || operation->type < NNHAL_OPERATION_LOGICAL_AND || operation->type > NNHAL_OPERATION_LOGICAL_OR))
        return refuse(reason, size, "only logical operations and POPCOUNT are supported");
    if (operation->input_count != inputs || operation->output_count != 1)
        return refuse(reason, size, "wrong number of arguments");
    const NnhalOperand *output = one->operands[operation->outputs[0]];
    if (popcount ? !is_counts(output) : !is_logical(output)) return refuse(reason, size, "wrong type of the output");
    for (uint32_t i = 0; i < inputs; i++) {
        const NnhalOperand *input = one->operands[operation->inputs[i]];
        if (popcount ? !is_words(input) : !is_logical(input)) return refuse(reason, size, "wrong type of an input");
        if (input->omitted || !fit(input, output)) return refuse(reason, size, "shapes must be equal, or of rank 1");
    }
    return 1;
}

/* ---- Compiling ---- */

struct NnhalCompiled {
    const NnhalSubgraph *subgraph;
    int64_t *counts; /* elements of each operand at the present shapes */
    int64_t *pieces; /* piece of each operand; -1 if it is not an intermediate value */
};

static int index_in(uint32_t operand, const uint32_t *list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == operand) return (int)i;
    return -1;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    trace("release", 0);
    free(compiled->counts);
    free(compiled->pieces);
    free(compiled);
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **result, char *reason,
                       size_t size) {
    NnhalCompiled *compiled = calloc(1, sizeof *compiled);
    (void)self, (void)reason, (void)size;
    trace("compile", subgraph->memory->mode);
    if (!compiled) return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    compiled->subgraph = subgraph;
    compiled->counts = calloc(subgraph->operand_count, sizeof *compiled->counts);
    compiled->pieces = calloc(subgraph->operand_count, sizeof *compiled->pieces);
    if (!compiled->counts || !compiled->pieces) {
        release(self, compiled);
        return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    }
    *result = compiled;
    return NNHAL_NONE;
}

static int64_t tensor_count(const NnhalTensor *tensor) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
    return count;
}

static int is_read_later(const NnhalSubgraph *subgraph, uint32_t operand, uint32_t step) {
    for (uint32_t i = step + 1; i < subgraph->operation_count; i++)
        if (index_in(operand, subgraph->operations[i]->inputs, subgraph->operations[i]->input_count) >= 0) return 1;
    return 0;
}

static int32_t plan(NnhalCompiled *compiled) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    const NnhalMemory *memory = subgraph->memory;
    memory->clear(memory->context);
    for (uint32_t i = 0; i < subgraph->operand_count; i++) compiled->pieces[i] = -1;
    for (uint32_t i = 0; i < subgraph->operation_count; i++) {
        const NnhalOperation *operation = subgraph->operations[i];
        uint32_t out = operation->outputs[0], piece;
        if (index_in(out, subgraph->outputs, subgraph->output_count) < 0) {
            size_t bytes = (size_t)compiled->counts[out] * (is_popcount(operation) ? sizeof(int32_t) : 1);
            int32_t status = memory->get(memory->context, bytes, NNHAL_DYNAMIC, &piece);
            if (status) return status;
            compiled->pieces[out] = piece;
        }
        for (uint32_t k = 0; k < operation->input_count; k++) {
            uint32_t in = operation->inputs[k];
            if (index_in(in, operation->inputs, k) >= 0 || compiled->pieces[in] < 0) continue;
            if (!is_read_later(subgraph, in, i)) memory->put(memory->context, (uint32_t)compiled->pieces[in]);
        }
    }
    return NNHAL_NONE;
}

static void resize_begin(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    trace("resize_begin", 0);
}

static int32_t resize(NnhalBackend *self, NnhalCompiled *compiled, uint32_t count, const NnhalTensor *const *inputs,
                      char *reason, size_t size) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    (void)self;
    trace("resize", count ? (uint64_t)tensor_count(inputs[0]) : 0);
    for (uint32_t i = 0; i < subgraph->operand_count; i++)
        if (subgraph->operands[i]->constant) compiled->counts[i] = tensor_count(subgraph->operands[i]->constant);
    for (uint32_t i = 0; i < count; i++) compiled->counts[subgraph->inputs[i]] = tensor_count(inputs[i]);
    for (uint32_t i = 0; i < subgraph->operation_count; i++) {
        const NnhalOperation *operation = subgraph->operations[i];
        int64_t first = compiled->counts[operation->inputs[0]];
        int64_t last = compiled->counts[operation->inputs[operation->input_count - 1]];
        if (first != last && first != 1 && last != 1) {
            snprintf(reason, size, "operation %u has inputs of %lld and %lld elements", i, (long long)first,
                     (long long)last);
            return NNHAL_GENERAL_FAILURE;
        }
        compiled->counts[operation->outputs[0]] = first == 1 ? last : first;
    }
    return plan(compiled);
}

static void resize_end(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    trace("resize_end", 0);
}

/* ---- Executing ---- */

static void *value_of(const NnhalCompiled *compiled, const NnhalExecution *execution, void **outputs, uint32_t operand) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    if (subgraph->operands[operand]->constant) return subgraph->operands[operand]->constant->data;
    if (compiled->pieces[operand] >= 0) return execution->pieces[compiled->pieces[operand]];
    int input = index_in(operand, subgraph->inputs, subgraph->input_count);
    if (input >= 0) return execution->inputs[input]->data;
    return outputs[index_in(operand, subgraph->outputs, subgraph->output_count)];
}

static int32_t bits_of(const unsigned char *word) {
    int32_t count = 0;
    for (int i = 0; i < 8 * WORD_BYTES; i++) count += word[i / 8] >> i % 8 & 1;
    return count;
}

static void run_operation(const NnhalCompiled *compiled, const NnhalExecution *execution, void **outputs,
                          const NnhalOperation *operation) {
    uint32_t first = operation->inputs[0], last = operation->inputs[operation->input_count - 1];
    const unsigned char *a = value_of(compiled, execution, outputs, first);
    const unsigned char *b = value_of(compiled, execution, outputs, last);
    unsigned char *out = value_of(compiled, execution, outputs, operation->outputs[0]);
    int64_t step_a = compiled->counts[first] > 1, step_b = compiled->counts[last] > 1;
    for (int64_t i = 0; i < compiled->counts[operation->outputs[0]]; i++) {
        if (is_popcount(operation)) ((int32_t *)out)[i] = bits_of(a + i * WORD_BYTES);
        else if (operation->type == NNHAL_OPERATION_LOGICAL_NOT) out[i] = !a[i];
        else if (operation->type == NNHAL_OPERATION_LOGICAL_AND) out[i] = a[i * step_a] && b[i * step_b];
        else out[i] = a[i * step_a] || b[i * step_b];
    }
}

/* Allocates the outputs. Those of rank 1 have as many elements as computed, the others their declared shape. */
static int32_t allocate_outputs(const NnhalCompiled *compiled, const NnhalExecution *execution, void **outputs) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    for (uint32_t i = 0; i < subgraph->output_count; i++) {
        const NnhalOperand *operand = subgraph->operands[subgraph->outputs[i]];
        int64_t shape[32] = {compiled->counts[subgraph->outputs[i]]};
        for (uint32_t k = 0; operand->rank > 1 && k < operand->rank; k++) shape[k] = operand->dimensions[k];
        const NnhalTensor *tensor = execution->output(execution->context, i, (int32_t)operand->rank, shape);
        if (!tensor) return NNHAL_GENERAL_FAILURE; /* the host knows the reason */
        outputs[i] = tensor->data;
    }
    return NNHAL_NONE;
}

static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t size) {
    const NnhalSubgraph *subgraph = compiled->subgraph;
    void **outputs = calloc(subgraph->output_count + 1, sizeof *outputs);
    (void)self, (void)reason, (void)size;
    trace("execute", 0);
    if (!outputs) return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    int32_t status = allocate_outputs(compiled, execution, outputs);
    for (uint32_t i = 0; !status && i < subgraph->operation_count; i++) {
        if (execution->check(execution->context)) status = NNHAL_GENERAL_FAILURE;
        else run_operation(compiled, execution, outputs, subgraph->operations[i]);
    }
    free(outputs);
    return status;
}

static void execute_begin(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    trace("execute_begin", 0);
}

static void execute_end(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    trace("execute_end", 0);
}

static int32_t wait_finish(NnhalBackend *self, NnhalCompiled *compiled, char *reason, size_t size) {
    (void)self, (void)compiled, (void)reason, (void)size;
    trace("wait_finish", 0);
    return NNHAL_NONE;
}

/* ---- The cache: there is nothing to compute, so only a mark is saved ---- */

static int32_t save(NnhalBackend *self, NnhalCompiled *compiled, const NnhalSink *sink, char *reason, size_t size) {
    (void)self, (void)compiled, (void)reason, (void)size;
    trace("save", 0);
    return sink->write(sink->context, "bits", 4);
}

static int32_t load(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t count,
                    NnhalCompiled **compiled, char *reason, size_t size) {
    trace("load", count);
    if (count != 4 || memcmp(bytes, "bits", 4)) return NNHAL_GENERAL_FAILURE;
    return compile(self, subgraph, compiled, reason, size);
}

/* ---- The allocator and the hooks for loading ---- */

static void *allocate_buffer(NnhalBackend *self, size_t size) {
    void *block = malloc(size + 64 + sizeof(void *));
    (void)self;
    trace("allocate", size);
    if (!block) return NULL;
    char *aligned = (char *)(((uintptr_t)block + sizeof(void *) + 63) / 64 * 64);
    ((void **)aligned)[-1] = block;
    return aligned;
}

static void free_buffer(NnhalBackend *self, void *buffer, size_t size) {
    (void)self;
    trace("free", size);
    free(((void **)buffer)[-1]);
}

static void before_load(NnhalBackend *self, uint64_t network) {
    (void)self;
    trace("before_load", network);
}

static void after_load(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    trace("after_load", network);
}

static void before_unload(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    trace("before_unload", network);
}

static void after_unload(NnhalBackend *self, uint64_t network) {
    (void)self;
    trace("after_unload", network);
}

static void destroy(NnhalBackend *self) {
    trace("destroy", 0);
    free(self);
}

/* ---- Properties and entry points ---- */

static const char *const *extensions(NnhalBackend *self, size_t *count) {
    static const char *const ALL[] = {EXTENSION};
    (void)self;
    *count = 1;
    return ALL;
}

static const NnhalOperandType *operand_types(NnhalBackend *self, const char *extension, size_t *count) {
    static const NnhalOperandType ALL[] = {{WORDS, 1, WORD_BYTES}};
    (void)self;
    *count = !strcmp(extension, EXTENSION);
    return ALL;
}

const char *GetBackendId(void) { return "Bits"; }

void GetVersion(uint32_t *major, uint32_t *minor) {
    *major = NNHAL_BACKEND_MAJOR;
    *minor = NNHAL_BACKEND_MINOR;
}

void *BackendFactory(void) {
    NnhalBackend *self = calloc(1, sizeof *self);
    if (!self) return NULL;
    self->struct_size = sizeof *self;
    self->major = NNHAL_BACKEND_MAJOR;
    self->minor = NNHAL_BACKEND_MINOR;
    self->version = "1";
    self->destroy = destroy;
    self->supports = supports;
    self->compile = compile;
    self->execute = execute;
    self->release = release;
    self->extensions = extensions;
    self->operand_types = operand_types;
    self->save = save;
    self->load = load;
    self->allocate_buffer = allocate_buffer;
    self->free_buffer = free_buffer;
    self->before_load = before_load;
    self->after_load = after_load;
    self->before_unload = before_unload;
    self->after_unload = after_unload;
    self->resize_begin = resize_begin;
    self->resize = resize;
    self->resize_end = resize_end;
    self->execute_begin = execute_begin;
    self->execute_end = execute_end;
    self->wait_finish = wait_finish;
    return self;
}
