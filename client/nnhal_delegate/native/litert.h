/* Binary interface of LiteRT's delegates on 64-bit Linux: the structures that a delegate reads and fills.
 *
 * The names are those of LiteRT's documentation. A test compares sizes, offsets and numbers with the measured ones.
 * Members that the delegate does not use only keep their place.
 */

#ifndef NNHAL_DELEGATE_LITERT_H
#define NNHAL_DELEGATE_LITERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { kTfLiteOk = 0, kTfLiteError = 1, kTfLiteDelegateError = 2 } TfLiteStatus;
enum { kTfLiteMmapRo = 1, kTfLiteDynamic = 4 };
enum { kTfLiteNoQuantization = 0, kTfLiteAffineQuantization = 1 };
enum { kTfLiteDimSparseCSR = 1 };
enum { kTfLiteDelegateFlagsAllowDynamicTensors = 1 };
enum { kTfLiteBuiltinDelegate = 51 };

typedef struct {
    int size;
    int data[];
} TfLiteIntArray;

typedef struct {
    int size;
    float data[];
} TfLiteFloatArray;

typedef struct {
    float scale;
    int32_t zero_point;
} TfLiteQuantizationParams;

typedef struct {
    int type;
    void* params;
} TfLiteQuantization;

typedef struct {
    TfLiteFloatArray* scale;
    TfLiteIntArray* zero_point;
    int32_t quantized_dimension;
} TfLiteAffineQuantization;

typedef struct {
    int format;
    int dense_size;
    TfLiteIntArray* array_segments;
    TfLiteIntArray* array_indices;
} TfLiteDimensionMetadata;

typedef struct {
    TfLiteIntArray* traversal_order;
    TfLiteIntArray* block_map;
    TfLiteDimensionMetadata* dim_metadata;
    int dim_metadata_size;
} TfLiteSparsity;

typedef struct TfLiteDelegate TfLiteDelegate;

typedef struct {
    int type;
    void* data;
    TfLiteIntArray* dims;
    TfLiteQuantizationParams params;
    int allocation_type;
    size_t bytes;
    const void* allocation;
    const char* name;
    TfLiteDelegate* delegate;
    int buffer_handle;
    bool data_is_stale;
    bool is_variable;
    TfLiteQuantization quantization;
    TfLiteSparsity* sparsity;
    const TfLiteIntArray* dims_signature;
} TfLiteTensor;

typedef struct {
    TfLiteIntArray* inputs;
    TfLiteIntArray* outputs;
    TfLiteIntArray* intermediates;
    TfLiteIntArray* temporaries;
    void* user_data;
    void* builtin_data;
    const void* custom_initial_data;
    int custom_initial_data_size;
    TfLiteDelegate* delegate;
    bool might_have_side_effect;
} TfLiteNode;

typedef struct {
    TfLiteDelegate* delegate;
    TfLiteIntArray* nodes_to_replace;
    TfLiteIntArray* input_tensors;
    TfLiteIntArray* output_tensors;
} TfLiteDelegateParams;

typedef struct TfLiteContext TfLiteContext;

typedef struct {
    void* (*init)(TfLiteContext* context, const char* buffer, size_t length);
    void (*free)(TfLiteContext* context, void* buffer);
    TfLiteStatus (*prepare)(TfLiteContext* context, TfLiteNode* node);
    TfLiteStatus (*invoke)(TfLiteContext* context, TfLiteNode* node);
    const char* (*profiling_string)(const TfLiteContext* context, const TfLiteNode* node);
    int32_t builtin_code;
    const char* custom_name;
    int version;
    void* registration_external;
    void* (*async_kernel)(TfLiteContext* context, TfLiteNode* node);
    uint64_t inplace_operator;
} TfLiteRegistration;

struct TfLiteContext {
    size_t tensors_size;
    TfLiteStatus (*GetExecutionPlan)(TfLiteContext* context, TfLiteIntArray** plan);
    TfLiteTensor* tensors;
    void* impl_;
    TfLiteStatus (*ResizeTensor)(TfLiteContext* context, TfLiteTensor* tensor, TfLiteIntArray* dims);
    void (*ReportError)(TfLiteContext* context, const char* format, ...);
    TfLiteStatus (*AddTensors)(TfLiteContext* context, int count, int* first);
    TfLiteStatus (*GetNodeAndRegistration)(TfLiteContext* context, int index, TfLiteNode** node,
                                           TfLiteRegistration** registration);
    TfLiteStatus (*ReplaceNodeSubsetsWithDelegateKernels)(TfLiteContext* context, TfLiteRegistration registration,
                                                          const TfLiteIntArray* nodes, TfLiteDelegate* delegate);
    int recommended_num_threads;
    void* (*GetExternalContext)(TfLiteContext* context, int type);
    void (*SetExternalContext)(TfLiteContext* context, int type, void* external);
    bool allow_fp32_relax_to_fp16;
    void* profiler;
    void* (*AllocatePersistentBuffer)(TfLiteContext* context, size_t bytes);
    void* (*AllocateBufferForEval)(TfLiteContext* context, size_t bytes);
    void* (*RequestScratchBufferInArena)(TfLiteContext* context, size_t bytes);
    void* (*GetScratchBuffer)(TfLiteContext* context, int index);
    TfLiteStatus (*ResizeTensorExplicit)(TfLiteContext* context, TfLiteTensor* tensor, int rank, const int* dims);
    TfLiteStatus (*PreviewDelegatePartitioning)(TfLiteContext* context, const TfLiteIntArray* nodes,
                                                TfLiteDelegateParams** partitions, int* count);
    TfLiteTensor* (*GetTensor)(const TfLiteContext* context, int index);
    void* (*GetEvalTensor)(const TfLiteContext* context, int index);
    void* (*GetModelMetadata)(const TfLiteContext* context, const char* name);
    void* (*AcquireSubgraphContext)(TfLiteContext* context, int index);
    void* (*ReleaseSubgraphContext)(TfLiteContext* context, int index);
};

struct TfLiteDelegate {
    void* data_;
    TfLiteStatus (*Prepare)(TfLiteContext* context, TfLiteDelegate* delegate);
    TfLiteStatus (*CopyFromBufferHandle)(TfLiteContext* context, TfLiteDelegate* delegate, int handle,
                                         TfLiteTensor* tensor);
    TfLiteStatus (*CopyToBufferHandle)(TfLiteContext* context, TfLiteDelegate* delegate, int handle,
                                       TfLiteTensor* tensor);
    void (*FreeBufferHandle)(TfLiteContext* context, TfLiteDelegate* delegate, int* handle);
    int64_t flags;
    void* opaque_delegate_builder;
};

#endif
