/*
 * A plug-in that appends a line to the file NNHAL_TEST_LOG for each call of its life: its objects, networks, parts and
 * executions. It negates TENSOR_FLOAT32 (NEG), and uses any allocator except one of locked memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "nnhal_backend.h"

static void note(const char *event, uint64_t number) {
    const char *path = getenv("NNHAL_TEST_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %llu\n", event, (unsigned long long)number);
        fclose(file);
    }
}

struct NnhalCompiled {
    uint64_t network;
    void *scratch;
};

/* The state of a backend object. */
static const NnhalAllocator *allocator_of(NnhalBackend *self) {
    return self->state;
}

static void destroy(NnhalBackend *self) {
    note("destroy", 0);
    free(self);
}

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size) {
    (void)self;
    if (one->operations[0]->type == 67) /* NEG */
        return 1;
    snprintf(reason, reason_size, "only NEG");
    return 0;
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **compiled, char *reason,
                       size_t reason_size) {
    (void)reason, (void)reason_size;
    const NnhalAllocator *allocator = allocator_of(self);
    uint32_t piece;
    *compiled = calloc(1, sizeof **compiled);
    (*compiled)->network = subgraph->network;
    note("compile", subgraph->network);
    if (allocator) {
        (*compiled)->scratch = allocator->allocate(allocator->context, 1000, 256);
        note("unaligned", (uintptr_t)(*compiled)->scratch % 256);
        return subgraph->memory->get(subgraph->memory->context, 100, NNHAL_DYNAMIC, &piece);
    }
    return NNHAL_NONE;
}

static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size) {
    (void)self, (void)reason, (void)reason_size;
    const NnhalTensor *input = execution->inputs[0];
    const NnhalTensor *output = execution->output(execution->context, 0, input->ndim, input->shape);
    if (!output)
        return NNHAL_GENERAL_FAILURE;
    size_t count = 1;
    for (int32_t i = 0; i < input->ndim; i++)
        count *= (size_t)input->shape[i];
    for (size_t i = 0; i < count; i++)
        ((float *)output->data)[i] = -((const float *)input->data)[i];
    note("execute", compiled->network);
    if (execution->execution)
        note("profiled", execution->execution);
    return NNHAL_NONE;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    const NnhalAllocator *allocator = allocator_of(self);
    note("release", compiled->network);
    if (allocator)
        allocator->free(allocator->context, compiled->scratch);
    free(compiled);
}

#define HOOK(name)                                         \
    static void name(NnhalBackend *self, uint64_t network) { \
        (void)self;                                        \
        note(#name, network);                              \
    }
HOOK(before_load_network)
HOOK(after_load_network)
HOOK(before_unload_network)
HOOK(after_unload_network)

static int32_t use_allocator(NnhalBackend *self, const NnhalAllocator *allocator, char *reason, size_t reason_size) {
    if (allocator->source == NNHAL_LOCKED) {
        snprintf(reason, reason_size, "it needs memory that can be swapped out");
        return 0;
    }
    self->state = (void *)allocator;
    return 1;
}

static void profiling_begin(NnhalBackend *self, uint64_t execution) {
    (void)self;
    note("profiling_begin", execution);
}

static void profiling_end(NnhalBackend *self, uint64_t execution, const NnhalProfile *profile) {
    (void)self;
    note("profiling_end", execution);
    profile->span(profile->context, "counters", 7, 11);
}

const char *GetBackendId(void) {
    return "Lifecycle";
}

void GetVersion(uint32_t *major, uint32_t *minor) {
    *major = NNHAL_BACKEND_MAJOR;
    *minor = NNHAL_BACKEND_MINOR;
}

void *BackendFactory(void) {
    NnhalBackend *self = calloc(1, sizeof *self);
    self->struct_size = sizeof *self;
    self->major = NNHAL_BACKEND_MAJOR;
    self->minor = NNHAL_BACKEND_MINOR;
    self->version = "1";
    self->destroy = destroy;
    self->supports = supports;
    self->compile = compile;
    self->execute = execute;
    self->release = release;
    self->before_load_network = before_load_network;
    self->after_load_network = after_load_network;
    self->before_unload_network = before_unload_network;
    self->after_unload_network = after_unload_network;
    self->use_allocator = use_allocator;
    self->profiling_begin = profiling_begin;
    self->profiling_end = profiling_end;
    note("create", 0);
    return self;
}
