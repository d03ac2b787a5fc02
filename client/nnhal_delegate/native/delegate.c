/* libnnhal_delegate.so: a delegate of LiteRT and TensorFlow Lite that runs nodes on a device of nnhal.
 *
 * LiteRT calls the functions of a delegate and of its kernels. They read LiteRT's structures, and call the Python
 * package nnhal_delegate through the runtime of nnhal's C libraries (runtime.h). Python's functions return 0 and their
 * results, or another number and a message.
 */

#include "litert.h"

#include "functions.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

const Library THIS_LIBRARY = {"libnnhal_delegate", "nnhal_delegate.entry", FUNCTION_COUNT};

/* A kernel: the nodes of a partition as one node. */
typedef struct {
    void* handle;
    TfLiteIntArray* values; /* its inputs and outputs, without constants */
    int input_count;
    bool is_dynamic; /* the shapes of its outputs are known only when it has run */
    uint64_t* buffers;
} Kernel;

/* The graph that Prepare of this thread is dividing, for the kernels that LiteRT creates meanwhile. */
static __thread void* current_graph = NULL;

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

static void report_error(TfLiteContext* context, const char* message) {
    if (context != NULL) context->ReportError(context, "nnhal delegate: %s", message);
}

/* Ends a call. Reports the message of a failed one. */
static TfLiteStatus finish(Call* call, TfLiteContext* context) {
    const char* message = "the call failed; see the standard error";
    if (call->code != 0) {
        take_string(call, 1, &message);
        report_error(context, message);
    }
    return call_end(call) == 0 ? kTfLiteOk : kTfLiteDelegateError;
}

static bool begin(Call* call, TfLiteContext* context) {
    if (call_begin(call)) return true;
    report_error(context, "there is no Python interpreter that has nnhal, or it has ended; see the standard error");
    return false;
}

/* Calls a function whose only argument is a handle. */
static void release(int function, void* handle) {
    Call call;
    if (!begin(&call, NULL)) return;
    push_handle(&call, handle);
    call_invoke(&call, function, true);
    finish(&call, NULL);
}

static void push_array(Call* call, const TfLiteIntArray* array) {
    push_copy(call, array != NULL ? array->data : (const int[]){0}, array != NULL ? (size_t)array->size * 4 : 0);
}

/* Returns a result, an array of int32, as an array of LiteRT; NULL if there is none. */
static TfLiteIntArray* take_array(Call* call, int position) {
    const void* data = NULL;
    size_t size = 0;
    if (call->code != 0 || !take_data(call, position, &data, &size)) return NULL;
    TfLiteIntArray* array = malloc(sizeof(TfLiteIntArray) + size);
    if (array == NULL) return NULL;
    array->size = (int)(size / 4);
    memcpy(array->data, data, size);
    return array;
}

/* ---- Graphs --------------------------------------------------------------------------------------------------- */

static TfLiteStatus add_sparsity(TfLiteContext* context, void* graph, const TfLiteSparsity* sparsity) {
    Call call;
    if (!begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, graph);
    push_array(&call, sparsity->traversal_order);
    push_array(&call, sparsity->block_map);
    call_invoke(&call, FUNCTION_set_sparsity, true);
    TfLiteStatus status = finish(&call, context);
    for (int i = 0; i < sparsity->dim_metadata_size && status == kTfLiteOk; i++) {
        const TfLiteDimensionMetadata* dimension = &sparsity->dim_metadata[i];
        bool is_compressed = dimension->format == kTfLiteDimSparseCSR;
        if (!begin(&call, context)) return kTfLiteDelegateError;
        push_handle(&call, graph);
        push_signed(&call, is_compressed);
        push_signed(&call, is_compressed ? 0 : dimension->dense_size);
        push_array(&call, is_compressed ? dimension->array_segments : NULL);
        push_array(&call, is_compressed ? dimension->array_indices : NULL);
        call_invoke(&call, FUNCTION_add_sparse_dimension, true);
        status = finish(&call, context);
    }
    return status;
}

static void push_quantization(Call* call, const TfLiteTensor* tensor) {
    const TfLiteAffineQuantization* affine = tensor->quantization.params;
    push_signed(call, tensor->quantization.type);
    if (tensor->quantization.type == kTfLiteAffineQuantization && affine != NULL && affine->scale != NULL) {
        push_copy(call, affine->scale->data, (size_t)affine->scale->size * sizeof(float));
        push_array(call, affine->zero_point);
        push_signed(call, affine->quantized_dimension);
    } else {
        bool has_scale = tensor->quantization.type == kTfLiteNoQuantization && tensor->params.scale != 0;
        push_copy(call, &tensor->params.scale, has_scale ? sizeof(float) : 0);
        push_copy(call, &tensor->params.zero_point, has_scale ? sizeof(int32_t) : 0);
        push_signed(call, 0);
    }
}

static TfLiteStatus add_tensor(TfLiteContext* context, void* graph, const TfLiteTensor* tensor) {
    Call call;
    bool is_constant = tensor->allocation_type == kTfLiteMmapRo && tensor->data != NULL;
    if (!begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, graph);
    push_string(&call, tensor->name != NULL ? tensor->name : "");
    push_signed(&call, tensor->type);
    push_array(&call, tensor->dims);
    push_buffer(&call, is_constant ? tensor->data : NULL, tensor->bytes, false);
    push_signed(&call, tensor->is_variable);
    push_quantization(&call, tensor);
    call_invoke(&call, FUNCTION_add_tensor, true);
    TfLiteStatus status = finish(&call, context);
    return status == kTfLiteOk && tensor->sparsity != NULL ? add_sparsity(context, graph, tensor->sparsity) : status;
}

static TfLiteStatus add_node(TfLiteContext* context, void* graph, int index) {
    TfLiteNode* node = NULL;
    TfLiteRegistration* registration = NULL;
    Call call;
    TfLiteStatus status = context->GetNodeAndRegistration(context, index, &node, &registration);
    if (status != kTfLiteOk) return status;
    if (!begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, graph);
    push_signed(&call, index);
    push_signed(&call, registration->builtin_code);
    push_signed(&call, registration->version);
    push_string(&call, registration->custom_name != NULL ? registration->custom_name : "");
    push_array(&call, node->inputs);
    push_array(&call, node->outputs);
    push_array(&call, node->intermediates);
    push_handle(&call, node->builtin_data);
    push_copy(&call, node->custom_initial_data, (size_t)node->custom_initial_data_size);
    call_invoke(&call, FUNCTION_add_node, true);
    return finish(&call, context);
}

static TfLiteStatus read_graph(TfLiteContext* context, TfLiteDelegate* delegate, void** graph) {
    TfLiteIntArray* plan = NULL;
    Call call;
    TfLiteStatus status = context->GetExecutionPlan(context, &plan);
    if (status != kTfLiteOk) return status;
    if (!begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, delegate->data_);
    call_invoke(&call, FUNCTION_create_graph, true);
    *graph = call.code == 0 ? take_handle(&call, 1) : NULL;
    status = finish(&call, context);
    for (size_t i = 0; i < context->tensors_size && status == kTfLiteOk; i++)
        status = add_tensor(context, *graph, &context->tensors[i]);
    for (int i = 0; i < plan->size && status == kTfLiteOk; i++) status = add_node(context, *graph, plan->data[i]);
    return status;
}

/* ---- Choice of nodes ------------------------------------------------------------------------------------------ */

static TfLiteStatus chosen_nodes(TfLiteContext* context, void* graph, TfLiteIntArray** nodes) {
    Call call;
    if (!begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, graph);
    call_invoke(&call, FUNCTION_chosen_nodes, true);
    *nodes = take_array(&call, 1);
    TfLiteStatus status = finish(&call, context);
    return status == kTfLiteOk && *nodes == NULL ? kTfLiteError : status;
}

static TfLiteStatus examine_partition(TfLiteContext* context, void* graph, const TfLiteDelegateParams* partition,
                                      bool* is_accepted) {
    Call call;
    int64_t accepted = 0;
    if (!begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, graph);
    push_array(&call, partition->nodes_to_replace);
    push_array(&call, partition->input_tensors);
    push_array(&call, partition->output_tensors);
    call_invoke(&call, FUNCTION_examine_partition, true);
    if (call.code == 0) take_signed(&call, 1, &accepted);
    *is_accepted = accepted != 0;
    return finish(&call, context);
}

/* Returns the nodes whose partitions the device runs: each refusal of nodes changes the partitions. */
static TfLiteStatus choose_nodes(TfLiteContext* context, TfLiteDelegate* delegate, void* graph,
                                 TfLiteIntArray** nodes) {
    for (bool is_accepted = false; !is_accepted;) {
        TfLiteDelegateParams* partitions = NULL;
        int count = 0;
        free(*nodes);
        *nodes = NULL;
        TfLiteStatus status = chosen_nodes(context, graph, nodes);
        if (status != kTfLiteOk || (*nodes)->size == 0) return status;
        status = context->PreviewDelegatePartitioning(context, *nodes, &partitions, &count);
        is_accepted = true;
        for (int i = 0; i < count && status == kTfLiteOk; i++) {
            bool is_this_accepted = false;
            partitions[i].delegate = delegate;
            status = examine_partition(context, graph, &partitions[i], &is_this_accepted);
            is_accepted = is_accepted && is_this_accepted;
        }
        if (status != kTfLiteOk) return status;
    }
    return kTfLiteOk;
}

/* ---- Kernels -------------------------------------------------------------------------------------------------- */

static void free_kernel(TfLiteContext* context, void* buffer) {
    (void)context;
    Kernel* kernel = buffer;
    if (kernel == NULL) return;
    if (kernel->handle != NULL) release(FUNCTION_destroy_kernel, kernel->handle);
    free(kernel->values);
    free(kernel->buffers);
    free(kernel);
}

static void* init_kernel(TfLiteContext* context, const char* buffer, size_t length) {
    (void)length;
    const TfLiteDelegateParams* partition = (const TfLiteDelegateParams*)(const void*)buffer;
    Kernel* kernel = calloc(1, sizeof(Kernel));
    int64_t inputs = 0;
    Call call;
    if (kernel == NULL || !begin(&call, context)) return kernel;
    push_handle(&call, current_graph);
    push_array(&call, partition->nodes_to_replace);
    call_invoke(&call, FUNCTION_create_kernel, true);
    if (call.code == 0) {
        kernel->handle = take_handle(&call, 1);
        take_signed(&call, 2, &inputs);
        kernel->input_count = (int)inputs;
        kernel->values = take_array(&call, 3);
        if (kernel->values != NULL) kernel->buffers = calloc((size_t)kernel->values->size * 2, sizeof(uint64_t));
    }
    finish(&call, context);
    return kernel;
}

static const TfLiteIntArray* input_dims(const TfLiteContext* context, const Kernel* kernel, int input) {
    return context->tensors[kernel->values->data[input]].dims;
}

/* Pushes the shapes of the inputs: for each one its rank and its dimensions. */
static bool push_shapes(Call* call, const TfLiteContext* context, const Kernel* kernel) {
    size_t size = 0;
    for (int i = 0; i < kernel->input_count; i++) size += 1 + (size_t)input_dims(context, kernel, i)->size;
    int32_t* shapes = malloc(size * sizeof(int32_t) + 1);
    if (shapes == NULL) return false;
    size = 0;
    for (int i = 0; i < kernel->input_count; i++) {
        const TfLiteIntArray* dims = input_dims(context, kernel, i);
        shapes[size++] = dims->size;
        memcpy(&shapes[size], dims->data, (size_t)dims->size * sizeof(int32_t));
        size += (size_t)dims->size;
    }
    push_copy(call, shapes, size * sizeof(int32_t));
    free(shapes);
    return true;
}

/* Resizes the outputs to their shapes, in the form of push_shapes. */
static TfLiteStatus resize_outputs(TfLiteContext* context, const Kernel* kernel, const TfLiteIntArray* shapes) {
    int position = 0;
    for (int i = kernel->input_count; i < kernel->values->size; i++) {
        TfLiteTensor* tensor = &context->tensors[kernel->values->data[i]];
        int rank = shapes->data[position++];
        const int* dims = &shapes->data[position];
        position += rank;
        size_t size = (size_t)rank * sizeof(int);
        bool is_same = tensor->dims->size == rank && memcmp(tensor->dims->data, dims, size) == 0;
        if (is_same && tensor->allocation_type != kTfLiteDynamic) continue;
        TfLiteIntArray* array = malloc(sizeof(TfLiteIntArray) + size);
        if (array == NULL) return kTfLiteError;
        array->size = rank;
        memcpy(array->data, dims, size);
        TfLiteStatus status = context->ResizeTensor(context, tensor, array); /* takes the array */
        if (status != kTfLiteOk) return status;
    }
    return kTfLiteOk;
}

static TfLiteStatus prepare_kernel(TfLiteContext* context, TfLiteNode* node) {
    Kernel* kernel = node->user_data;
    TfLiteIntArray* shapes = NULL;
    Call call;
    if (kernel == NULL || kernel->buffers == NULL || !begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, kernel->handle);
    if (push_shapes(&call, context, kernel)) call_invoke(&call, FUNCTION_prepare_kernel, true);
    shapes = take_array(&call, 1);
    TfLiteStatus status = finish(&call, context);
    kernel->is_dynamic = shapes != NULL && shapes->size == 0;
    if (status == kTfLiteOk && !kernel->is_dynamic)
        status = shapes != NULL ? resize_outputs(context, kernel, shapes) : kTfLiteError;
    for (int i = kernel->input_count; i < kernel->values->size && kernel->is_dynamic; i++) {
        TfLiteTensor* tensor = &context->tensors[kernel->values->data[i]];
        if (tensor->allocation_type == kTfLiteDynamic) continue;
        tensor->allocation_type = kTfLiteDynamic;
        tensor->data = NULL;
    }
    free(shapes);
    return status;
}

static TfLiteStatus call_kernel(TfLiteContext* context, Kernel* kernel, int function, TfLiteIntArray** shapes) {
    Call call;
    size_t count = (size_t)kernel->values->size;
    for (size_t i = 0; i < count; i++) {
        const TfLiteTensor* tensor = &context->tensors[kernel->values->data[i]];
        kernel->buffers[2 * i] = (uint64_t)(uintptr_t)tensor->data;
        kernel->buffers[2 * i + 1] = tensor->bytes;
    }
    if (!begin(&call, context)) return kTfLiteDelegateError;
    push_handle(&call, kernel->handle);
    push_copy(&call, kernel->buffers, count * 2 * sizeof(uint64_t));
    call_invoke(&call, function, true);
    if (shapes != NULL) *shapes = take_array(&call, 1);
    return finish(&call, context);
}

static TfLiteStatus invoke_kernel(TfLiteContext* context, TfLiteNode* node) {
    Kernel* kernel = node->user_data;
    if (!kernel->is_dynamic) return call_kernel(context, kernel, FUNCTION_invoke_kernel, NULL);
    TfLiteIntArray* shapes = NULL;
    TfLiteStatus status = call_kernel(context, kernel, FUNCTION_invoke_kernel, &shapes);
    if (status == kTfLiteOk) status = shapes != NULL ? resize_outputs(context, kernel, shapes) : kTfLiteError;
    free(shapes);
    return status == kTfLiteOk ? call_kernel(context, kernel, FUNCTION_copy_outputs, NULL) : status;
}

/* ---- Delegate ------------------------------------------------------------------------------------------------- */

static TfLiteStatus prepare_delegate(TfLiteContext* context, TfLiteDelegate* delegate) {
    const TfLiteRegistration kernel = {
        .init = init_kernel,
        .free = free_kernel,
        .prepare = prepare_kernel,
        .invoke = invoke_kernel,
        .builtin_code = kTfLiteBuiltinDelegate,
        .custom_name = "NnhalDelegate",
        .version = 1,
    };
    void* graph = NULL;
    TfLiteIntArray* nodes = NULL;
    TfLiteStatus status = read_graph(context, delegate, &graph);
    if (status == kTfLiteOk) status = choose_nodes(context, delegate, graph, &nodes);
    if (status == kTfLiteOk) release(FUNCTION_report_partitions, graph);
    if (status == kTfLiteOk && nodes->size > 0) {
        current_graph = graph;
        status = context->ReplaceNodeSubsetsWithDelegateKernels(context, kernel, nodes, delegate);
        current_graph = NULL;
    }
    if (graph != NULL) release(FUNCTION_destroy_graph, graph);
    free(nodes);
    return status;
}

NNHAL_API TfLiteDelegate* tflite_plugin_create_delegate(const char* const* keys, const char* const* values,
                                                        size_t count, void (*report)(const char*)) {
    TfLiteDelegate* delegate = calloc(1, sizeof(TfLiteDelegate));
    const char* message = "there is no Python interpreter that has nnhal; see the standard error";
    Call call;
    size_t size = 0, position = 0;
    for (size_t i = 0; i < count; i++) size += strlen(keys[i]) + strlen(values[i]) + 2;
    char* options = malloc(size + 1);
    if (delegate == NULL || options == NULL) goto failed;
    for (size_t i = 0; i < 2 * count; i++) {
        const char* text = i % 2 == 0 ? keys[i / 2] : values[i / 2];
        memcpy(options + position, text, strlen(text) + 1);
        position += strlen(text) + 1;
    }
    if (!call_begin(&call)) goto failed;
    push_copy(&call, options, size);
    call_invoke(&call, FUNCTION_create_delegate, true);
    if (call.code == 0) delegate->data_ = take_handle(&call, 1);
    if (call.code != 0) {
        message = "the delegate cannot be created; see the standard error";
        take_string(&call, 1, &message);
        if (report != NULL) report(message);
        report = NULL; /* the message is gone when the call has ended */
    }
    call_end(&call);
    if (delegate->data_ == NULL) goto failed;
    delegate->Prepare = prepare_delegate;
    delegate->flags = kTfLiteDelegateFlagsAllowDynamicTensors;
    free(options);
    return delegate;

failed:
    if (report != NULL) report(message);
    free(options);
    free(delegate);
    return NULL;
}

NNHAL_API void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate) {
    if (delegate == NULL) return;
    release(FUNCTION_destroy_delegate, delegate->data_);
    free(delegate);
}
