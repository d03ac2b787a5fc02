/*
 * A plug-in with options: "factor" from 1 on is the factor of its RELU, "secret" is not part of the cache key, and
 * "device" is its type. It fails without a license. Its pieces are in the mode that the host chooses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnhal_backend.h"

typedef struct State {
    float factor;
    int32_t type;
} State;

struct NnhalCompiled {
    int32_t mode;
};

static void destroy(NnhalBackend *self) {
    free(self->state);
    free(self);
}

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size) {
    (void)self;
    if (one->operations[0]->type == 19) /* RELU */
        return 1;
    snprintf(reason, reason_size, "only RELU");
    return 0;
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **compiled, char *reason,
                       size_t reason_size) {
    (void)self, (void)reason, (void)reason_size;
    *compiled = calloc(1, sizeof **compiled);
    (*compiled)->mode = subgraph->memory->mode;
    return NNHAL_NONE;
}

/* Writes the factor, and the number of the memory's mode as a fraction. */
static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size) {
    (void)reason, (void)reason_size;
    const NnhalTensor *input = execution->inputs[0];
    const NnhalTensor *output = execution->output(execution->context, 0, input->ndim, input->shape);
    if (!output)
        return NNHAL_GENERAL_FAILURE;
    ((float *)output->data)[0] = ((State *)self->state)->factor + 0.25f * (float)compiled->mode;
    return NNHAL_NONE;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    free(compiled);
}

static int32_t device_type(NnhalBackend *self) {
    return ((State *)self->state)->type;
}

const char *GetBackendId(void) {
    return "Options";
}

void GetVersion(uint32_t *major, uint32_t *minor) {
    *major = NNHAL_BACKEND_MAJOR;
    *minor = NNHAL_BACKEND_MINOR;
}

static NnhalBackend *create(float factor, int32_t type) {
    NnhalBackend *self = calloc(1, sizeof *self);
    State *state = calloc(1, sizeof *state);
    state->factor = factor;
    state->type = type;
    self->struct_size = sizeof *self;
    self->major = NNHAL_BACKEND_MAJOR;
    self->minor = NNHAL_BACKEND_MINOR;
    self->state = state;
    self->version = "1";
    self->destroy = destroy;
    self->supports = supports;
    self->compile = compile;
    self->execute = execute;
    self->release = release;
    self->device_type = device_type;
    return self;
}

/* For hosts of 1.1. */
void *BackendFactory(void) {
    return create(-1.0f, NNHAL_DEVICE_CPU);
}

void *BackendFactoryWithOptions(const NnhalOptions *options, char *reason, size_t reason_size) {
    const char *factor = options->get(options->context, "factor");
    const char *type = options->get(options->context, "device");
    const char *license = options->get(options->context, "license");
    options->get(options->context, "secret");
    options->exclude_from_cache_key(options->context, "secret");
    if (factor && atof(factor) < 1) {
        options->reject(options->context, "factor", "expected 1 or more");
        return NULL;
    }
    if (license && !strcmp(license, "expired")) {
        snprintf(reason, reason_size, "the license has expired");
        return NULL;
    }
    return create(factor ? (float)atof(factor) : 2.0f, type ? atoi(type) : NNHAL_DEVICE_ACCELERATOR);
}
