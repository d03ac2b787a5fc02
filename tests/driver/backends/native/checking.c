/* A plug-in whose compile, load and optimize call `check` until it tells them to end. */
#include <stdio.h>
#include <stdlib.h>

#include "nnhal_backend.h"

#define MAX_CALLS 1000

struct NnhalCompiled {
    int unused;
};

static int32_t run_until_told(const NnhalSubgraph *subgraph, char *reason, size_t reason_size) {
    for (int i = 0; i < MAX_CALLS; i++)
        if (subgraph->check(subgraph->check_context)) {
            snprintf(reason, reason_size, "told to end");
            return NNHAL_INVALID_ARGUMENT;
        }
    return NNHAL_NONE;
}

static void destroy(NnhalBackend *self) {
    free(self);
}

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size) {
    (void)self;
    snprintf(reason, reason_size, "check must be NULL");
    return one->check == NULL;
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **compiled, char *reason,
                       size_t reason_size) {
    (void)self;
    *compiled = calloc(1, sizeof **compiled);
    return run_until_told(subgraph, reason, reason_size);
}

static int32_t load(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t size,
                    NnhalCompiled **compiled, char *reason, size_t reason_size) {
    (void)bytes, (void)size;
    return compile(self, subgraph, compiled, reason, reason_size);
}

static int32_t optimize(NnhalBackend *self, const NnhalSubgraph *subgraph, const NnhalOptimization *answer,
                        char *reason, size_t reason_size) {
    (void)self, (void)answer;
    return run_until_told(subgraph, reason, reason_size);
}

static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size) {
    (void)self, (void)compiled, (void)execution, (void)reason, (void)reason_size;
    return NNHAL_GENERAL_FAILURE;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    free(compiled);
}

const char *GetBackendId(void) {
    return "Checking";
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
    self->load = load;
    self->optimize = optimize;
    return self;
}
