/*
 * Frozen: a plug-in built against version 1.0 of the header, of which a copy lies beside it. Neither file may ever be
 * changed: every host 1.x must load it as it is.
 *
 * It negates TENSOR_FLOAT32 (NEG) and fills every member of the table. Each call appends a line to the file that the
 * environment variable FROZEN_EVENTS names.
 */
#include "nnhal_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if NNHAL_BACKEND_MAJOR != 1 || NNHAL_BACKEND_MINOR != 0
#error "this plug-in is to be built against header 1.0"
#endif

enum { NEG = 67 };

struct NnhalCompiled {
    const NnhalSubgraph *subgraph;
};

static void event(const char *name, unsigned long number) {
    const char *path = getenv("FROZEN_EVENTS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    if (number) fprintf(file, "%s %lu\n", name, number);
    else fprintf(file, "%s\n", name);
    fclose(file);
}

static void destroy(NnhalBackend *self) {
    event("destroy", 0);
    free(self);
}

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size) {
    (void)self;
    if (one->operations[0]->type == NEG && !one->operations[0]->extension && one->operands[0]->type == 3) return 1;
    snprintf(reason, reason_size, "only NEG of TENSOR_FLOAT32 is supported");
    return 0;
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **compiled, char *reason,
                       size_t reason_size) {
    (void)self;
    event("compile", 0);
    if (subgraph->operation_count != 1) {
        snprintf(reason, reason_size, "one operation at a time");
        return NNHAL_RESOURCE_EXHAUSTED_PERSISTENT;
    }
    *compiled = malloc(sizeof **compiled);
    (*compiled)->subgraph = subgraph;
    return NNHAL_NONE;
}

static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size) {
    (void)self, (void)compiled;
    event("execute", 0);
    const NnhalTensor *in = execution->inputs[0];
    const NnhalTensor *out = execution->output(execution->context, 0, in->ndim, in->shape);
    if (!out) return NNHAL_GENERAL_FAILURE;
    int64_t count = 1;
    for (int32_t i = 0; i < in->ndim; i++) count *= in->shape[i];
    for (int64_t i = 0; i < count; i++) {
        float value = ((const float *)in->data)[i];
        if (value == 13) { /* lets tests see a failure */
            snprintf(reason, reason_size, "13 cannot be negated");
            return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
        }
        ((float *)out->data)[i] = -value;
    }
    if (execution->check(execution->context)) return NNHAL_GENERAL_FAILURE;
    if (execution->span) execution->span(execution->context, "NEG", 5, 7000);
    return NNHAL_NONE;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    event("release", 0);
    free(compiled);
}

static const NnhalCapability *capabilities(NnhalBackend *self, size_t *count) {
    static const NnhalCapability ALL[] = {{"Frozen", 1}, {"ConcurrentExecution", 0}};
    (void)self;
    *count = 2;
    return ALL;
}

static void performance(NnhalBackend *self, float *exec_time, float *power_usage) {
    (void)self;
    *exec_time = 0.5f;
    *power_usage = 0.25f;
}

static const char *const *extensions(NnhalBackend *self, size_t *count) {
    static const char *const ALL[] = {"com.example.frozen"};
    (void)self;
    *count = 1;
    return ALL;
}

static int32_t save(NnhalBackend *self, NnhalCompiled *compiled, const NnhalSink *sink, char *reason,
                    size_t reason_size) {
    (void)self, (void)compiled, (void)reason, (void)reason_size;
    event("save", 0);
    if (sink->write(sink->context, "fro", 3)) return NNHAL_GENERAL_FAILURE;
    return sink->write(sink->context, "zen", 3);
}

static int32_t load(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t size,
                    NnhalCompiled **compiled, char *reason, size_t reason_size) {
    event("load", 0);
    if (size != 6 || memcmp(bytes, "frozen", 6)) {
        snprintf(reason, reason_size, "not what was saved");
        return NNHAL_GENERAL_FAILURE;
    }
    return compile(self, subgraph, compiled, reason, reason_size);
}

static void *allocate_buffer(NnhalBackend *self, size_t size) {
    (void)self;
    event("allocate_buffer", size);
    return malloc(size);
}

static void free_buffer(NnhalBackend *self, void *buffer, size_t size) {
    (void)self;
    event("free_buffer", size);
    free(buffer);
}

static void before_load(NnhalBackend *self, uint64_t network) {
    (void)self;
    event("before_load", network);
}

static void after_load(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    event("after_load", network);
}

static void before_unload(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    event("before_unload", network);
}

static void after_unload(NnhalBackend *self, uint64_t network) {
    (void)self;
    event("after_unload", network);
}

static void resize_begin(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    event("resize_begin", 0);
}

static int32_t resize(NnhalBackend *self, NnhalCompiled *compiled, uint32_t input_count,
                      const NnhalTensor *const *inputs, char *reason, size_t reason_size) {
    (void)self, (void)compiled, (void)input_count, (void)reason, (void)reason_size;
    event("resize", (unsigned long)inputs[0]->shape[0]);
    return NNHAL_NONE;
}

static void resize_end(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    event("resize_end", 0);
}

static void execute_begin(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    event("execute_begin", 0);
}

static void execute_end(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    event("execute_end", 0);
}

static int32_t wait_finish(NnhalBackend *self, NnhalCompiled *compiled, char *reason, size_t reason_size) {
    (void)self, (void)compiled, (void)reason, (void)reason_size;
    event("wait_finish", 0);
    return NNHAL_NONE;
}

const char *GetBackendId(void) { return "Frozen"; }

void GetVersion(uint32_t *major, uint32_t *minor) {
    *major = NNHAL_BACKEND_MAJOR;
    *minor = NNHAL_BACKEND_MINOR;
}

void *BackendFactory(void) {
    NnhalBackend *self = calloc(1, sizeof *self);
    if (!self) return NULL;
    *self = (NnhalBackend){
        sizeof *self,  NNHAL_BACKEND_MAJOR, NNHAL_BACKEND_MINOR, NULL,         "1.0",           destroy,
        supports,      compile,             execute,             release,      capabilities,    performance,
        extensions,    save,                load,                allocate_buffer, free_buffer,  before_load,
        after_load,    before_unload,       after_unload,        resize_begin, resize,          resize_end,
        execute_begin, execute_end,         wait_finish,
    };
    return self;
}
