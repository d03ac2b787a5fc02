/*
 * A plug-in for a device with a queue and memory of its own: a thread does all work in order. It negates TENSOR_FLOAT32
 * (NEG), takes a MAXIMUM, and raises an error of the device for ABS. Tests control the device by `hold`, and read its counters.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnhal_backend.h"

enum { ABS = 38, MAXIMUM = 65, NEG = 67 };

/* ---- The device ---- */

typedef struct Job {
    struct Job *next;
    const float *source, *other;
    float *target;
    size_t count;
    int type; /* of the operation, or 0 for a copy */
    int done;
    int failed;
} Job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Job *first, *last;
static int held, objects;
static long counters[5]; /* queued, into, out of, within, buffers in use */
enum { QUEUED, INTO, OUT_OF, WITHIN, BUFFERS };
static pthread_t thread;

NNHAL_EXPORT void hold(int on) {
    pthread_mutex_lock(&lock);
    held = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

NNHAL_EXPORT long counter(int which) {
    pthread_mutex_lock(&lock);
    long value = counters[which];
    pthread_mutex_unlock(&lock);
    return value;
}

static void count_event(int which, int by) {
    pthread_mutex_lock(&lock);
    counters[which] += by;
    pthread_mutex_unlock(&lock);
}

static void run_job(Job *job) {
    if (job->type == 0) memcpy(job->target, job->source, job->count * sizeof *job->target);
    if (job->type == NEG)
        for (size_t i = 0; i < job->count; i++) job->target[i] = -job->source[i];
    if (job->type == MAXIMUM)
        for (size_t i = 0; i < job->count; i++)
            job->target[i] = job->source[i] > job->other[i] ? job->source[i] : job->other[i];
    job->failed = job->type == ABS;
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (objects && (held || !first)) pthread_cond_wait(&changed, &lock);
        if (!objects) break;
        Job *job = first;
        first = job->next;
        pthread_mutex_unlock(&lock);
        run_job(job);
        pthread_mutex_lock(&lock);
        job->done = 1;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static Job *submit(int type, const float *source, const float *other, float *target, size_t count) {
    Job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->source = source;
    job->other = other;
    job->target = target;
    job->count = count;
    job->type = type;
    pthread_mutex_lock(&lock);
    if (first) last->next = job;
    else first = job;
    last = job;
    counters[QUEUED]++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return job;
}

/* Waits for a job and frees it. */
static int32_t finish(Job *job, char *reason, size_t reason_size) {
    pthread_mutex_lock(&lock);
    while (!job->done) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    int failed = job->failed;
    free(job);
    if (failed) snprintf(reason, reason_size, "the device is broken");
    return failed ? NNHAL_GENERAL_FAILURE : NNHAL_NONE;
}

/* ---- Memory of the device ---- */

static size_t elements(const NnhalTensor *tensor) {
    size_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) count *= (size_t)tensor->shape[i];
    return count;
}

static void *acquire_buffer(NnhalBackend *self, const NnhalTensor *tensor) {
    (void)self;
    count_event(BUFFERS, 1);
    return calloc(elements(tensor) + 1, sizeof(float));
}

static void release_buffer(NnhalBackend *self, void *buffer) {
    (void)self;
    count_event(BUFFERS, -1);
    free(buffer);
}

static int32_t copy_buffer(NnhalBackend *self, const NnhalTensor *source, const NnhalTensor *target, char *reason,
                           size_t reason_size) {
    (void)self;
    int from = source->device.device_type == 12, to = target->device.device_type == 12;
    count_event(from && to ? WITHIN : from ? OUT_OF : INTO, 1);
    if (!from) { /* the buffer is new, so that no work in the queue uses it */
        memcpy(target->data, source->data, elements(source) * sizeof(float));
        return NNHAL_NONE;
    }
    Job *job = submit(0, source->data, NULL, target->data, elements(source));
    return job ? finish(job, reason, reason_size) : NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
}

/* ---- Subgraphs ---- */

struct NnhalCompiled {
    const NnhalSubgraph *subgraph;
    uint32_t *operands;
    uint32_t count;
    void *block;
    size_t block_size;
};

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size) {
    (void)self;
    int32_t type = one->operations[0]->type;
    if (type == NEG || type == MAXIMUM || type == ABS) return 1;
    snprintf(reason, reason_size, "only NEG, MAXIMUM and ABS");
    return 0;
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **result, char *reason,
                       size_t reason_size) {
    (void)self;
    if (subgraph->operation_count != 1) {
        snprintf(reason, reason_size, "one operation at a time");
        return NNHAL_GENERAL_FAILURE;
    }
    NnhalCompiled *compiled = calloc(1, sizeof *compiled);
    compiled->subgraph = subgraph;
    compiled->operands = calloc(3, sizeof *compiled->operands);
    for (uint32_t i = 0; i < subgraph->input_count; i++) compiled->operands[compiled->count++] = subgraph->inputs[i];
    compiled->operands[compiled->count++] = subgraph->outputs[0];
    *result = compiled;
    uint32_t piece;
    /* models whose values have 7 elements use planned memory too */
    if (subgraph->operands[subgraph->inputs[0]]->dimensions[0] == 7)
        return subgraph->memory->get(subgraph->memory->context, 100, NNHAL_DYNAMIC, &piece);
    return NNHAL_NONE;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    free(compiled->operands);
    free(compiled);
}

static const uint32_t *device_operands(NnhalBackend *self, NnhalCompiled *compiled, size_t *count) {
    (void)self;
    *count = compiled->count;
    return compiled->operands;
}

static void block_allocated(NnhalBackend *self, NnhalCompiled *compiled, void *block, size_t size) {
    (void)self;
    compiled->block = block;
    compiled->block_size = size;
}

static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size) {
    (void)self;
    const NnhalTensor *input = execution->inputs[0];
    const NnhalTensor *output = execution->output(execution->context, 0, input->ndim, input->shape);
    if (!output) return NNHAL_GENERAL_FAILURE;
    if (input->device.device_type != 12 || output->device.device_type != 12) {
        snprintf(reason, reason_size, "the values are not on the device");
        return NNHAL_GENERAL_FAILURE;
    }
    if (execution->pieces && (compiled->block != execution->pieces[0] || compiled->block_size < 100)) {
        snprintf(reason, reason_size, "the block is not the one that was allocated");
        return NNHAL_GENERAL_FAILURE;
    }
    const float *other = execution->inputs[execution->input_count - 1]->data;
    Job *job = submit(compiled->subgraph->operations[0]->type, input->data, other, output->data, elements(input));
    if (!job) return NNHAL_RESOURCE_EXHAUSTED_TRANSIENT;
    int32_t status = execution->defer(execution->context, job);
    if (!status && execution->defer(execution->context, job) != NNHAL_INVALID_ARGUMENT) {
        snprintf(reason, reason_size, "an execution was deferred twice");
        return NNHAL_GENERAL_FAILURE;
    }
    return status;
}

static int32_t wait_deferred(NnhalBackend *self, NnhalCompiled *compiled, void *state, char *reason,
                             size_t reason_size) {
    (void)self, (void)compiled;
    return finish(state, reason, reason_size);
}

static const NnhalCapability *capabilities(NnhalBackend *self, size_t *count) {
    static const NnhalCapability ALL[] = {{"ConcurrentExecution", 1}};
    (void)self;
    *count = 1;
    return ALL;
}

static void destroy(NnhalBackend *self) {
    pthread_mutex_lock(&lock);
    int left = --objects;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (!left) pthread_join(thread, NULL);
    free(self);
}

NNHAL_EXPORT const char *GetBackendId(void) { return "Queued"; }

NNHAL_EXPORT void GetVersion(uint32_t *major, uint32_t *minor) {
    *major = NNHAL_BACKEND_MAJOR;
    *minor = NNHAL_BACKEND_MINOR;
}

NNHAL_EXPORT void *BackendFactory(void) {
    NnhalBackend *self = calloc(1, sizeof *self);
    if (!self) return NULL;
    pthread_mutex_lock(&lock);
    int starts = objects++ == 0;
    pthread_mutex_unlock(&lock);
    if (starts) pthread_create(&thread, NULL, work, NULL);
    self->struct_size = sizeof *self;
    self->major = NNHAL_BACKEND_MAJOR;
    self->minor = NNHAL_BACKEND_MINOR;
    self->version = "1";
    self->destroy = destroy;
    self->supports = supports;
    self->compile = compile;
    self->execute = execute;
    self->release = release;
    self->capabilities = capabilities;
    self->wait_deferred = wait_deferred;
    self->device_operands = device_operands;
    self->acquire_buffer = acquire_buffer;
    self->release_buffer = release_buffer;
    self->copy_buffer = copy_buffer;
    self->block_allocated = block_allocated;
    return self;
}
