/*
 * A plug-in that appends a line to the file NNHAL_TEST_LOG for each call of its life: its objects, networks, parts and
 * executions. It negates TENSOR_FLOAT32 (NEG) and copies it (RELU is refused).
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
};

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
    (void)self, (void)reason, (void)reason_size;
    *compiled = malloc(sizeof **compiled);
    (*compiled)->network = subgraph->network;
    note("compile", subgraph->network);
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
    return NNHAL_NONE;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    note("release", compiled->network);
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
    note("create", 0);
    return self;
}
