/* Program of TensorFlow Lite's C library: `host MODEL DELEGATE INPUTS OUTPUTS [NAME VALUE]...`.
 *
 * DELEGATE is the path of a delegate, "nnapi" for TensorFlow Lite's own NNAPI delegate, or "none". INPUTS has the bytes
 * of all inputs, one after the other. OUTPUTS gets those of all outputs, after each of two invocations.
 */

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct TfLiteModel TfLiteModel;
typedef struct TfLiteInterpreterOptions TfLiteInterpreterOptions;
typedef struct TfLiteInterpreter TfLiteInterpreter;
typedef struct TfLiteTensor TfLiteTensor;
typedef struct TfLiteDelegate TfLiteDelegate;

TfLiteModel* TfLiteModelCreateFromFile(const char* path);
void TfLiteModelDelete(TfLiteModel* model);
TfLiteInterpreterOptions* TfLiteInterpreterOptionsCreate(void);
void TfLiteInterpreterOptionsDelete(TfLiteInterpreterOptions* options);
void TfLiteInterpreterOptionsAddDelegate(TfLiteInterpreterOptions* options, TfLiteDelegate* delegate);
void TfLiteInterpreterOptionsSetUseNNAPI(TfLiteInterpreterOptions* options, bool enable);
TfLiteInterpreter* TfLiteInterpreterCreate(const TfLiteModel* model, const TfLiteInterpreterOptions* options);
void TfLiteInterpreterDelete(TfLiteInterpreter* interpreter);
int TfLiteInterpreterAllocateTensors(TfLiteInterpreter* interpreter);
int TfLiteInterpreterInvoke(TfLiteInterpreter* interpreter);
int32_t TfLiteInterpreterGetInputTensorCount(const TfLiteInterpreter* interpreter);
int32_t TfLiteInterpreterGetOutputTensorCount(const TfLiteInterpreter* interpreter);
TfLiteTensor* TfLiteInterpreterGetInputTensor(const TfLiteInterpreter* interpreter, int32_t index);
const TfLiteTensor* TfLiteInterpreterGetOutputTensor(const TfLiteInterpreter* interpreter, int32_t index);
void* TfLiteTensorData(const TfLiteTensor* tensor);
size_t TfLiteTensorByteSize(const TfLiteTensor* tensor);

typedef TfLiteDelegate* (*CreateDelegate)(char** keys, char** values, size_t count, void (*report)(const char*));
typedef void (*DestroyDelegate)(TfLiteDelegate* delegate);

static void require(bool condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

static void report(const char* message) { fprintf(stderr, "reported: %s\n", message); }

static TfLiteDelegate* load(const char* path, int count, char** options, DestroyDelegate* destroy) {
    char *keys[32], *values[32];
    void* library = dlopen(path, RTLD_NOW);
    require(library != NULL, dlerror());
    for (int i = 0; i < count / 2; i++) keys[i] = options[2 * i], values[i] = options[2 * i + 1];
    CreateDelegate create;
    *(void**)&create = dlsym(library, "tflite_plugin_create_delegate");
    *(void**)destroy = dlsym(library, "tflite_plugin_destroy_delegate");
    TfLiteDelegate* delegate = create(keys, values, (size_t)count / 2, report);
    require(delegate != NULL, "creating the delegate");
    return delegate;
}

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void invoke(TfLiteInterpreter* interpreter, FILE* inputs, FILE* outputs) {
    rewind(inputs);
    for (int i = 0; i < TfLiteInterpreterGetInputTensorCount(interpreter); i++) {
        TfLiteTensor* tensor = TfLiteInterpreterGetInputTensor(interpreter, i);
        size_t size = TfLiteTensorByteSize(tensor);
        require(fread(TfLiteTensorData(tensor), 1, size, inputs) == size, "reading the inputs");
    }
    require(TfLiteInterpreterInvoke(interpreter) == 0, "TfLiteInterpreterInvoke");
    for (int i = 0; i < TfLiteInterpreterGetOutputTensorCount(interpreter); i++) {
        const TfLiteTensor* tensor = TfLiteInterpreterGetOutputTensor(interpreter, i);
        fwrite(TfLiteTensorData(tensor), 1, TfLiteTensorByteSize(tensor), outputs);
    }
}

int main(int count, char** arguments) {
    require(count >= 5, "usage");
    DestroyDelegate destroy = NULL;
    TfLiteDelegate* delegate = NULL;
    double start = now_ms();
    TfLiteModel* model = TfLiteModelCreateFromFile(arguments[1]);
    require(model != NULL, "TfLiteModelCreateFromFile");
    TfLiteInterpreterOptions* options = TfLiteInterpreterOptionsCreate();
    if (strcmp(arguments[2], "nnapi") == 0) {
        TfLiteInterpreterOptionsSetUseNNAPI(options, true);
    } else if (strcmp(arguments[2], "none") != 0) {
        delegate = load(arguments[2], count - 5, arguments + 5, &destroy);
        TfLiteInterpreterOptionsAddDelegate(options, delegate);
    }
    TfLiteInterpreter* interpreter = TfLiteInterpreterCreate(model, options);
    require(interpreter != NULL, "TfLiteInterpreterCreate");
    require(TfLiteInterpreterAllocateTensors(interpreter) == 0, "TfLiteInterpreterAllocateTensors");
    printf("start: %.0f ms\n", now_ms() - start);
    FILE *inputs = fopen(arguments[3], "rb"), *outputs = fopen(arguments[4], "wb");
    require(inputs != NULL && outputs != NULL, "opening files");
    for (int i = 0; i < 2; i++) invoke(interpreter, inputs, outputs);
    fclose(inputs);
    fclose(outputs);
    TfLiteInterpreterDelete(interpreter);
    if (destroy != NULL) destroy(delegate);
    TfLiteInterpreterOptionsDelete(options);
    TfLiteModelDelete(model);
    printf("done\n");
    return 0;
}
