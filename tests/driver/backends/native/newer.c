/*
 * A plug-in that uses what header 1.1 added: planned memory, layouts, operand types of an extension, optimize, spans of
 * operations, and "CopiesInputs". Words in the environment variable NEWER change its behavior. It appends events to the
 * file that NEWER_EVENTS names.
 *
 *   NEG, TENSOR_FLOAT32  copies through two pieces, and multiplies by a STATIC one
 *   RELU, rank 4         in its own layout: "layout0" NHWC, "layout1" NCHW, "layout2" NC4HW4
 *   SHORTEN, LENGTHEN    of the extension: convert floats to encrypted elements of three bytes, and back
 */
#include "nnhal_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENSION "com.example.newer"

enum { NEG = 67, RELU = 19, SHORTEN = 1, LENGTHEN = 2 };
enum { TENSOR_FLOAT32 = 3, SHORT = 5, SECRET = 6 };

struct NnhalCompiled {
    const NnhalSubgraph *subgraph;
    int substitute;
    uint32_t first, second, factor; /* pieces */
    NnhalRelayout relayouts[3];
};

static int has_word(const char *word) {
    const char *words = getenv("NEWER");
    return words && strstr(words, word);
}

static FILE *events(void) {
    const char *path = getenv("NEWER_EVENTS");
    return path ? fopen(path, "a") : NULL;
}

static void event(const char *name, unsigned long number) {
    FILE *file = events();
    if (!file) return;
    fprintf(file, "%s %lu\n", name, number);
    fclose(file);
}

static void destroy(NnhalBackend *self) { free(self); }

static int is_own(const NnhalOperand *operand, int32_t type) {
    return operand->type == type && operand->extension && !strcmp(operand->extension, EXTENSION);
}

static int32_t supports(NnhalBackend *self, const NnhalSubgraph *one, char *reason, size_t reason_size) {
    (void)self;
    const NnhalOperation *operation = one->operations[0];
    const NnhalOperand *in = one->operands[operation->inputs[0]], *out = one->operands[operation->outputs[0]];
    if (operation->extension) {
        const NnhalOperand *key = one->operands[operation->inputs[1]];
        if (is_own(operation->type == SHORTEN ? out : in, SHORT) && is_own(key, SECRET) && key->constant) return 1;
        snprintf(reason, reason_size, "wrong operands");
        return 0;
    }
    if (in->type == TENSOR_FLOAT32 && !in->extension) {
        if (operation->type == NEG) return 1;
        if (operation->type == RELU && in->rank == 4) return 1;
    }
    snprintf(reason, reason_size, "only NEG and RELU of images");
    return 0;
}

/* Requests two pieces of `size` bytes, and makes invalid requests, which must fail. */
static int32_t plan_pieces(NnhalCompiled *compiled, size_t size) {
    const NnhalMemory *memory = compiled->subgraph->memory;
    int32_t status = memory->get(memory->context, size, NNHAL_DYNAMIC, &compiled->first);
    if (!status) status = memory->get(memory->context, size, NNHAL_DYNAMIC_SEPARATE, &compiled->second);
    if (!status) status = memory->put(memory->context, compiled->first);
    if (memory->put(memory->context, compiled->first) == NNHAL_NONE) event("put twice", 0);
    if (memory->put(memory->context, 99) == NNHAL_NONE) event("put nothing", 99);
    if (memory->get(memory->context, 1, 3, &compiled->first) == NNHAL_NONE) event("unknown storage", 3);
    if (memory->bytes(memory->context, compiled->first)) event("bytes of a dynamic piece", 0);
    return status;
}

static int32_t plan_all(NnhalCompiled *compiled) {
    const NnhalMemory *memory = compiled->subgraph->memory;
    event("mode", (unsigned long)memory->mode);
    if (has_word("greedy"))
        return memory->get(memory->context, (size_t)1 << 60, has_word("static") ? NNHAL_STATIC : NNHAL_DYNAMIC,
                           &compiled->factor);
    int32_t status = memory->get(memory->context, sizeof(float), NNHAL_STATIC, &compiled->factor);
    if (status) return status;
    *(float *)memory->bytes(memory->context, compiled->factor) = -1;
    return has_word("resize") ? NNHAL_NONE : plan_pieces(compiled, 4096);
}

static int32_t compile(NnhalBackend *self, const NnhalSubgraph *subgraph, NnhalCompiled **result, char *reason,
                       size_t reason_size) {
    (void)self;
    NnhalCompiled *compiled = calloc(1, sizeof *compiled);
    compiled->subgraph = subgraph;
    event("compile", subgraph->operation_count);
    if (subgraph->operations[0]->type == NEG) {
        int32_t status = plan_all(compiled);
        if (status) {
            snprintf(reason, reason_size, "there is no room");
            free(compiled);
            return status;
        }
    }
    *result = compiled;
    return NNHAL_NONE;
}

static void release(NnhalBackend *self, NnhalCompiled *compiled) {
    (void)self;
    event("release", compiled->subgraph->operation_count);
    free(compiled);
}

static int64_t count_of(const NnhalTensor *tensor) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
    return count;
}

static void negate(const NnhalCompiled *compiled, const NnhalExecution *execution, const float *in, float *out,
                   int64_t count) {
    float *first = execution->pieces[compiled->first], *second = execution->pieces[compiled->second];
    float factor = *(float *)execution->pieces[compiled->factor];
    if ((uintptr_t)first % 64 || (uintptr_t)second % 64) event("not aligned", 0);
    memcpy(first, in, (size_t)count * sizeof *first);
    for (int64_t i = 0; i < count; i++) second[i] = first[i] * factor;
    memcpy(out, second, (size_t)count * sizeof *out);
}

static void shorten(const float *in, uint8_t *out, const uint8_t *key, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        memcpy(bytes, &in[i], 4);
        for (int k = 0; k < 3; k++) out[3 * i + k] = bytes[k + 1] ^ key[k];
    }
}

static void lengthen(const uint8_t *in, float *out, const uint8_t *key, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint8_t bytes[4] = {0};
        for (int k = 0; k < 3; k++) bytes[k + 1] = in[3 * i + k] ^ key[k];
        memcpy(&out[i], bytes, 4);
    }
}

static void tensor_event(const char *name, const NnhalTensor *tensor) {
    FILE *file = events();
    if (!file) return;
    fprintf(file, "%s %d.%d.%d", name, tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes);
    for (int32_t i = 0; i < tensor->ndim; i++) fprintf(file, " %lld", (long long)tensor->shape[i]);
    fprintf(file, "\n");
    fclose(file);
}

/* Records the name of the mapping that contains an input. */
static void mapping_event(const void *data) {
    FILE *maps = fopen("/proc/self/maps", "r"), *file = events();
    char line[512], name[256];
    unsigned long start, end;
    while (file && maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %255s", &start, &end, name) == 3 && (uintptr_t)data >= start &&
            (uintptr_t)data < end)
            fprintf(file, "lies in %s\n", name);
    if (maps) fclose(maps);
    if (file) fclose(file);
}

/* Runs the only operation, or a substitution. */
static int32_t execute(NnhalBackend *self, NnhalCompiled *compiled, const NnhalExecution *execution, char *reason,
                       size_t reason_size) {
    (void)self, (void)reason, (void)reason_size;
    const NnhalSubgraph *subgraph = compiled->subgraph;
    const NnhalTensor *in = execution->inputs[0];
    uint32_t ignored;
    if (subgraph->memory->get(subgraph->memory->context, 1, NNHAL_STATIC, &ignored) == NNHAL_NONE)
        event("planned late", 0);
    mapping_event(in->data);
    tensor_event("in", in);
    int64_t count = count_of(in);
    const NnhalTensor *out = execution->output(execution->context, 0, in->ndim, in->shape);
    if (!out) return NNHAL_GENERAL_FAILURE;
    tensor_event("out", out);
    const NnhalOperation *operation = subgraph->operations[0];
    if (compiled->substitute) {
        for (int64_t i = 0; i < count; i++) ((float *)out->data)[i] = 7;
    } else if (operation->extension) {
        const NnhalTensor *key = subgraph->operands[operation->inputs[1]]->constant;
        tensor_event("key", key);
        if (operation->type == SHORTEN) shorten(in->data, out->data, key->data, count);
        else lengthen(in->data, out->data, key->data, count);
    } else if (operation->type == NEG) {
        negate(compiled, execution, in->data, out->data, count);
    } else {
        for (int64_t i = 0; i < count; i++) {
            float value = ((float *)in->data)[i];
            ((float *)out->data)[i] = value > 0 ? value : 0;
        }
    }
    if (execution->operation_span) {
        execution->operation_span(execution->context, "the first", 0, 5, 7000);
        execution->operation_span(execution->context, "none", 77, 5, 7000);
    }
    return NNHAL_NONE;
}

static int32_t save(NnhalBackend *self, NnhalCompiled *compiled, const NnhalSink *sink, char *reason,
                    size_t reason_size) {
    (void)self, (void)reason, (void)reason_size;
    event("save", (unsigned long)compiled->substitute);
    return sink->write(sink->context, compiled->substitute ? "1" : "0", 1);
}

static int32_t load(NnhalBackend *self, const NnhalSubgraph *subgraph, const void *bytes, size_t size,
                    NnhalCompiled **compiled, char *reason, size_t reason_size) {
    int32_t status = compile(self, subgraph, compiled, reason, reason_size);
    if (!status) (*compiled)->substitute = size == 1 && *(const char *)bytes == '1';
    event("load", (unsigned long)(!status && (*compiled)->substitute));
    return status;
}

static int32_t resize(NnhalBackend *self, NnhalCompiled *compiled, uint32_t input_count,
                      const NnhalTensor *const *inputs, char *reason, size_t reason_size) {
    (void)self, (void)input_count, (void)reason, (void)reason_size;
    if (!has_word("resize") || compiled->subgraph->operations[0]->type != NEG) return NNHAL_NONE;
    compiled->subgraph->memory->clear(compiled->subgraph->memory->context);
    return plan_pieces(compiled, (size_t)count_of(inputs[0]) * sizeof(float));
}

static const NnhalCapability *capabilities(NnhalBackend *self, size_t *count) {
    static const NnhalCapability PLAIN[] = {{"CopiesInputs", 0}, {"ConcurrentExecution", 0}};
    static const NnhalCapability MORE[] = {{"CopiesInputs", 1}, {"ConcurrentExecution", 1}};
    (void)self;
    *count = 2;
    return has_word("capable") ? MORE : PLAIN;
}

static const char *const *extensions(NnhalBackend *self, size_t *count) {
    static const char *const ALL[] = {EXTENSION};
    (void)self;
    *count = 1;
    return ALL;
}

static const NnhalOperandType *operand_types(NnhalBackend *self, const char *extension, size_t *count) {
    static const NnhalOperandType ALL[] = {{SHORT, 1, 3}, {SECRET, 0, 3}}, IMPOSSIBLE[] = {{SHORT, 1, 0}};
    (void)self;
    *count = strcmp(extension, EXTENSION) ? 0 : has_word("impossible") ? 1 : 2;
    return has_word("impossible") ? IMPOSSIBLE : ALL;
}

static const NnhalRelayout *layouts(NnhalBackend *self, NnhalCompiled *compiled, size_t *count) {
    (void)self;
    const char *layout = getenv("NEWER") ? strstr(getenv("NEWER"), "layout") : NULL;
    const NnhalSubgraph *subgraph = compiled->subgraph;
    *count = 0;
    if (!layout) return NULL;
    int32_t own = layout[6] - '0';
    NnhalRelayout in = {subgraph->inputs[0], NNHAL_NHWC, own}, out = {subgraph->outputs[0], NNHAL_NHWC, own};
    if (has_word("no_operand")) out.operand = 99;
    if (has_word("from_packed")) out.model = NNHAL_NC4HW4;
    compiled->relayouts[0] = in;
    compiled->relayouts[1] = out;
    compiled->relayouts[2] = out;
    *count = has_word("repeated") ? 3 : 2;
    return compiled->relayouts;
}

static int32_t substitute_each(NnhalBackend *self, const NnhalSubgraph *subgraph, const NnhalOptimization *answer,
                          char *reason, size_t reason_size) {
    for (uint32_t i = 0; i < subgraph->operation_count && subgraph->operation_count > 1; i++) {
        const NnhalSubgraph *part = answer->part(answer->context, 1, &i);
        NnhalCompiled *compiled;
        int32_t status = part ? compile(self, part, &compiled, reason, reason_size) : NNHAL_GENERAL_FAILURE;
        if (!status) status = answer->substitute(answer->context, part, compiled);
        if (status) return status;
    }
    return NNHAL_NONE;
}

static int32_t optimize(NnhalBackend *self, const NnhalSubgraph *subgraph, const NnhalOptimization *answer,
                        char *reason, size_t reason_size) {
    if (subgraph->memory) event("memory for the whole", 0);
    if (has_word("fails")) {
        if (subgraph->operation_count < 2) return NNHAL_NONE;
        return answer->fail(answer->context, 1, has_word("fails_with_a_reason") ? "no room for it" : NULL);
    }
    if (has_word("fail_none")) return answer->fail(answer->context, 99, "x");
    if (!has_word("substitute")) return substitute_each(self, subgraph, answer, reason, reason_size);
    const uint32_t pair[] = {1, has_word("outside") ? 99 : has_word("apart") ? 3 : 2};
    const NnhalSubgraph *part = answer->part(answer->context, has_word("many") ? 99 : 2, pair);
    if (!part) return NNHAL_GENERAL_FAILURE;
    NnhalCompiled *compiled;
    int32_t status = compile(self, part, &compiled, reason, reason_size);
    if (status) return status;
    compiled->substitute = 1;
    status = answer->substitute(answer->context, has_word("stranger") ? subgraph : part, compiled);
    if (status) {
        event("kept", 0);
        free(compiled);
        return status;
    }
    if (has_word("twice")) return answer->substitute(answer->context, part, compiled);
    if (has_word("then_error")) {
        snprintf(reason, reason_size, "on second thoughts");
        return NNHAL_GENERAL_FAILURE;
    }
    return NNHAL_NONE;
}

static void before_load(NnhalBackend *self, uint64_t network) {
    (void)self;
    event("before_load", network);
}

static void after_load(NnhalBackend *self, uint64_t network, NnhalCompiled *compiled) {
    (void)self, (void)compiled;
    event("after_load", network);
}

const char *GetBackendId(void) { return "Newer"; }

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
    self->capabilities = capabilities;
    self->extensions = extensions;
    self->save = save;
    self->load = load;
    self->before_load = before_load;
    self->after_load = after_load;
    self->resize = resize;
    self->optimize = optimize;
    self->layouts = layouts;
    self->operand_types = operand_types;
    return self;
}
